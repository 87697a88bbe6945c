"""The kernels' settings in a fit on each stack: how they end, what they say, and that a default config is no error."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras
from tfvolta.bridge import bridge_for_stack
from tfvolta.errors import NoEffectError
from tfvolta.session import Origin, Session

layers = keras.layers
BRIDGE = bridge_for_stack(STACK)
X = np.random.default_rng(0).normal(size=(16, 4, 4, 3)).astype("float32")
ONLY_KERAS3 = pytest.mark.skipif(not KERAS3, reason="Keras 2 has these kernels by itself")


@pytest.fixture(autouse=True)
def _plain_policy() -> Iterator[None]:
    yield
    BRIDGE.set_global_policy("float32")


def model(*others: Any) -> Any:
    keras.utils.set_random_seed(1)
    parts = [layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm"), *others]
    made = keras.Sequential([keras.Input((4, 4, 3)), *parts, layers.Flatten(), layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made


def fit(made: Any, strict: bool = True, **sections: Any) -> Session:
    """Trains for four batches under a config; the session that holds how its settings ended."""
    config = tfvolta.load_config(run={"strict": strict}, monitor={"throughput": False, "memory": False}, **sections)
    session = Session(config, origin=Origin(record=False))
    callbacks = tfvolta.callbacks.session_callbacks(session)
    made.fit(X, X[:, 0, 0, :1], batch_size=4, verbose=0, callbacks=callbacks)
    return session


def ending(session: Session, name: str) -> tuple[str, str]:
    outcome = session.endings[name].outcome
    return outcome.status.value, outcome.message


@pytest.mark.parametrize("asked", ["auto", "on"])
def test_both_settings_are_no_error_on_any_stack(asked: str) -> None:
    session = fit(model(), kernels={"fused_batch_norm": asked, "cudnn_rnn": "auto"})
    status, message = ending(session, "fused_batch_norm")
    assert ending(session, "cudnn_rnn")[0] == "NOT_APPLICABLE"
    if KERAS3 and asked == "on":
        assert (status, message) == ("APPLIED", "The traced step has 1 FusedBatchNormV3[float32] for 1 layers.")
    else:
        assert status == "NOT_APPLICABLE" and ("no GPU" if KERAS3 else "by itself") in message


@ONLY_KERAS3
def test_it_goes_with_the_retrofit_and_its_islands() -> None:
    mixed: dict[str, Any] = {"policy": "mixed_float16", "float32_layers": ["norm"]}
    made = model(layers.BatchNormalization(name="half"))
    session = fit(made, kernels={"fused_batch_norm": "on"}, mixed_precision=mixed)
    assert session.endings["fused_batch_norm"].outcome.observed["operations"] == {
        "FusedBatchNormV3[float16]": 1,
        "FusedBatchNormV3[float32]": 1,
    }
    assert session.undo()["fused_batch_norm"]
    assert all("call" not in layer.__dict__ for _, layer in BRIDGE.layers(made))


@ONLY_KERAS3
def test_what_stays_is_said_layer_by_layer() -> None:
    made = model(layers.BatchNormalization(name="renormed", renorm=True))
    status, message = ending(fit(made, kernels={"fused_batch_norm": "on"}), "fused_batch_norm")
    assert status == "APPLIED"
    assert "Left to Keras: renormed (renorm=True: batch renormalisation has no fused operation)." in message


@ONLY_KERAS3
def test_a_model_without_such_a_layer_is_an_error_where_it_was_asked_for() -> None:
    made = keras.Sequential([keras.Input((4, 4, 3)), layers.Flatten(), layers.Dense(1)])
    made.compile("sgd", "mse")
    with pytest.raises(NoEffectError, match="The model has no such layer") as caught:
        fit(made, kernels={"fused_batch_norm": "on"})
    assert "kernels.fused_batch_norm" in str(caught.value)


@ONLY_KERAS3
def test_off_leaves_keras_alone_and_sees_what_an_earlier_fit_left() -> None:
    made = model()
    assert ending(fit(made, kernels={"fused_batch_norm": "off"}), "fused_batch_norm")[0] == "APPLIED"
    earlier = fit(made, kernels={"fused_batch_norm": "on"})
    with pytest.raises(NoEffectError, match="an earlier fit"):
        fit(made, kernels={"fused_batch_norm": "off"})
    earlier.undo()
    assert ending(fit(made, kernels={"fused_batch_norm": "off"}), "fused_batch_norm")[0] == "APPLIED"


@ONLY_KERAS3
def test_on_inside_a_step_that_xla_compiles() -> None:
    session = fit(model(), xla={"jit": "model"}, kernels={"fused_batch_norm": "on"})
    assert ending(session, "fused_batch_norm")[0] == ending(session, "jit")[0] == "APPLIED"


@ONLY_KERAS3
def test_a_sequence_without_cudnn_is_not_applicable() -> None:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((4, 4, 3)), layers.Reshape((4, 12)), layers.LSTM(3), layers.Dense(1)])
    made.compile("sgd", "mse")
    status, message = ending(fit(made, kernels={"cudnn_rnn": "on"}), "cudnn_rnn")
    assert status == "NOT_APPLICABLE" and "no GPU" in message


def test_the_callback_alone() -> None:
    callback = tfvolta.callbacks.Kernels(fused_batch_norm="on", cudnn_rnn=None)
    model().fit(X, X[:, 0, 0, :1], verbose=0, callbacks=[callback])
    wanted = "APPLIED" if KERAS3 else "NOT_APPLICABLE"
    assert ending(callback.session, "fused_batch_norm")[0] == wanted
