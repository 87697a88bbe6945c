"""The report page: whole, valid, escaped, small, and without anything to load."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pure.evidence_examples import facts, outcome
from tests.pure.page_check import PageCheck
from tests.pure.page_examples import NASTY, bench, nasty, run, search, subjects
from tests.pure.sources import ROOT
from tfvolta.cli.main import main
from tfvolta.evidence.store import EvidenceStore
from tfvolta.page import style, svg
from tfvolta.page.page import NO_CHARTS, make_page
from tfvolta.page.subject import Subjects

MADE = ("2026-03-01T12:00:00.000Z", "0.1.0")


def everything() -> Subjects:
    here = Path("x")
    return subjects(run("first"), run("second", 2), searches=((here, search()),), benches=((here, bench()),))


@functools.cache
def whole_page() -> str:
    return make_page(everything(), *MADE)


def test_a_page_is_valid_and_loads_nothing() -> None:
    page = whole_page()
    check = PageCheck(page)
    assert check.faults == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", page)


def test_a_page_says_what_it_is_about() -> None:
    page = whole_page()
    for text in (
        "1.40x",
        "no gain shown",
        "reason of LATE",
        "9.00 GiB",
        "not on this machine",
    ):
        assert text in page
    assert "trained at 1.1 times the throughput of first; their intervals do not overlap" in page
    for title in (
        "Step times",
        "Memory",
        "Loss scale",
        "Compile ledger",
        "What each setting buys",
        "Scaling prediction",
    ):
        assert title in page


def test_folds_need_no_script_and_open_what_went_wrong() -> None:
    page = make_page(subjects(run()), *MADE)
    opened = re.findall(r"<details( open)?><summary>(?:<span[^>]*>)?([A-Z][a-z, ]+): \d", page)
    assert (
        ("", "Applied and verified") in opened
        and (" open", "Too late") in opened
        and (" open", "Without effect") in opened
    )


@pytest.mark.parametrize("charts", [True, False])
def test_nothing_that_is_read_becomes_markup(charts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "can_draw", lambda: charts and svg.importlib.util.find_spec("matplotlib") is not None)
    page = make_page(
        subjects(nasty(), searches=((Path(NASTY.replace("\0", "")), search(sentence=NASTY, script=NASTY)),)), *MADE
    )
    check = PageCheck(page)
    assert check.faults == []
    assert "script" not in check.tags and "img" not in check.tags and check.tags["style"] == 1
    assert page.count("&lt;script&gt;alert") > 12
    page.encode("utf-8")


def test_ten_runs_are_small() -> None:
    lone = make_page(subjects(run("one", 1, epochs=2000)), *MADE)
    assert PageCheck(lone).faults == []
    # What runs share is in it once, so ten runs in one page are smaller than ten pages.
    assert 10 * len(lone.encode()) < 1_900_000


def test_without_matplotlib_the_tables_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tfvolta.page.svg", "tfvolta.page.charts", "tfvolta.page.page"):
        monkeypatch.setattr(f"{module}.can_draw", lambda: False)
    page = make_page(everything(), *MADE)
    assert NO_CHARTS in page and "tfvolta[report]" in page and "<svg" not in page
    assert "<details open><summary>The figures as a table" in page
    assert PageCheck(page).faults == []


def test_charts_have_a_title_text_and_the_colours_of_the_page() -> None:
    pytest.importorskip("matplotlib")
    page = make_page(subjects(run()), *MADE)
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == 2 * 4  # wide and narrow: distribution, order, memory, scale
    for chart in charts:
        assert "<title " in chart and "<desc " in chart and "<text" in chart
        colours = set(re.findall(r"#[0-9a-f]{6}\b", chart))
        assert colours <= {"#000000"}, "each colour is a variable of the page, so that the dark page has its own"
        assert "var(--series-0)" in chart or "var(--ink)" in chart


def _light(colour: str) -> float:
    """Relative luminance. Source: WCAG 2.2, definition of relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [style.LIGHT, style.DARK])
