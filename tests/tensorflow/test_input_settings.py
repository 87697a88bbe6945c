"""How data are kept and fetched: what the section ``input`` puts around a data set, and what it refuses."""

from __future__ import annotations

import pathlib
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.stack import STACK, keras, tf
from tests.tensorflow.callbacks_models import compiled, rows
from tfvolta.bridge.input_part import state, with_options
from tfvolta.config import load_config
from tfvolta.data import cached
from tfvolta.data.fetching import Fetching, fetched, size_bytes
from tfvolta.errors import ConfigError, NoEffectError
from tfvolta.evidence.store import read
from tfvolta.outcome import Status
from tfvolta.script.run import ScriptRun
from tfvolta.session import Origin, Session

OPTIONS = {
    "private_threads": 3,
    "max_intra_op_threads": 1,
    "autotune": False,
    "ram_budget_mb": 64,
    "map_parallelization": False,
    "deterministic": False,
    "slack": True,
}


def plain(count: int = 12) -> Any:
    return tf.data.Dataset.from_tensor_slices(rows(count)).batch(4)


def values(dataset: Any) -> list[Any]:
    return [x.numpy().tolist() for x, _ in dataset]


def test_everything_is_there_and_the_batches_are_the_same() -> None:
    asked = Fetching("memory", 2, 3, {**OPTIONS, "deterministic": True})
    made = fetched(plain(), asked, "/CPU:0")
    seen = state(made)
    assert seen.options == asked.options
    assert (seen.cache, seen.device, seen.prefetch) == ("memory", "/CPU:0", 3)
    assert values(made) == values(made) == values(plain())


def at_once(dataset: Any) -> int:
    """Most calls of a function of the data at one time."""
    running, most, lock = [0], [0], threading.Lock()

    def call(number: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return number

    numbers = tf.data.Dataset.range(24).map(lambda i: tf.numpy_function(call, [i], tf.int64), num_parallel_calls=4)
    list(dataset(numbers))
    return most[0]


def test_private_threads_are_all_that_prepare_data() -> None:
    one = {"private_threads": 1}
    assert at_once(lambda numbers: numbers) > 1
    assert at_once(lambda numbers: fetched(numbers, Fetching(options=one))) == 1
    assert at_once(lambda numbers: fetched(numbers, Fetching(options=one, device_prefetch=2), "/CPU:0")) == 1
    behind = fetched(plain(), Fetching(device_prefetch=2), "/CPU:0")
    assert state(with_options(behind, one)).options == {}  # they reach nothing there


def test_a_cache_is_filled_once(tmp_path: pathlib.Path) -> None:
    for place in ("memory", str(tmp_path / "batches")):
        counted = tf.Variable(0)
        read_rows = plain().map(lambda x, y, counted=counted: (x + 0 * tf.cast(counted.assign_add(1), x.dtype), y))
        kept = cached(read_rows, place)
        assert values(kept) == values(kept) and int(counted) == 3
    assert list(tmp_path.glob("batches*"))


def drawn(dataset: Any) -> Any:
    return dataset.map(lambda x, y: (x + tf.random.normal(tf.shape(x)), y))


def called(dataset: Any) -> Any:
    return dataset.map(lambda x, y: (tf.numpy_function(lambda v: v, [x], tf.float32), y))


@pytest.mark.parametrize(
    ("make", "free", "reason"),
    [
        (lambda: plain().shuffle(4), None, "there is shuffle"),
        (lambda: drawn(plain()), None, "draws at random"),
        (lambda: called(plain()), None, "calls Python"),
        (lambda: plain().repeat(), None, "repeats for ever"),
        (lambda: plain(), 500, "an epoch of 1 MiB"),
    ],
)
def test_what_cannot_be_kept_says_why(make: Any, free: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        cached(make(), "memory", free)


def test_all_reasons_are_given_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        cached(plain().shuffle(4).repeat())
    assert len(caught.value.problems) == 2


def test_the_size_of_an_epoch() -> None:
    assert size_bytes(plain(12)) == 12 * 9 * 4
    assert size_bytes(plain(10)) == 10 * 9 * 4  # the smaller last batch is no whole one
    assert size_bytes(tf.data.Dataset.from_tensor_slices(rows(12))) == 12 * 9 * 4
    assert size_bytes(plain(12).filter(lambda x, y: True)) is None
    assert size_bytes(tf.data.Dataset.from_tensor_slices(["a"]).batch(1)) is None


SCRIPT = """
from tests.tensorflow.callbacks_models import compiled, dataset, rows
KIND = {kind!r}
if KIND == "arrays":
    compiled().fit(*rows(), batch_size=4, verbose=0)
else:
    compiled().fit(dataset(), epochs=2, verbose=0)
"""


def run(tmp_path: pathlib.Path, kind: str, **section: Any) -> Any:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(kind=kind), encoding="utf-8")
    config = load_config(input=section, run={"directory": str(tmp_path / "runs")}, monitor={"input": True})
    session = Session(config, stack=STACK, origin=Origin(script=str(script)))
    try:
        ScriptRun(session).run(str(script), [])
    finally:
        session.close()
    (folder,) = (tmp_path / "runs").iterdir()
    return read(folder)


def test_an_untouched_script_gets_them_and_they_are_seen(tmp_path: pathlib.Path) -> None:
    evidence = run(tmp_path, "dataset", prefetch="auto", cache="memory", **OPTIONS)
    for name in ("input_options", "input_prefetch", "input_cache"):
        assert evidence.outcomes[name].status is Status.APPLIED, evidence.outcomes[name]
    assert evidence.outcomes["input_options"].observed == OPTIONS
    assert evidence.measurements["input"]["bound"] in ("compute", "input")


def test_arrays_are_left_to_keras_and_that_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoEffectError, match="Keras makes a pipeline of its own from arrays"):
        run(tmp_path, "arrays", prefetch=2)


def test_a_script_of_its_own_is_seen_to_have_them() -> None:
    import tfvolta

    for data, status in ((plain().prefetch(2), Status.APPLIED), (plain(), Status.NO_EFFECT)):
        config = load_config(input={"prefetch": 2}, run={"strict": False})
        model, session = compiled(), Session(config, stack=STACK, origin=Origin(record=False))
        callbacks = tfvolta.callbacks.session_callbacks(session)
        if status is Status.NO_EFFECT:
            with pytest.warns(tfvolta.errors.NoEffectWarning, match="another one"):
                model.fit(data, verbose=0, callbacks=callbacks)
        else:
            model.fit(data, verbose=0, callbacks=callbacks)
        assert session.endings["input_prefetch"].outcome.status is status


def test_no_gpu_is_no_place_to_copy_to(tmp_path: pathlib.Path) -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    evidence = run(tmp_path, "dataset", device_prefetch=2, host_memory_limit_mb=256)
    for name in ("device_prefetch", "host_memory_limit"):
        assert evidence.outcomes[name].status is Status.NOT_APPLICABLE


def test_training_on_batches_that_were_copied_ahead_is_the_same() -> None:
    keras.utils.set_random_seed(3)
    losses = [
        compiled().fit(data, epochs=2, verbose=0).history["loss"]  # neither says how many batches it has
        for data in (plain().filter(lambda x, y: True), fetched(plain(), Fetching(device_prefetch=2), "/CPU:0"))
    ]
    np.testing.assert_array_equal(losses[0], losses[1])
