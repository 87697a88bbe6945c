"""A chief with two workers and two parameter servers, in which much is trained; prints what it saw as one document.

Run as ``python -m tests.processes.parameter_server_runs together|lost`` in every task of a cluster: ``build_strategy``
serves in workers and parameter servers, and returns in the chief. A line ``KILL worker 1`` asks whoever started the
processes to kill one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any, Callable

import numpy as np

import tfvolta
from tests.stack import KERAS3, STACK, keras, tf
from tfvolta.bridge import bridge_for
from tfvolta.bridge.graphs import tf_functions
from tfvolta.bridge.served_variables import whole
from tfvolta.config.schema import Config
from tfvolta.errors import TfvoltaError
from tfvolta.strategy import coordination
from tfvolta.strategy.registry import find

ROWS, STEPS, BATCH = 40000, 20, 16
RANDOM = np.random.RandomState(0)
IDS = RANDOM.randint(0, ROWS, (STEPS * BATCH, 3))
X = RANDOM.randn(STEPS * BATCH, 6).astype("float32")
Y = (X @ RANDOM.randn(6, 1)).astype("float32")


def config(**cluster: Any) -> Config:
    strategy = {"kind": "parameter_server", "shard_above_mb": 1}
    return Config.model_validate({"strategy": strategy, "cluster": cluster, "run": {"directory": "runs"}})


def make_model() -> Any:
    """A table of 1.2 MiB, above the limit, and layers below it."""
    keras.utils.set_random_seed(7)
    ids, numbers = keras.Input((3,), dtype="int32"), keras.Input((6,))
    table = keras.layers.Flatten()(keras.layers.Embedding(ROWS, 8, name="table")(ids))
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")(numbers)
    return keras.Model([ids, numbers], keras.layers.Dense(1, name="out")(keras.layers.Concatenate()([table, hidden])))


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices(((IDS, X), Y)).batch(BATCH)


def put(model: Any, values: list[Any]) -> None:
    """Gives a model the first weights of another; Keras 2 draws those of each shard by itself."""
    wholes = list({id(holder(weight)): holder(weight) for weight in model.weights}.values())
    for variable, value in zip(wholes, values):
        variable.assign(value)


def holder(weight: Any) -> Any:
    return weight if KERAS3 else whole(weight)


def values_of(model: Any) -> list[Any]:
    """Every weight in one piece."""
    wholes = {id(holder(weight)): holder(weight) for weight in model.weights}.values()
    return [np.asarray(variable) if KERAS3 else variable.numpy() for variable in wholes]


def pair(strategy: Any, make_optimizer: Callable[[], Any], **arguments: Any) -> tuple[Any, Any]:
    """A served model and a local one, with the same first weights."""
    local = make_model()
    with strategy.scope():
        served = make_model()
        put(served, values_of(local))
        served.compile(make_optimizer(), "mse", metrics=["mae"], **arguments)
    local.compile(make_optimizer(), "mse", metrics=["mae"])
    return served, local


def difference(served: Any, local: Any) -> float:
    """Largest difference of two weights, relative to the largest weight."""
    pairs = list(zip(values_of(served), values_of(local)))
    assert len(pairs) == len(local.weights)
    return float(max(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6) for a, b in pairs))


def sgd() -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9)


def calm() -> Any:
    """With two workers a gradient may be many updates old on a busy machine; a smaller rate bears it."""
    return keras.optimizers.SGD(0.01, momentum=0.9)


class Batches(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """Counts its batch hooks, and asks for a kill at one of them. Keras 2 takes it for one that wants no numbers."""

    def __init__(self, kill: str = "") -> None:
        super().__init__()
        self._supports_tf_logs = True
        self.seen: list[int] = []
        self.keys: set[str] = set()
        self.kill = kill

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(batch)
        if KERAS3:
            self.keys |= set(logs)
        if self.kill and len(self.seen) == 5:
            ask_to_kill(self.kill)


def ask_to_kill(name: str) -> None:
    """Has a process killed, and waits until its connection is seen to break."""
    print(f"KILL {name}", flush=True)
    until = time.monotonic() + 60
    while name not in coordination.present().lost and time.monotonic() < until:
        time.sleep(0.01)


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except TfvoltaError as error:
        return str(error)
    return "accepted"


def two_workers(asked: Config, strategy: Any) -> dict[str, Any]:
    """Two workers at once: nothing is counted twice or lost, and the loss falls."""
    served, local = pair(strategy, calm)
    batches = Batches()
    own = tfvolta.build_callbacks(asked, served)
    history = served.fit(dataset(), epochs=6, verbose=0, callbacks=[*own, batches]).history
    local.fit(dataset(), epochs=6, verbose=0)
    put(local, values_of(served))
    validation = served.evaluate(dataset(), verbose=0, return_dict=True)
    outcome = find("parameter_server").verify(strategy, asked, served)
    return {
        "loss": history["loss"],
        "iterations": int(served.optimizer.iterations),
        "batches": len(batches.seen),
        "keys": sorted(batches.keys),
        "evaluate": [validation, local.evaluate(dataset(), verbose=0, return_dict=True)],
        "predict": float(np.abs(served.predict([IDS, X], verbose=0) - local.predict([IDS, X], verbose=0)).max()),
        "examples": bridge_for(served).examples_seen(served),
        "outcome": outcome.to_json(),
        "session": {name: ending.outcome.to_json() for name, ending in own[0].session.endings.items()},
        "saved": saved(served, local),
        "gathers": gathers(served),
    }


def saved(served: Any, local: Any) -> dict[str, Any]:
    """The model in a file, loaded without any parameter server, and trained on there."""
    with tempfile.TemporaryDirectory() as folder:
        served.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    return {
        "difference": difference(loaded, local),
        "iterations": int(loaded.optimizer.iterations),
        "slots": [slot_sum(loaded), slot_sum(served)],
    }


def slot_sum(model: Any) -> float:
    """Sum of an optimizer's variables but its count and rate, whatever pieces they are in."""
    own = model.optimizer.variables
    arrays = [np.asarray(slot) if KERAS3 else slot.numpy() for slot in (own() if callable(own) else own)]
    return float(sum(np.abs(array).sum() for array in arrays if array.ndim))