def test_contrast(colours: dict[str, str]) -> None:
    for name in ("ink", "quiet", "link", "good", "doubt", "bad", "series-0", "series-1", "series-2", "series-3"):
        for ground in ("paper", "panel"):
            dark, light = sorted((_light(colours[name]), _light(colours[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, ground)


def kept(folder: Path, name: str, **changes: Any) -> Path:
    store = EvidenceStore.create(folder, name)
    store.write(run(name, **changes))
    return store.directory


def test_the_command_writes_beside_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "runs", "first")
    assert main(["report", "first", "--directory", str(tmp_path / "runs"), "--html"]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert PageCheck(page).faults == [] and page.startswith("<!DOCTYPE html>")


def test_a_search_and_an_estimate_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "found"
    found.mkdir()
    (found / "tune.json").write_text(search().model_dump_json())
    words = ["estimate", "scaling", "--machine", "dgx1", "--model", "resnet50", "--step-ms", "100", "--batch", "64"]
    assert main([*words, "--json"]) == 0
    (tmp_path / "scaling.json").write_text(capsys.readouterr().out)
    where = tmp_path / "out.html"
    assert main(["report", str(found), str(tmp_path / "scaling.json"), "--html", str(where), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    page = where.read_text(encoding="utf-8")
    assert said["bytes"] == len(page.encode()) and said["path"] == str(where)
    assert "Predicted, not measured" in page and "Predicted steps" in page and "1.40x" in page
    assert PageCheck(page).faults == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html", "first"], "tfvolta report first --html"),
        (["first", "--html", "no/where/a.html"], "mkdir -p"),
        (["nothing", "--html"], "No such run"),
        (["broken", "--html"], "sentence"),
    ],
)
def test_a_mistake_is_explained_and_writes_nothing(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept(tmp_path / "runs", "first")
    broken = tmp_path / "broken"
    broken.mkdir()
    content = json.loads(search().model_dump_json())
    del content["sentence"]
    (broken / "tune.json").write_text(json.dumps(content))
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert list(tmp_path.rglob("*.html")) == []


def test_a_page_is_made_without_tensorflow_and_numpy_of_its_own(tmp_path: Path) -> None:
    folder = kept(tmp_path / "runs", "first")
    kept(tmp_path / "runs", "second")
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = sys.modules['numpy'] = None\n"
        "from tfvolta.page import svg; svg.importlib.util.find_spec = lambda name: None\n"
        f"from tfvolta.cli.main import main; runs = [{str(folder)!r}] * 2\n"
        "sys.exit(main(['report', *runs, str(runs[0]) + '/../second', '--html', 'a.html']))"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "matplotlib is not installed" in done.stdout
    assert PageCheck((tmp_path / "a.html").read_text(encoding="utf-8")).faults == []


def test_the_name_of_a_bench_is_that_of_the_bench() -> None:
    from tfvolta.bench.result import FILE_NAME
    from tfvolta.page.subject import BENCH_FILE

    assert BENCH_FILE == FILE_NAME


@pytest.mark.parametrize("junk", [None, 3, "Infinity", [None], [{"epoch": "x"}], {"x": None}])
def test_evidence_of_another_kind_ends_no_page(junk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("tfvolta.page.svg", "tfvolta.page.charts", "tfvolta.page.page"):
        monkeypatch.setattr(f"{module}.can_draw", lambda: False)
    whole = run().measurements
    for name, values in whole.items():
        changed = [{**whole, name: junk}, *({**whole, name: {**values, key: junk}} for key in values)]
        for measurements in changed:
            odd = run().updated_with(measurements=measurements)
            assert PageCheck(make_page(subjects(odd, run("second")), *MADE)).faults == []


def test_a_run_on_several_gpus_brings_its_own_prediction(tmp_path: Path) -> None:
    one = facts().gpus[0]
    pair = facts(gpus=(one, one.model_copy(update={"index": 1})))
    observed = {"replicas": 2, "gradient_bytes": 100_000_000}
    folder = kept(tmp_path, "pair", facts=pair, outcomes={"strategy": outcome("APPLIED", "seen", observed=observed)})
    where = tmp_path / "pair.html"
    assert main(["report", str(folder), "--html", str(where)]) == 0
    page = where.read_text(encoding="utf-8")
    assert "Predicted, not measured; from the evidence of run pair." in page and "Predicted steps" in page
    assert PageCheck(page).faults == []
