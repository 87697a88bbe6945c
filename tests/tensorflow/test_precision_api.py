"""Custom training loops with loss scaling: the same numbers on every Keras, eager and in a graph."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tests.tensorflow.callbacks_models import Subclassed, rows
from tfvolta import precision
from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor
from tfvolta.errors import BridgeError, ConfigError, PlanError

SGD = keras.optimizers.SGD
MAKES = {"sgd": lambda: SGD(1.0)}
if not KERAS3:
    MAKES["legacy"] = lambda: keras.optimizers.legacy.SGD(1.0)


def variable(*values: float) -> Any:
    return keras.Variable(list(values)) if KERAS3 else tf.Variable(list(values))


def raw(item: Any) -> Any:
    return item.value if KERAS3 else item


class Loop:
    """One weight, whose gradient is what the step is called with."""

    def __init__(self, optimizer: Any, clip: float | None = 1.0, graph: bool = False) -> None:
        self.weight, self.optimizer, self.clip = variable(0.0), optimizer, clip
        self.step = tf.function(self._step) if graph else self._step

    def _step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            scaled = precision.scale_loss(self.optimizer, tf.reduce_sum(raw(self.weight) * x))
        gradients = precision.unscale_gradients(self.optimizer, tape.gradient(scaled, [raw(self.weight)]))
        norm = tf.norm(gradients[0])
        if self.clip is not None:
            gradients, norm = precision.clip_by_global_norm(gradients, self.clip)
        precision.apply_gradients(self.optimizer, zip(gradients, [self.weight]))
        return scaled, norm

    def __call__(self, x: float) -> tuple[float, float, float]:
        """The norm, the step taken, and the loss scale afterwards."""
        before = float(self.weight.numpy()[0])
        _, norm = self.step(tf.constant(x, tf.float32))
        return float(norm), before - float(self.weight.numpy()[0]), precision.current_scale(self.optimizer)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("make", MAKES)
def test_steps_are_clipped_in_true_size_and_overflows_skipped(make: str, graph: bool) -> None:
    loop = Loop(precision.loss_scale_optimizer(MAKES[make](), initial=1024.0, growth_steps=2), graph=graph)
    assert precision.current_scale(loop.optimizer) == 1024.0
    assert loop(3.0) == (3.0, 1.0, 1024.0)
    assert loop(float("inf")) == (float("inf"), 0.0, 512.0)
    assert loop(0.5) == (0.5, 0.5, 512.0)
    assert loop(-3.0) == (3.0, -1.0, 1024.0)  # two finite steps in a row: it doubles
    assert np.isnan(loop(float("nan"))[0])
    assert precision.current_scale(loop.optimizer) == 512.0 and loop.weight.numpy()[0] == -0.5
    counts = precision.step_counts(loop.optimizer)
    assert (counts.attempted, counts.applied, counts.skipped) == (5, 3, 2)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("make", MAKES)
def test_a_fixed_scale_stays_and_skips_overflows(make: str, graph: bool) -> None:
    loop = Loop(precision.loss_scale_optimizer(MAKES[make](), fixed=1000.0), clip=None, graph=graph)
    assert precision.current_scale(loop.optimizer) == 1000.0
    assert loop(3.0)[1:] == (3.0, 1000.0)
    assert loop(float("inf"))[1:] == (0.0, 1000.0)
    counts = precision.step_counts(loop.optimizer)
    assert (counts.attempted, counts.applied, counts.skipped) == (2, 1, 1)


def test_a_scale_that_overflows_for_ever_stops_at_one() -> None:
    loop = Loop(precision.loss_scale_optimizer(SGD(1.0), initial=4.0))
    assert [loop(float("inf"))[2] for _ in range(4)] == [2.0, 1.0, 1.0, 1.0]
    assert loop(3.0) == (3.0, 1.0, 1.0)


def test_a_function_traced_before_the_first_step_sees_later_scales() -> None:
    optimizer = precision.loss_scale_optimizer(SGD(1.0), initial=8.0)
    scale = tf.function(lambda loss: precision.scale_loss(optimizer, loss))
    read = tf.function(lambda: precision.current_scale(optimizer))
    assert float(scale(tf.constant(2.0))) == 16.0 and float(read()) == 8.0
    precision.apply_gradients(optimizer, [(tf.constant([np.inf]), variable(1.0))])
    assert float(scale(tf.constant(2.0))) == 8.0 and float(read()) == 4.0


@pytest.mark.parametrize("clipping", [{"clipnorm": 1.0}, {"clipvalue": 1.0}, {"global_clipnorm": 1.0}])
@pytest.mark.parametrize("make", MAKES)
def test_clipping_is_forwarded_to_the_inner_optimizer(make: str, clipping: dict[str, float]) -> None:
    loop = Loop(precision.loss_scale_optimizer(MAKES[make](), **clipping), clip=None)
    inner = precision.inner_optimizer(loop.optimizer)
    assert {name: getattr(inner, name) for name in clipping} == clipping
    assert loop(3.0)[1:] == (1.0, 32768.0)
    other = next(name for name in precision.CLIPPING if name not in clipping)
    with pytest.raises(ConfigError, match="one kind of clipping"):
        precision.loss_scale_optimizer(inner, **{other: 1.0})


def test_wrappers_are_never_nested_and_inner_ones_are_found() -> None:
    inner = SGD(1.0, use_ema=True)
    wrapper = precision.loss_scale_optimizer(inner, initial=8.0)
    again = precision.loss_scale_optimizer(wrapper, initial=16.0)
    assert precision.inner_optimizer(again) is inner is precision.inner_optimizer(inner)
    assert precision.current_scale(again) == 16.0
    assert precision.keeps_ema(again) and precision.keeps_ema(inner) and not precision.keeps_ema(SGD(1.0))
    assert isinstance(again, keras.mixed_precision.LossScaleOptimizer) or not KERAS3


def test_an_optimizer_without_loss_scaling_is_left_alone() -> None:
    loop = Loop(SGD(1.0))
    assert loop(3.0) == (3.0, 1.0, 1.0)
    counts = precision.step_counts(loop.optimizer)
    assert (counts.attempted, counts.applied, counts.skipped) == (1, 1, 0)


@pytest.mark.skipif(not KERAS3, reason="loss_scale_factor is Keras 3's")
def test_keras_3_s_own_fixed_factor_is_honoured() -> None:
    loop = Loop(SGD(1.0, loss_scale_factor=64.0), clip=None)
    scaled, _ = loop.step(tf.constant(3.0))
    assert precision.current_scale(loop.optimizer) == 64.0 and loop.weight.numpy()[0] == -3.0
    assert float(scaled) == 0.0 and float(precision.scale_loss(loop.optimizer, 2.0)) == 128.0


def test_keras_s_own_wrapper_serves_too() -> None:
    loop = Loop(keras.mixed_precision.LossScaleOptimizer(SGD(1.0), initial_scale=1024.0))
    assert precision.current_scale(loop.optimizer) == 1024.0
    assert loop(3.0) == (3.0, 1.0, 1024.0) and loop(float("inf"))[1:] == (0.0, 512.0)


def test_none_and_sparse_gradients_keep_their_place_and_kind() -> None:
    optimizer = precision.loss_scale_optimizer(SGD(1.0), initial=4.0)
    table, unused = keras.Variable(np.zeros((3, 1), "float32")) if KERAS3 else tf.Variable(np.zeros((3, 1), "f")), None
    unused = variable(1.0)
    slices = tf.IndexedSlices(tf.constant([[12.0], [0.0], [4.0]]), tf.constant([1, 2, 1]), tf.constant([3, 1]))
    true = precision.unscale_gradients(optimizer, (slices, None))
    assert isinstance(true, tuple) and isinstance(true[0], tf.IndexedSlices) and true[1] is None
    clipped, norm = precision.clip_by_global_norm(true, 2.0)
    assert float(norm) == 4.0  # row 1 gets 3 and 1, which are added up first
    with pytest.warns(UserWarning, match="Gradients do not exist") if KERAS3 else _silence():
        precision.apply_gradients(optimizer, zip(clipped, [table, unused]))
    assert table.numpy().ravel().tolist() == [0.0, -2.0, 0.0] and unused.numpy()[0] == 1.0
    bad = tf.IndexedSlices(tf.constant([[np.nan]]), tf.constant([0]), tf.constant([3, 1]))
    precision.apply_gradients(optimizer, [(bad, table)])
    assert table.numpy().ravel().tolist() == [0.0, -2.0, 0.0] and precision.current_scale(optimizer) == 2.0


def _silence() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_structures_and_half_precision_losses() -> None:
    optimizer = precision.loss_scale_optimizer(SGD(1.0), initial=32768.0)
    scaled = precision.scale_loss(optimizer, {"a": tf.constant(4.0, tf.float16), "b": 2.0})
    assert scaled["a"].dtype == tf.float32 and float(scaled["a"]) == 131072.0 and float(scaled["b"]) == 65536.0
    true = precision.unscale_gradients(optimizer, {"w": [tf.constant(32768.0), None]})
    assert float(true["w"][0]) == 1.0 and true["w"][1] is None
    gradients, norm = precision.clip_by_global_norm([None], 1.0)
    assert gradients == [None] and float(norm) == 0.0


def test_a_step_without_gradients_is_refused() -> None:
    optimizer = precision.loss_scale_optimizer(SGD(1.0))
    for pairs in ([], [(None, variable(1.0))]):
        with pytest.raises(BridgeError, match="at least one gradient"):
            precision.apply_gradients(optimizer, pairs)


@pytest.mark.skipif(not KERAS3, reason="Keras 2's optimizers accumulate no gradients")
def test_an_average_with_accumulation_is_refused() -> None:
    optimizer = SGD(1.0, use_ema=True, gradient_accumulation_steps=4)
    for wrapped in (optimizer, keras.mixed_precision.LossScaleOptimizer(optimizer)):
        with pytest.raises(PlanError, match=r"use_ema=True and gradient_accumulation_steps=4"):
            precision.loss_scale_optimizer(wrapped)
        with pytest.raises(PlanError, match="4 times faster"):
            precision.apply_gradients(wrapped, [(tf.constant([1.0]), variable(1.0))])
    precision.loss_scale_optimizer(SGD(1.0, gradient_accumulation_steps=4))


def test_an_average_of_weights_follows_the_steps_that_were_applied() -> None:
    optimizer = precision.loss_scale_optimizer(SGD(0.5, use_ema=True, ema_momentum=0.9), initial=8.0)
    weight = variable(1.0)
    for gradient in (1.0, np.inf, 1.0, np.nan, 1.0):
        precision.apply_gradients(optimizer, [(tf.constant([gradient], tf.float32), weight)])
    assert weight.numpy()[0] == pytest.approx(-0.5)
    average = precision.inner_optimizer(optimizer)._model_variables_moving_average[0].numpy()[0]
    assert average == pytest.approx(0.355 if KERAS3 else average)


@pytest.mark.skipif(STACK != "keras2", reason="TensorFlow Addons serves Keras 2.15")
def test_tensorflow_addons_optimizers() -> None:
    addons = pytest.importorskip("tensorflow_addons")
    loop = Loop(precision.loss_scale_optimizer(addons.optimizers.LAMB(0.1), initial=1024.0), graph=True)
    assert loop(float("inf"))[1:] == (0.0, 512.0)
    norm, step, scale = loop(3.0)
    assert (norm, scale) == (3.0, 512.0) and step > 0
    averaged = addons.optimizers.MovingAverage(addons.optimizers.LAMB(0.1))
    assert precision.keeps_ema(averaged) and precision.keeps_ema(precision.loss_scale_optimizer(averaged))


def test_a_model_with_such_an_optimizer_trains_and_is_saved(tmp_path: Any) -> None:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(precision.loss_scale_optimizer(keras.optimizers.Adam(0.01), initial=1024.0), "mse")
    x, y = rows()
    model.fit(x, y, batch_size=11, verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert precision.current_scale(loaded.optimizer) == 1024.0 and int(loaded.optimizer.iterations) == 4
    loaded.fit(x, y, batch_size=11, verbose=0)
    assert int(loaded.optimizer.iterations) == 8


class TrueSizedStep(Subclassed):
    """A model whose training step is written with the API."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            scaled = precision.scale_loss(self.optimizer, loss)
        gradients = precision.unscale_gradients(self.optimizer, tape.gradient(scaled, self.trainable_variables))
        gradients, _ = precision.clip_by_global_norm(gradients, 1.0)
        precision.apply_gradients(self.optimizer, zip(gradients, self.trainable_variables))
        return {"loss": loss}


