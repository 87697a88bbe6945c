"""A train step that XLA cannot compile is found out before it runs, on every Keras."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

from tests.pure.recorded_context import H200, machine
from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.xla_models import (
    KINDS,
    REFUSED,
    OwnStep,
    Subclassed,
    Text,
    compiled,
    dataset,
    plain,
    rows,
    sequential,
)
from tfvolta.bridge import bridge_for
from tfvolta.callbacks import ApplyPlan, XlaJit
from tfvolta.config import load_config
from tfvolta.errors import NoEffectError, NoEffectWarning
from tfvolta.facts.schema import TensorFlowBuild
from tfvolta.outcome import Outcome, Status
from tfvolta.session import Origin, Session


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    keras.utils.set_random_seed(1)


def outcome(callback: Any) -> Outcome:
    """How jit ended."""
    ended: Outcome = callback.session.endings["jit"].outcome
    return ended


def is_compiled(model: Any) -> bool:
    """Whether XLA compiles the traced train step."""
    graph = bridge_for(model).train_graph(model)
    assert graph is not None
    return bool(graph.must_compile)


def auto(strict: bool = True) -> ApplyPlan:
    """The plan of xla.jit: auto on a machine with a GPU, as far as facts go: here it decides to compile."""
    facts = machine(
        H200, tensorflow=TensorFlowBuild(version="2.21.0", cuda_version="12.5", compute_capabilities=("compute_90",))
    ).model_copy(update={"stack": STACK})
    config = load_config(xla={"jit": "auto"}, run={"strict": strict})
    return ApplyPlan(Session(config, facts, origin=Origin(record=False)))


def numbers(variable: Any) -> Any:
    """A variable's value."""
    return np.array(variable.numpy())


class State(keras.callbacks.Callback):
    """Everything that a trial must leave alone, right before the first step runs and at the fit's begin."""

    def __init__(self) -> None:
        super().__init__()
        self.begin: Any = None
        self.before_step: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.begin = state_of(self.model)
        bridge_for(self.model).before_first_step(self.model, lambda iterator: self._keep())

    def _keep(self) -> None:
        self.before_step = state_of(self.model)


def state_of(model: Any) -> dict[str, Any]:
    """Weights, optimizer, metrics and generators by name."""
    variables = {f"weight {i}": numbers(v) for i, v in enumerate(model.weights)}
    variables["iterations"] = numbers(model.optimizer.iterations)
    for index, metric in enumerate(model.metrics):
        variables.update({f"metric {index} {i}": numbers(v) for i, v in enumerate(metric.variables)})
    variables["python"] = np.array(random.getstate()[1])
    variables["numpy"] = np.array(np.random.get_state()[1])
    return variables


@pytest.mark.parametrize("layer", REFUSED, ids=lambda layer: layer.__name__)
def test_auto_trains_without_xla_and_names_operation_and_layer(layer: Any) -> None:
    model = compiled(sequential(layer(name="odd")))
    plan = auto()
    model.fit(dataset(), verbose=0, callbacks=[plan])
    assert int(model.optimizer.iterations) == 4
    assert not is_compiled(model)
    ended = outcome(plan)
    assert ended.status is Status.APPLIED
    for part in (
        "not compiled",
        "XLA cannot compile",
        REFUSED[layer],
        f"in layer odd ({layer.__name__}, xla_models.py:",
    ):
        assert part in ended.message
    assert "\n" not in ended.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 3])
def test_model_is_refused_before_anything_is_trained(kind: str, steps: int) -> None:
    model = compiled(KINDS[kind](Text(name="odd")), steps_per_execution=steps)
    if kind == "subclassed":
        model(np.zeros((1, 2), "float32"))  # its weights, to compare
    former = [numbers(weight) for weight in model.weights]
    callback = XlaJit()
    with pytest.raises(NoEffectError) as caught:
        model.fit(*rows(), batch_size=4, verbose=0, callbacks=[callback])
    for part in ("AsString", "odd (Text", "xla.jit: auto", "out of the model"):
        assert part in str(caught.value)
    assert int(model.optimizer.iterations) == 0
    for before, after in zip(former, model.weights):
        np.testing.assert_array_equal(before, numbers(after))
    model.fit(*rows(), batch_size=4, verbose=0)  # and can be trained without the callback
    assert int(model.optimizer.iterations) == 4


def test_a_config_that_is_not_strict_warns_and_trains() -> None:
    model = compiled(sequential(Text(name="odd")))
    callback = XlaJit(strict=False)
    for fits in (1, 2):
        with pytest.warns(NoEffectWarning, match="AsString"):
            model.fit(dataset(), verbose=0, callbacks=[callback])
        assert int(model.optimizer.iterations) == 4 * fits
        assert outcome(callback).status is Status.NO_EFFECT
        assert not is_compiled(model)


