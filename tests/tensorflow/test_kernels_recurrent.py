"""LSTM and GRU layers of Keras 3 through cuDNN's operations, which a stand-in plays here, against Keras's own loop."""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterator

import numpy as np
import pytest

from tests.stack import KERAS3, keras
from tests.tensorflow.cudnn_stand_in import StandIn

if not KERAS3:
    pytest.skip("Keras 2 chooses cuDNN's sequences by itself", allow_module_level=True)

from tests.tensorflow.kernel_cases import (
    BATCH,
    BRIDGE,
    FEATURES,
    KINDS,
    MASKS,
    ON_CUDNN,
    RANDOM,
    RIGHT,
    TIME,
    UNITS,
    X,
    equal,
    layer,
    recurrent_passes,
    served,
)
from tfvolta.bridge import cudnn_sequence, keras3_cudnn_rnn
from tfvolta.bridge.kernel_records import RECURRENT

layers = keras.layers


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A machine that has cuDNN, as far as the bridge sees it; the models are made before Keras could see it."""
    stand_in = StandIn()
    monkeypatch.setattr(cudnn_sequence, "operation", stand_in.operation)
    monkeypatch.setattr(keras3_cudnn_rnn, "has_cudnn", lambda: True)
    monkeypatch.setattr(sys.modules["keras.src.backend.tensorflow.rnn"], "_is_gpu_available", lambda: True)
    yield stand_in
    BRIDGE.set_global_policy("float32")


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mask", sorted(MASKS))
def test_masks_equal_keras(kind: str, mask: str, cudnn: StandIn) -> None:
    arguments = {"return_sequences": True, "return_state": True}
    wanted = recurrent_passes(layer(kind, use_cudnn=False, **arguments), MASKS[mask])
    equal(recurrent_passes(served(layer(kind, **arguments)), MASKS[mask]), wanted, 1e-5)
    on_cudnn = [("time first" if mask == "none" else "batch first", kind, "float32")]
    assert cudnn.calls == (on_cudnn if mask in ON_CUDNN else [])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mask", ["none", "right", "empty row"])
def test_the_last_output_equals_keras(kind: str, mask: str, cudnn: StandIn) -> None:
    wanted = recurrent_passes(layer(kind, use_cudnn=False), MASKS[mask])
    equal(recurrent_passes(served(layer(kind)), MASKS[mask]), wanted, 1e-5)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mask", sorted(MASKS))
def test_backwards_equals_keras(kind: str, mask: str, cudnn: StandIn) -> None:
    arguments = {"return_sequences": True, "return_state": True, "go_backwards": True}
    wanted = recurrent_passes(layer(kind, use_cudnn=False, **arguments), MASKS[mask])
    equal(recurrent_passes(served(layer(kind, **arguments)), MASKS[mask]), wanted, 1e-5)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mask", ["none", "right"])
def test_float16_runs_in_float16(kind: str, mask: str, cudnn: StandIn) -> None:
    wanted = recurrent_passes(layer(kind, "mixed_float16", use_cudnn=False, return_sequences=True), MASKS[mask])
    found = recurrent_passes(served(layer(kind, "mixed_float16", return_sequences=True)), MASKS[mask])
    equal(found[:1], wanted[:1], 5e-3)  # both round each single operation to float16, in another order
    equal(found[1:], wanted[1:], 1e-2)
    assert {dtype for _, _, dtype in cudnn.calls} == {"float16"}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_initial_states(kind: str, cudnn: StandIn) -> None:
    states = [RANDOM.normal(size=(BATCH, UNITS)).astype("float32") for _ in range(2 if kind == "lstm" else 1)]
    wanted = recurrent_passes(layer(kind, use_cudnn=False), None, states=states)
    equal(recurrent_passes(served(layer(kind)), None, states=states), wanted, 1e-5)


def test_the_same_inputs_are_dropped(cudnn: StandIn) -> None:
    plain, fast = (layer("lstm", dropout=0.5, seed=3, **more) for more in ({"use_cudnn": False}, {}))
    equal(recurrent_passes(served(fast), None), recurrent_passes(plain, None), 1e-5)
    equal(recurrent_passes(fast, None, training=False), recurrent_passes(plain, None, training=False), 1e-5)
    assert len(cudnn.calls) == 2


def test_a_state_goes_on_from_batch_to_batch(cudnn: StandIn) -> None:
    plain, fast = (layer("gru", stateful=True, **more) for more in ({"use_cudnn": False}, {}))
    served(fast)
    for _ in range(2):
        np.testing.assert_allclose(fast(X).numpy(), plain(X).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fast.states[0].numpy(), plain.states[0].numpy(), rtol=1e-5, atol=1e-6)


def both_ways(kind: str, **arguments: Any) -> Any:
    keras.utils.set_random_seed(3)
    made = layers.Bidirectional(KINDS[kind](UNITS, return_sequences=True, return_state=True, **arguments))
    made.build((BATCH, TIME, FEATURES))
    return made


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mask", ["none", "right", "left"])
def test_bidirectional_equals_keras(kind: str, mask: str, cudnn: StandIn) -> None:
    wanted = recurrent_passes(both_ways(kind, use_cudnn=False), MASKS[mask])
    equal(recurrent_passes(served(both_ways(kind)), MASKS[mask]), wanted, 1e-5)
    assert len(cudnn.calls) == (2 if mask in ON_CUDNN else 0)


def network(use_cudnn: Any) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((TIME,), dtype="int32")
    x = layers.Embedding(9, FEATURES, mask_zero=True)(inputs)
    x = layers.LSTM(UNITS, return_sequences=True, use_cudnn=use_cudnn)(x)
    x = layers.GRU(UNITS, use_cudnn=use_cudnn)(x)
    return keras.Model(inputs, layers.Dense(1)(x))


def test_a_stack_trains_the_same_and_is_saved_as_keras_s_own(cudnn: StandIn, tmp_path: Any) -> None:
    tokens = np.where(RIGHT, RANDOM.integers(1, 9, (BATCH, TIME)), 0)
    tokens = np.concatenate([tokens, tokens[:, ::-1]])  # the second batch is padded on the left
    y = RANDOM.normal(size=(2 * BATCH, 1)).astype("float32")
    plain, fast = network(False), network("auto")
    losses = []
    for model in (plain, fast):
        model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
        if model is fast:
            change = BRIDGE.install_kernel(model, RECURRENT)
        losses.append(model.fit(tokens, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history["loss"])
    assert [path.split("_")[0] for path in change.served] == ["lstm", "gru"]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(fast.predict(tokens, verbose=0), plain.predict(tokens, verbose=0), rtol=1e-3, atol=1e-5)
    fast.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for mine, keras_own in zip(loaded.get_weights(), fast.get_weights()):
        np.testing.assert_array_equal(mine, keras_own)
    assert "inner_loop" not in loaded.layers[2].__dict__
    BRIDGE.undo_kernel(fast, change)
    assert all("inner_loop" not in each.__dict__ for _, each in BRIDGE.layers(fast))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: layers.SimpleRNN(3), "SimpleRNN"),
        (lambda: layers.RNN(layers.LSTMCell(3)), "LSTMCell"),
        (lambda: layers.LSTM(3, use_cudnn=False), "use_cudnn=False"),
        (lambda: layers.LSTM(3, recurrent_dropout=0.2), "recurrent_dropout=0.2"),
        (lambda: layers.LSTM(3, activation="relu"), "tanh"),
        (lambda: layers.GRU(3, reset_after=False), "reset_after"),
        (lambda: layers.LSTM(3, use_bias=False), "bias"),
        (lambda: layers.LSTM(3, unroll=True), "unroll"),
        (lambda: layers.LSTM(3, dropout=0.2, implementation=1), "implementation=1"),
    ],
)
def test_what_cudnn_does_not_have_stays_with_the_reason(make: Callable[[], Any], word: str, cudnn: StandIn) -> None:
    change = BRIDGE.install_kernel(keras.Sequential([keras.Input((TIME, FEATURES)), make()]), RECURRENT)
    assert not change.served and word in change.left[0].reason


def test_without_a_gpu_nothing_is_served() -> None:
    change = BRIDGE.install_kernel(keras.Sequential([keras.Input((TIME, FEATURES)), layers.LSTM(3)]), RECURRENT)
    assert not change.served and "no GPU" in change.left[0].reason
