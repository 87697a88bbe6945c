"""A step of XLA's that skips an update by selection, against one that does so by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfvolta.bridge.either as either_module
from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for, bridge_for_stack
from tfvolta.bridge.base import LossScaleSettings
from tfvolta.bridge.either import either
from tfvolta.bridge.scale_bounds import ScaleBounds

BRIDGE = bridge_for_stack(STACK)
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "momentum, clipped": lambda: keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=1.0),
    "averaged": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5, weight_decay=0.01),
}
if not KERAS3:
    OPTIMIZERS["legacy adam"] = lambda: keras.optimizers.legacy.Adam(0.01)


def _model(make: Any, compiled: bool) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(9, 3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(make(), "mse", jit_compile=compiled)
    bounds = ScaleBounds(floor=4.0, ceiling=64.0, hysteresis=2)
    BRIDGE.install_loss_scale(model, LossScaleSettings(initial=32.0, growth_steps=2, bounds=bounds))
    return model


def _trained(make: Any, compiled: bool) -> tuple[Any, list[Any]]:
    """Eight steps of which the third, sixth and seventh overflow; state after each."""
    model = _model(make, compiled)
    numbers = np.random.default_rng(3)
    seen = []
    for step in range(8):
        x = numbers.integers(0, 9, (2, 4)).astype("int32")
        y = np.full((2, 1), np.inf if step in (2, 5, 6) else 0.5, "float32")
        model.train_on_batch(x, y)
        counts, state = bridge_for(model).step_counts(model), bridge_for(model).loss_scale(model.optimizer)
        weights = [np.array(value) for value in model.get_weights()]
        variables = model.optimizer.variables
        slots = [each.numpy() for each in (variables() if callable(variables) else variables)]
        seen.append((weights, slots, (counts.applied, counts.skipped), state))
    return model, seen


def _conditions(model: Any) -> int:
    operations = bridge_for(model).train_graph(model).operations
    return sum(count for name, count in operations.items() if name.split("[")[0] in ("If", "StatelessIf"))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_compiled_step_selects_what_a_condition_decides(name: str) -> None:
    plain, wanted = _trained(OPTIMIZERS[name], compiled=False)
    model, found = _trained(OPTIMIZERS[name], compiled=True)
    assert _conditions(plain) > 0 and _conditions(model) == 0
    for mine, other in zip(found, wanted):
        for one, two in zip((*mine[0], *mine[1]), (*other[0], *other[1])):
            np.testing.assert_allclose(one, two, rtol=2e-5, atol=1e-6)
        assert mine[2:] == other[2:]
    assert found[-1][2] == (5, 3) and all(np.isfinite(value).all() for value in found[-1][0])


def test_branches_begin_alike_and_the_last_write_counts() -> None:
    first, second = tf.Variable(1.0), tf.Variable([2, 3])

    def taken() -> None:
        first.assign_add(1.0)
        first.assign(first * 10.0)

    def otherwise() -> None:
        first.assign_sub(1.0)
        second.assign(second * 2)

    @tf.function(jit_compile=True)
    def step(chosen: Any) -> Any:
        either(chosen, taken, otherwise)
        return first + 0.0

    assert float(step(tf.constant(True))) == 20.0 and second.numpy().tolist() == [2, 3]
    assert float(step(tf.constant(False))) == 19.0 and second.numpy().tolist() == [4, 6]


def test_a_condition_stays_where_a_selection_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    table, count = tf.Variable(tf.zeros((4, 2))), tf.Variable(0)
    rows = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), dense_shape=tf.constant([4, 2]))

    def types(branch: Any, compiled: bool = True) -> set[str]:
        step = tf.function(lambda chosen: either(chosen, branch, lambda: count.assign_add(1)), jit_compile=compiled)
        graph = step.get_concrete_function(tf.TensorSpec((), tf.bool)).graph
        return {operation.type for operation in graph.get_operations()}

    def writes_rows() -> None:
        table.scatter_add(rows)

    def says() -> None:
        count.assign_add(1)
        tf.print("applied")

    assert "If" not in types(writes_rows) and "If" in types(writes_rows, compiled=False)
    monkeypatch.setattr(either_module, "_TABLE_BYTES", 16)
    assert "If" in types(writes_rows)
    assert "If" in types(says)