def test_an_operation_of_the_train_step_itself_is_named_with_its_line() -> None:
    model = compiled(OwnStep(keras.layers.Activation("relu")))
    with pytest.raises(NoEffectError, match=r"AsString.* in the train step \(xla_models.py:\d+\)"):
        model.fit(dataset(), verbose=0, callbacks=[XlaJit()])


def test_strings_in_the_data_are_named() -> None:
    class Numbers(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.out = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.out(tf.strings.to_number(inputs))

    data = tf.data.Dataset.from_tensor_slices((np.array([["1"], ["2"]] * 4), rows(8)[1])).batch(4)
    with pytest.raises(NoEffectError, match="string"):
        compiled(Numbers()).fit(data, verbose=0, callbacks=[XlaJit()])


@pytest.mark.parametrize("kind", KINDS)
def test_the_trial_of_a_good_model_touches_nothing_and_is_done_once(kind: str) -> None:
    losses, traces = [], []
    for tried in (False, True):
        keras.utils.set_random_seed(1)
        model = compiled(KINDS[kind](keras.layers.Activation("relu")), jit_compile=True)
        callback, state = XlaJit(), State()
        callbacks = [callback, state] if tried else []
        fitted = model.fit(*rows(), batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        losses.append(fitted.history["loss"])
        traces.append(bridge_for(model).trace_count(model))
        if tried:
            assert is_compiled(model)
            assert state.before_step is not None
            for name, value in state.begin.items():
                np.testing.assert_array_equal(value, state.before_step[name], err_msg=name)
            observed = outcome(callback).observed
            assert observed["trial"] == "lowered"
            assert 0 < observed["trial_seconds"] < 60
            model.fit(*rows(), batch_size=4, verbose=0, callbacks=[callback])
            assert outcome(callback).observed["trial_seconds"] == 0.0  # this step was tried before
    assert traces[0] == traces[1]  # training uses the trial's trace
    if KERAS3 or kind != "sequential":  # Keras 2's dropout draws anew in each compiled step, seeded or not
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_only_the_step_itself_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras 2's optimizers mark the update of each variable for XLA on a GPU; these are part of the marked step."""
    from tfvolta.bridge import xla_trial

    names: list[str] = []
    lowered = xla_trial._refusal

    def refusal(function: Any, rows: Any) -> Any:
        names.append(function.name)
        return lowered(function, rows)

    monkeypatch.setattr(xla_trial, "_refusal", refusal)
    model = compiled(plain())
    model.optimizer.jit_compile = True
    model.fit(dataset(), verbose=0, callbacks=[XlaJit(True)])
    assert len(names) == 1 and ("train_step" in names[0] or "run_step" in names[0] or "one_step" in names[0])


def test_no_batch_is_taken_from_the_data() -> None:
    taken = []

    def batches() -> Any:
        for number in range(3):
            taken.append(number)
            yield rows(4)

    model = compiled(sequential(Text()))
    model.fit(batches(), steps_per_epoch=3, verbose=0, callbacks=[auto()])
    assert int(model.optimizer.iterations) == 3
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("good", [True, False])
def test_one_replica_of_a_strategy(good: bool) -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = compiled(plain() if good else sequential(Text(name="odd")))
    callback = XlaJit(strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoEffectWarning)
        model.fit(dataset(), verbose=0, callbacks=[callback])
    assert bridge_for(model).step_counts(model).applied == 4
    assert is_compiled(model) is good
    assert ("AsString" in outcome(callback).message) is not good


def test_auto_does_not_try_again_what_failed() -> None:
    model = compiled(Subclassed(Text(name="odd")))
    plan = auto()
    functions = []
    for _ in range(2):
        model.fit(dataset(), verbose=0, callbacks=[plan])
        assert "AsString" in outcome(plan).message
        functions.append(model.train_function)
    assert functions[0] is functions[1]  # so the second fit traces nothing anew
    assert int(model.optimizer.iterations) == 8


@pytest.mark.skipif(not KERAS3, reason="Keras 2 has no supports_jit")
def test_a_layer_that_declares_no_xla_is_refused_before_training() -> None:
    layer = keras.layers.Activation("relu", name="declares")
    layer.supports_jit = False
    model = compiled(sequential(layer))
    with pytest.raises(NoEffectError, match="declares"):
        model.fit(dataset(), verbose=0, callbacks=[XlaJit()])
    assert int(model.optimizer.iterations) == 0


def test_one_line_goes_to_the_log(caplog: Any) -> None:
    with caplog.at_level("WARNING", logger="absl"):
        compiled(sequential(Text(name="odd"))).fit(dataset(), verbose=0, callbacks=[auto()])
    lines = [record.getMessage() for record in caplog.records if "XLA cannot compile" in record.getMessage()]
    assert len(lines) == 1
    assert "AsString" in lines[0]
    assert "odd (Text" in lines[0]
