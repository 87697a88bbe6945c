"""What every knob must satisfy: registry, cards, schema, forecasts, and apply-verify-undo on a recorded context."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any, Iterator

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

import tfvolta
from tests.pure.knob_table import ROWS
from tests.pure.recorded_context import H200, V100, RecordedContext, RecordedModel, connect_privates, machine
from tests.pure.waiting_keys import WAITING
from tfvolta.config.schema import Config
from tfvolta.facts.schema import Facts
from tfvolta.knobs.base import Knob
from tfvolta.knobs.registry import knob, knobs, knobs_for
from tfvolta.outcome import Status
from tfvolta.phase import Moment, Phase
from tfvolta.strategy.knobs import STRATEGY_KNOBS

PACKAGE = pathlib.Path(tfvolta.__file__).parent
CARDS = PACKAGE / "knobs" / "cards"
SECTIONS = (
    "What it does",
    "When it binds",
    "When not to use it",
    "Interactions",
    "Per stack",
    "Measurement",
    "Sources",
)
# Keys that are no knob's: where they are carried instead.
CARRIED_BY = {
    "run.directory": "evidence",
    "run.strict": "session",
    "strategy.kind": "strategy factory",
    "strategy.devices": "strategy factory",
    "communication.": "strategy factory",
    "horovod.": "strategy kind horovod and its callbacks",
    "monitor.": "callbacks",
}
EVERY = pytest.mark.parametrize("each", knobs(), ids=lambda each: each.name)


def machines() -> list[Facts]:
    """Every machine that was recorded, and some that were made up, on each stack."""
    recorded = [
        Facts.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted((PACKAGE / "facts" / "recorded").glob("*.json"))
    ]
    made = [machine(), machine(V100), machine(V100, 8), machine(H200, 2), machine(tensorflow=None)]
    return [facts.model_copy(update={"stack": stack}) for facts in recorded + made for stack in ("keras3", "keras2")]


def schema_keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Dotted keys of the config's leaves."""
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is None:
            yield prefix + name
        else:
            yield from schema_keys(section, f"{prefix}{name}.")


