"""Small models, data and configs for the tests with Horovod's ranks, the same on every rank and stack."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.callbacks.build import session_callbacks
from tfvolta.config import load_config
from tfvolta.phase import Phase
from tfvolta.session import Origin, Session

STEPS, BATCH = 20, 8  # per rank
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(2 * STEPS * BATCH, 4).astype("float32")
Y = (X @ RANDOM.randn(4, 1)).astype("float32")
IDS = RANDOM.randint(0, 40, (2 * STEPS * BATCH, 3)).astype("int32")
# No id twice in a step of both ranks: plain Keras 3's Adam takes a row that is named twice for two updates.
UNIQUE_IDS = np.concatenate([RANDOM.permutation(1000)[: 2 * BATCH * 3] for _ in range(STEPS)]).reshape(-1, 3)
LEGACY = None if KERAS3 else keras.optimizers.legacy

__all__ = ["BATCH", "IDS", "KERAS3", "LEGACY", "STACK", "STEPS", "UNIQUE_IDS", "X", "Y", "keras", "tf"]


def session_of(**sections: Any) -> Session:
    """A session with Horovod that leaves no files behind; the meeting of all workers is tested elsewhere."""
    asked = {"strategy": {"kind": "horovod"}, "cluster": {"preflight": False}, "monitor": {"throughput": False}}
    session = Session(load_config(**{**asked, **sections}), origin=Origin(record=False))
    session.enter(Phase.BUILD)
    return session


def share(data: Any, rank: int, batch: int = BATCH) -> Any:
    """The rows that a rank trains, so that step k of two ranks has the rows of step k of one process."""
    return data.reshape(-1, 2, batch, *data.shape[1:])[:, rank].reshape(-1, *data.shape[1:])


def dense_model(seed: int = 7, width: int = 8, **last: Any) -> Any:
    """Two dense layers, four gradients."""
    keras.utils.set_random_seed(seed)
    hidden = keras.layers.Dense(width, activation="tanh", name="hidden")
    return keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(1, name="last", **last)])


def embedding_model(rows: int = 40) -> Any:
    """An embedding, whose gradient is sparse, and a dense layer."""
    keras.utils.set_random_seed(7)
    embedding = keras.layers.Embedding(rows, 4, name="embedding")
    layers = [keras.Input((3,), dtype="int32"), embedding, keras.layers.Flatten(), keras.layers.Dense(1, name="last")]
    return keras.Sequential(layers)


def train(
    model: Any, optimizer: Any, data: tuple[Any, Any], session: Optional[Session] = None, **arguments: Any
) -> dict[str, Any]:
    """Compiles and trains a model; over the ranks of a session, or alone without one. The history of the fit."""
    compiled = arguments.pop("compiled", {})
    model.compile(optimizer, keras.losses.MeanSquaredError(), **{"jit_compile": False, **compiled})
    return fit(model, data, session, **arguments)


def fit(model: Any, data: tuple[Any, Any], session: Optional[Session] = None, **arguments: Any) -> dict[str, Any]:
    """Trains a compiled model."""
    arguments = {"batch_size": BATCH if session is not None else 2 * BATCH, "shuffle": False, "verbose": 0, **arguments}
    callbacks = [*([] if session is None else session_callbacks(session)), *arguments.pop("callbacks", [])]
    history = model.fit(*data, callbacks=callbacks, **arguments)
    return {key: [float(value) for value in values] for key, values in history.history.items()}


def flat(model: Any) -> Any:
    """All weights in one row."""
    return np.concatenate([np.ravel(weights) for weights in model.get_weights()])


def iterations_of(model: Any) -> int:
    """The optimiser's count of steps."""
    iterations = model.optimizer.iterations
    return int(np.asarray(keras.ops.convert_to_numpy(iterations) if KERAS3 else iterations))


def relative(model: Any, reference: Any) -> float:
    """Largest difference of weights, relative to the largest weight."""
    own, other = flat(model), flat(reference)
    return float(np.abs(own - other).max() / np.abs(other).max())


def compared(
    make: Callable[[], Any],
    optimizer: Callable[[], Any],
    rank: int,
    session: Session,
    inputs: Any = X,
    **arguments: Any,
) -> dict[str, Any]:
    """Trains on both ranks and alone with the same global batches; what differs, and how the settings ended."""
    model, single = make(), make()
    train(model, optimizer(), (share(inputs, rank), share(Y, rank)), session, **arguments)
    train(single, optimizer(), (inputs, Y), **arguments)
    return {"difference": relative(model, single), **endings(session)}


def endings(session: Session) -> dict[str, Any]:
    """How the settings of Horovod's ended."""
    names = ("horovod_rank", "strategy", "communication", "horovod_optimizer", "jit")
    return {name: session.endings[name].outcome.to_json() for name in names if name in session.endings}


def error_of(action: Callable[[], Any]) -> str:
    """The message of the error that an action raises, with its class; empty where it raises none."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
