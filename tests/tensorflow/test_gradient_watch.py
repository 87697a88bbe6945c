"""Figures of gradients in their true size, against gradients worked out by hand, on every stack."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import pytest

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.gradient_records import GradientFigures, GradientSample, together
from tfvolta.bridge.graphs import outermost, summarize_function

BRIDGE = bridge_for_stack(STACK)
BATCH = 2


class Linear(keras.Model):
    """The loss is the sum of w times x over a batch, so that the gradient of w is the sum of the rows of x."""

    def __init__(self, columns: int = 4):
        super().__init__()
        self.weight = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="weight")
        self.columns = columns

    def call(self, inputs: Any) -> Any:
        return self.weight(inputs)


def total(_: Any, y: Any) -> Any:
    return y * 1.0


def model(optimizer: Any = None, **compiled: Any) -> Any:
    made = Linear()
    made(tf.zeros((1, 4)))
    made.compile(optimizer or keras.optimizers.SGD(0.0), total, **compiled)
    return made


class Samples(keras.callbacks.Callback):
    """Takes the samples as a callback does."""

    def __init__(self, every: int):
        super().__init__()
        self.every = every
        self.samples: list[GradientSample] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        BRIDGE.watch_gradients(model, self.every)

    def on_train_begin(self, logs: Any = None) -> None:
        BRIDGE.start_watch(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        sample = BRIDGE.gradient_sample(self.model)
        if sample is not None:
            self.samples.append(sample)

    def on_train_end(self, logs: Any = None) -> None:
        BRIDGE.start_watch(self.model, active=False)


def fit(trained: Any, rows: list[list[float]], every: int = 1, **arguments: Any) -> list[GradientSample]:
    """Trains a batch of two equal rows for each entry, whose mean is the gradient."""
    x = np.repeat(np.asarray(rows, "float32"), BATCH, axis=0)
    y = np.zeros((len(x), 1), "float32")
    seen = Samples(every)
    trained.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[seen], **arguments)
    return seen.samples


def figures(sample: GradientSample) -> GradientFigures:
    return together(each for _, each in sample.gradients)


@pytest.mark.parametrize("scale", [None, 1.0, 1024.0, 2.0**20])
def test_the_norm_of_a_gradient_of_three_is_three_whatever_the_scale(scale: Optional[float]) -> None:
    trained = model(keras.optimizers.SGD(0.0, clipnorm=0.5))
    if scale is not None:
        BRIDGE.install_loss_scale(trained, LossScaleSettings(fixed=scale))
    (sample,) = fit(trained, [[3.0, 0.0, 0.0, 0.0]])
    assert [path for path, _ in sample.gradients] == ["weight"]
    seen = figures(sample)
    assert sample.loss_scale == scale and sample.step == 1
    assert seen.norm == pytest.approx(3.0, rel=1e-6)
    assert (seen.elements, seen.zeros, seen.underflow, seen.non_finite) == (4, 3, 0, 0)


def test_what_float16_would_lose_at_the_present_scale() -> None:
    rows = [[2.0**-25, 2.0**-20, 1.0, 2.0**17], [2.0**-25, 2.0**-20, 1.0, 0.0]]
    plain = [figures(sample) for sample in fit(model(), rows)]
    assert [(each.underflow, each.subnormal, each.overflow, each.zeros) for each in plain] == [
        (1, 1, 1, 0),
        (1, 1, 0, 1),
    ]
    assert plain[1].norm == pytest.approx(1.0)
    scaled = model()
    BRIDGE.install_loss_scale(scaled, LossScaleSettings(fixed=2.0**11))
    with_scale = figures(fit(scaled, rows)[1])
    assert (with_scale.underflow, with_scale.subnormal, with_scale.overflow) == (0, 0, 0)


def test_infinities_are_counted_and_left_out_of_the_norm() -> None:
    trained = model()
    BRIDGE.install_loss_scale(trained, LossScaleSettings(256.0))
    samples = fit(trained, [[3.0, 4.0, np.inf, np.nan], [3.0, 4.0, 0.0, 0.0]])
    assert [figures(sample).non_finite for sample in samples] == [2, 0]
    assert [figures(sample).norm for sample in samples] == [pytest.approx(5.0)] * 2
    assert [sample.loss_scale for sample in samples] == [256.0, 128.0]


def test_magnitudes_whose_squares_are_no_float32() -> None:
    (sample,) = fit(model(), [[3e-30, 4e-30, 0.0, 0.0]])
    assert figures(sample).norm == pytest.approx(5e-30, rel=1e-5)
    (sample,) = fit(model(), [[3e25, 4e25, 0.0, 0.0]])
    assert figures(sample).norm == pytest.approx(5e25, rel=1e-5)


@pytest.mark.parametrize(
    ("per_call", "every", "steps"),
    [(1, 1, [1, 2, 3, 4, 5, 6]), (1, 4, [1, 5]), (1, 100, [1]), (3, 1, [3, 6]), (3, 4, [3, 6]), (2, 5, [2, 6])],
)
def test_steps_that_are_looked_at(per_call: int, every: int, steps: list[int]) -> None:
    trained = model(steps_per_execution=per_call)
    rows = [[float(number), 0.0, 0.0, 0.0] for number in range(1, 7)]
    samples = fit(trained, rows, every)
    assert [sample.step for sample in samples] == steps
    assert [figures(sample).norm for sample in samples] == [pytest.approx(float(step)) for step in steps]
    again = fit(trained, rows, every)
    assert [sample.step for sample in again] == steps


def test_the_plain_function_has_nothing_of_it_and_is_traced_once() -> None:
    trained, plain = model(), model()
    rows = [[1.0, 2.0, 0.0, 0.0]] * 6
    fit(trained, rows, 4)
    x = np.repeat(np.asarray(rows, "float32"), BATCH, axis=0)
    plain.fit(x, np.zeros((12, 1), "float32"), batch_size=BATCH, shuffle=False, verbose=0)
    function, watched = trained.train_function.held_functions
    own, before = summarize_function(function), summarize_function(plain.train_function)
    assert own is not None and before is not None
    assert not own.operations.keys() - before.operations.keys()
    assert all(number <= before.operations[name] for name, number in own.operations.items())
    seen = summarize_function(watched)
    assert seen is not None and seen.count("IsFinite") and not own.count("IsFinite")
    assert [each.experimental_get_tracing_count() for each in outermost(trained.train_function)] == [1, 1]
    assert BRIDGE.reduction(trained) is None
    assert BRIDGE.watch_gradients(trained, 4) is False and BRIDGE.watch_gradients(trained, None) is True
    assert "make_train_function" not in vars(trained)


@pytest.mark.parametrize("per_call", [1, 2, 4])
def test_a_windows_average_is_what_is_looked_at(per_call: int) -> None:
    trained = model(steps_per_execution=per_call)
    BRIDGE.set_reduction(trained, every=2)
    samples = fit(trained, [[1.0, 0, 0, 0], [5.0, 0, 0, 0], [2.0, 0, 0, 0], [8.0, 0, 0, 0]], every=2)
    assert [figures(sample).norm for sample in samples] == (
        [pytest.approx(5.0)] if per_call == 4 else [pytest.approx(3.0), pytest.approx(5.0)]
    )
    assert BRIDGE.reduction(trained).updates == 2


def test_a_step_that_xla_compiles_has_the_same_figures() -> None:
    trained = model(jit_compile=True)
    BRIDGE.install_loss_scale(trained, LossScaleSettings(fixed=1024.0))
    samples = fit(trained, [[3.0, 0.0, 0.0, 4.0]] * 3, 2)
    assert [(sample.step, figures(sample).norm, figures(sample).zeros) for sample in samples] == [(1, 5, 2), (3, 5, 2)]


def test_an_eager_model_has_them_too() -> None:
    samples = fit(model(run_eagerly=True), [[3.0, 0.0, 0.0, 4.0]] * 3, 2)
    assert [(sample.step, figures(sample).norm) for sample in samples] == [(1, 5.0), (3, 5.0)]


def test_rows_that_a_sparse_gradient_names_twice_are_one_row() -> None:
    embedding = keras.layers.Embedding(8, 2, embeddings_initializer="ones", name="table")
    trained = keras.Sequential([keras.Input((3,), dtype="int32"), embedding, keras.layers.Flatten()])
    trained.compile(keras.optimizers.SGD(0.0), lambda _, y: tf.reduce_sum(y, axis=-1))
    seen = Samples(1)
    rows = np.asarray([[1, 1, 5]] * BATCH)
    trained.fit(rows, np.zeros((BATCH, 1)), batch_size=BATCH, verbose=0, callbacks=[seen])
    found = figures(seen.samples[0])
    assert (found.elements, found.zeros) == (16, 12)
    assert found.norm == pytest.approx(np.sqrt(2 * 2.0**2 + 2 * 1.0**2))


def test_a_train_step_of_ones_own_with_two_optimisers() -> None:
    class Two(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.other = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="other")
            self.second = keras.optimizers.SGD(0.0)

        def call(self, inputs: Any) -> Any:
            return self.weight(inputs) + self.other(2.0 * inputs)

        def train_step(self, batch: Any) -> dict[str, Any]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(batch[0]))
            first, second = self.weight.trainable_variables, self.other.trainable_variables
            gradients = tape.gradient(loss, first + second)
            self.optimizer.apply_gradients(zip(gradients[:1], first))
            self.second.apply_gradients(zip(gradients[1:], second))
            return {"loss": loss}

    trained = Two()
    trained(tf.zeros((1, 4)))
    trained.compile(keras.optimizers.SGD(0.0))
    if KERAS3:
        trained.second.build(trained.other.trainable_variables)
        trained.optimizer.build(trained.weight.trainable_variables)
    (sample,) = fit(trained, [[3.0, 4.0, 0.0, 0.0]])
    norms = {path: each.norm for path, each in sample.gradients}
    assert norms == {"weight": pytest.approx(5.0), "other": pytest.approx(10.0)}