@pytest.mark.parametrize("own_step", [False, True])
@pytest.mark.parametrize("wrap", ["tfvolta", "keras"])
def test_attempted_applied_and_skipped_steps_of_a_fit(own_step: bool, wrap: str) -> None:
    model = TrueSizedStep() if own_step else Subclassed()
    if wrap == "tfvolta":
        optimizer = precision.loss_scale_optimizer(SGD(0.01), initial=8.0)
    else:
        optimizer = keras.mixed_precision.LossScaleOptimizer(SGD(0.01), initial_scale=8.0)
    model.compile(optimizer, "mse", jit_compile=False)
    x, y = rows(16)
    x[:] = np.inf
    monitor = LossScaleMonitor()
    for scale in (1.0, 1.0):  # 8, halved four times, is no less than 1
        model.fit(x, y, batch_size=4, verbose=0, callbacks=[monitor])
        record = monitor.records[-1]
        assert (record["attempted"], record["applied"], record["skipped"]) == (4, 0, 4)
        assert record["scale"] == scale
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tensorflow.precision_loops"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_two_replicas_clip_the_sum_and_skip_together(loops: dict[str, Any]) -> None:
    inf = float("inf")
    for records in loops["trained"].values():
        assert [record["scale"] for record in records] == [512.0, 256.0, 256.0, 256.0]
        assert [record["weight"] for record in records] == [0.0, 0.0, -1.0, -1.25]
        assert [record["norms"] for record in records] == [[inf, inf], [inf, inf], [3.0, 3.0], [0.25, 0.25]]
        assert records[-1]["counts"] == [4, 2, 2]


def test_what_cannot_work_under_a_strategy_is_refused(loops: dict[str, Any]) -> None:
    refusals = loops["refusals"]
    assert "strategy.run" in refusals["outside"]
    if KERAS3:
        assert "optimizer.build(model.trainable_variables)" in refusals["unbuilt"]
    else:
        assert refusals["unbuilt"] == ""
    # Keras 3 by itself would clip each replica's share, 1 and 2, before it adds them up.
    assert refusals["clipped"] == "" and refusals["clipped weight"] == "-1.0"


def test_findings_that_need_replicas(loops: dict[str, Any]) -> None:
    clipping = ["clipped_shares"] if KERAS3 else []
    assert loops["audits"] == {"before": ["unsynchronized_batch_norm norm", *clipping], "after": []}