def _section(annotation: Any) -> Any:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def front_matter(name: str) -> tuple[dict[str, Any], str]:
    """Front matter and body of a card."""
    _, head, body = (CARDS / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    return dict(YAML(typ="safe").load(head)), body


def recorded(each: Knob, facts: Facts) -> RecordedContext:
    """A context for a knob's row; with a model where its phase has one."""
    row = ROWS[each.name]
    context = RecordedContext(Config.model_validate(row.config), facts, dict(row.environ))
    if each.phase >= Phase.COMPILE:
        context.model = RecordedModel()
    return context


def test_names_are_unique_and_every_knob_has_a_row() -> None:
    names = [each.name for each in knobs()]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(ROWS)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    assert knob("memory_growth").name == "memory_growth"
    with pytest.raises(KeyError, match="did you mean 'memory_growth'"):
        knob("memory_grwth")
    with pytest.raises(KeyError, match=r"no knob is named 'qqqq'\. There are: addons, alarms, allocator"):
        knob("qqqq")


def test_knobs_of_a_config_come_in_phase_order() -> None:
    merged: dict[str, Any] = {}
    for row in ROWS.values():
        for section, values in row.config.items():
            merged.setdefault(section, {}).update(values)
    found = knobs_for(Config.model_validate(merged))
    assert [each.phase for each, _ in found] == sorted(each.phase for each, _ in found)
    # jit and clustering share one key, of which a config holds one value; the one kind that is left is not Horovod.
    other_kinds = {name for name in ROWS if name.startswith("horovod_")}
    assert {each.name for each, _ in found} == set(ROWS) - {"jit"} - other_kinds


def test_an_empty_config_asks_for_nothing() -> None:
    assert knobs_for(Config()) == []


@EVERY
def test_value_is_read_from_the_config_and_is_json(each: Knob) -> None:
    row = ROWS[each.name]
    value = each.value(Config.model_validate(row.config))
    assert value == row.value
    json.dumps(value)


@EVERY
def test_a_knob_says_when_it_binds_and_where_to_move_to(each: Knob) -> None:
    assert re.search(r"^\s*Binds: ", type(each).__doc__ or "", re.MULTILINE)
    assert all(re.fullmatch(r"[A-Z]\d+", name) for name in each.techniques)
    assert bool(each.move_to) == (each.closes_at is not Moment.NEVER)


@EVERY
def test_card_equals_the_class_and_names_sources(each: Knob) -> None:
    head, body = front_matter(each.name)
    assert head["name"] == each.name
    assert tuple(head["keys"]) == each.keys
    assert head["phase"] == each.phase.label
    assert tuple(head["techniques"]) == each.techniques
    assert head["status"] in ("true", "false", "depends", "open", True, False)
    assert head["stacks"] == ["keras3", "tf_keras", "keras2"]
    parts = re.split(r"^## (.+)$", body, flags=re.MULTILINE)
    assert tuple(parts[1::2]) == SECTIONS
    texts = dict(zip(parts[1::2], (text.strip() for text in parts[2::2])))
    assert all(texts.values())
    assert texts["Sources"].startswith("- ")
    measured = texts["Measurement"]
    if re.search(r"\d images/s|%\)", measured):
        assert "NVIDIA H200, TensorFlow 2.21" in measured
        assert "No V100 was available" in measured


def test_there_is_no_card_without_a_knob() -> None:
    strategy = {each.name for each in STRATEGY_KNOBS}
    assert {path.stem for path in CARDS.glob("*.md")} == set(ROWS) | strategy


def test_every_schema_key_is_carried() -> None:
    carried = {key for each in (*knobs(), *STRATEGY_KNOBS) for key in each.keys}
    elsewhere = (*CARRIED_BY, *WAITING)
    lost = [key for key in schema_keys() if key not in carried and not key.startswith(elsewhere)]
    assert lost == []


@EVERY
def test_every_key_exists_in_the_schema(each: Knob) -> None:
    leaves = set(schema_keys())
    for key in each.keys:
        assert key in leaves or any(leaf.startswith(key + ".") for leaf in leaves), key


@EVERY
@pytest.mark.parametrize("facts", machines(), ids=lambda facts: f"{len(facts.gpus)}gpu-{facts.stack}")
def test_forecast_on_every_machine(each: Knob, facts: Facts) -> None:
    row = ROWS[each.name]
    config = Config.model_validate(row.config)
    forecast = each.forecast(row.value, facts, config)
    assert forecast.status in (Status.APPLIED, Status.NO_EFFECT, Status.NOT_APPLICABLE, Status.UNVERIFIABLE)
    assert re.search(r"[.)]$", forecast.message), forecast.message
    if row.gpu_only and not facts.gpus:
        assert forecast.status is Status.NOT_APPLICABLE
    assert isinstance(each.problems(row.value, facts, {}), list)


# Carried by Python's own state, by the data, or by the list of callbacks.
CARRIED_OUTSIDE = (
    "seed",
    "policy",
    "drop_remainder",
    "pad_remainder",
    "addons",
    "checkpoint",
    "alarms",
    "guard",
    "built_islands",
    "gradient_monitor",
    "watchdog",
    "sharding",
    "uneven",
    "batch_size",
    "on_oom",
)
CARRIED_OUTSIDE += ("sequences", "input_options", "input_prefetch", "input_cache", "device_prefetch", "half_input")
# They look at other processes, which a recorded context does not have; tests/processes has them.
SETS_NOTHING = ("preflight", "first_all_reduce")


@EVERY
def test_apply_verify_undo_on_a_recorded_context(each: Knob, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[each.name]
    context = recorded(each, machine(H200, 2))
    connect_privates(monkeypatch, context)
    before = context.state()
    each.apply(row.value, context)
    assert each.verify(row.value, context).status is row.at_once
    assert context.state() != before or each.name in (*CARRIED_OUTSIDE, *SETS_NOTHING)
    undone = each.undo(context)
    assert undone == each.undoable
    if undone:
        assert context.state() == before
        assert not context.saved.get(each.name)


@EVERY
def test_after_everything_has_happened(each: Knob, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[each.name]
    context = recorded(each, machine(H200, 2))
    connect_privates(monkeypatch, context)
    each.apply(row.value, context)
    context.tensorflow.started = True
    context.model = context.model or RecordedModel()
    context.model.traced = True
    outcome = each.verify(row.value, context)
    assert outcome.status is row.ends, outcome
    assert outcome.message
    json.dumps(outcome.to_json())


@EVERY
def test_what_another_changed_afterwards_is_no_success(each: Knob, monkeypatch: pytest.MonkeyPatch) -> None:
    """A knob that reports APPLIED whatever happened would pass every other test here."""
    if each.name in SETS_NOTHING:
        return
    row = ROWS[each.name]
    context = recorded(each, machine(H200, 2))
    connect_privates(monkeypatch, context)
    untouched = recorded(each, machine(H200, 2))
    each.apply(row.value, context)
    # The same knob, as if its settings had been reset by someone else: nothing of what it set is left.
    context.environ, context.tensorflow, context.bridge = untouched.environ, untouched.tensorflow, untouched.bridge
    context.model = untouched.model
    connect_privates(monkeypatch, context)
    context.tensorflow.started = True
    if context.model is not None:
        context.model.traced = True
    assert each.verify(row.value, context).status is Status.NO_EFFECT


def test_knobs_are_importable_without_tensorflow() -> None:
    code = (
        "import sys\n"
        "sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from tfvolta.knobs.registry import knobs\n"
        "from tests.pure.knob_table import ROWS\n"
        "from tests.pure.recorded_context import H200, machine\n"
        "from tfvolta.config.schema import Config\n"
        "for knob in knobs():\n"
        "    row = ROWS[knob.name]\n"
        "    print(knob.forecast(row.value, machine(H200, 2), Config.model_validate(row.config)).message)\n"
        "assert sys.modules['tensorflow'] is None and 'tensorflow.python' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(ROWS)