def gathers(served: Any) -> int:
    """Look-ups of rows on the servers in the traced step."""
    graphs = [c.graph for f in tf_functions(served.train_function) for c in f._list_all_concrete_functions()]
    return max(sum(op.type == "ResourceGather" for op in graph.get_operations()) for graph in graphs) if graphs else -1


def kinds_of_data(strategy: Any) -> dict[str, Any]:
    """What ``fit`` is given besides a data set: arrays, a share for validation, a generator, data of unknown size."""
    served, _ = pair(strategy, sgd)
    found: dict[str, Any] = {}
    arrays = served.fit([IDS, X], Y, batch_size=BATCH, epochs=2, verbose=0, validation_data=([IDS, X], Y)).history
    found["arrays"] = {"keys": sorted(arrays), "steps": int(served.optimizer.iterations)}
    local = make_model()
    local.compile(sgd(), "mse", metrics=["mae"])
    put(local, values_of(served))
    # Fewer batches than Keras makes shares.
    few = {"verbose": 0, "return_dict": True, "batch_size": 2 * len(Y) // 5}
    found["few"] = [each.evaluate([IDS, X], Y, **few) for each in (served, local)]
    expected = local.evaluate([IDS, X], Y, verbose=0, return_dict=True)
    found["validation"] = abs(arrays["val_loss"][-1] - expected["loss"])
    before = int(served.optimizer.iterations)
    data = tf.data.Dataset.from_generator(
        lambda: (((IDS[i : i + BATCH], X[i : i + BATCH]), Y[i : i + BATCH]) for i in range(0, 5 * BATCH, BATCH)),
        output_signature=(
            (tf.TensorSpec((None, 3), tf.int64), tf.TensorSpec((None, 6), tf.float32)),
            tf.TensorSpec((None, 1), tf.float32),
        ),
    )
    found["generator"] = refused(lambda: served.fit(data, verbose=0))
    found["generator steps"] = int(served.optimizer.iterations) - before
    unknown = dataset().filter(lambda x, y: True)
    found["unknown"] = refused(lambda: served.fit(unknown, verbose=0))
    found["endless"] = refused(lambda: served.fit(dataset().repeat(), steps_per_epoch=3, verbose=0))
    return found


def refusals(strategy: Any) -> dict[str, str]:
    """What would train wrongly."""
    found = {}
    cases: dict[str, Callable[[], Any]] = {
        "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=1.0),
        "adafactor": lambda: keras.optimizers.Adafactor(0.1),
    }
    for name, make in cases.items() if KERAS3 else ():
        served, _ = pair(strategy, make)
        found[name] = refused(lambda model=served: model.fit(dataset(), verbose=0))  # type: ignore[misc]
    if KERAS3:
        served, _ = pair(strategy, sgd, run_eagerly=True)
        found["eager"] = refused(lambda: served.fit(dataset(), verbose=0))
        served, _ = pair(strategy, lambda: keras.optimizers.LossScaleOptimizer(sgd()))
        found["loss scale"] = refused(lambda: served.fit(dataset(), verbose=0))
        served, _ = pair(strategy, sgd, jit_compile=True)
        found["jit"] = refused(lambda: served.fit(dataset(), verbose=0))
    else:
        try:
            with strategy.scope():
                keras.mixed_precision.LossScaleOptimizer(sgd()).build([tf.Variable(1.0)])
                found["loss scale"] = "accepted"
        except ValueError as error:
            found["loss scale"] = str(error)
    other = config().model_copy(update={"strategy": config().strategy.model_copy(update={"shard_above_mb": 2})})
    found["twice"] = refused(lambda: tfvolta.build_strategy(other))
    return found


def together() -> dict[str, Any]:
    asked = config()
    strategy = tfvolta.build_strategy(asked)
    return {
        "stack": STACK,
        "two workers": two_workers(asked, strategy),
        "data": kinds_of_data(strategy),
        "refusals": refusals(strategy),
    }


def lost() -> dict[str, Any]:
    """A worker is killed while it trains; the other one ends the work, and then trains as one process does."""
    asked = config(preflight=False, preflight_timeout_seconds=60.0)
    strategy = tfvolta.build_strategy(asked)
    served, _ = pair(strategy, sgd)
    batches = Batches("worker 1")
    history = served.fit(dataset(), epochs=3, verbose=0, callbacks=[batches]).history
    found: dict[str, Any] = {
        "lost": list(coordination.present().lost),
        "batches": len(batches.seen),
        "iterations": int(served.optimizer.iterations),
        "loss": history["loss"],
        "exact": exact(strategy),
    }
    coordination.present()._seconds = 1.0  # by then it is known that nobody comes back
    started = time.monotonic()
    found["nobody"] = refused(lambda: served.fit(dataset(), epochs=3, verbose=0, callbacks=[Batches("worker 0")]))
    found["seconds"] = time.monotonic() - started
    return found


def exact(strategy: Any) -> dict[str, Any]:
    """With one worker: weights after twenty steps, losses and metrics, against one process on the same batches."""
    found = {}
    cases = {
        "sgd": lambda: keras.optimizers.SGD(0.05),
        "momentum": sgd,
        "adam": lambda: keras.optimizers.Adam(0.01, global_clipnorm=1.0),
    }
    for name, make in cases.items():
        served, local = pair(strategy, make)
        histories = [model.fit(dataset(), epochs=1, verbose=0).history for model in (served, local)]
        found[name] = {"difference": difference(served, local), "losses": [each["loss"][0] for each in histories]}
    served, local = pair(strategy, sgd, steps_per_execution=8)  # twenty steps are no multiple of it
    served.fit(dataset(), epochs=1, verbose=0)
    local.fit(dataset(), epochs=1, verbose=0)
    found["steps_per_execution"] = {"difference": difference(served, local), "losses": [0, 0]}
    return found


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*`shuffle=True` was passed.*")
    try:
        print("RESULT " + json.dumps({"together": together, "lost": lost}[sys.argv[1]](), default=float), flush=True)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
