"""Data of two workers: fewer files than workers, and workers with different numbers of batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.launched import Launched, evidences, launch

pytestmark = pytest.mark.timeout(600)

WORKERS = ("--workers", "2", "--set", "strategy.kind=multi_worker_mirrored", "--set", "mixed_precision=null", "--json")
# Rows are numbers, the model adds nothing: the sum of what a worker saw is in its gradient, and the rows in its print.
TRAIN = """
import numpy as np
import tensorflow as tf
keras = tf.keras
name = f"records.{sys.argv[1]}"
with tf.io.TFRecordWriter(f"{name}.{index}") as writer:
    for row in range(8):
        writer.write(tf.io.serialize_tensor(tf.constant([float(row)])).numpy())
dataset = tf.data.TFRecordDataset([f"{name}.{index}"]).map(
    lambda row: tf.ensure_shape(tf.io.parse_tensor(row, tf.float32), [1])
)
if sys.argv[1] == "uneven":
    dataset = dataset.take(8 if index == 0 else 6).apply(
        tf.data.experimental.assert_cardinality(8 if index == 0 else 6))
dataset = dataset.batch(4 if sys.argv[1] == "files" else 2)


class Seen(keras.layers.Layer):
    def call(self, rows):
        tf.print("ROWS", tf.reshape(rows, [-1]), output_stream=sys.stdout)
        return rows


model = keras.Sequential([keras.Input((1,)), Seen(), keras.layers.Dense(1, use_bias=False)])
model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=False)
history = model.fit(dataset.map(lambda rows: (rows, rows)), epochs=2, verbose=0)
print("STEPS", int(model.optimizer.iterations.numpy()), flush=True)
"""


def rows(launched: Launched, worker: int) -> list[str]:
    """What a worker trained on, batch by batch."""
    lines = [line for line in launched.out if line.startswith(f"[worker {worker}] ROWS")]
    return [line.split("ROWS ", 1)[1] for line in lines]


def test_one_file_is_divided_by_rows(tmp_path: Path) -> None:
    done = launch(tmp_path, TRAIN, *WORKERS, arguments=("files",))
    assert done.code == 0, done.err[-40:]
    # Tracing may print nothing; two epochs of two batches of two rows each.
    assert rows(done, 0)[-4:] == ["[0 1]", "[4 5]", "[0 1]", "[4 5]"]
    assert rows(done, 1)[-4:] == ["[2 3]", "[6 7]", "[2 3]", "[6 7]"]
    for evidence in evidences(tmp_path, done).values():
        outcome = evidence["outcomes"]["sharding"]
        assert outcome["status"] == "APPLIED" and "1 file cannot be divided evenly" in outcome["message"]


def test_files_that_are_insisted_on_are_refused_on_all_workers(tmp_path: Path) -> None:
    done = launch(tmp_path, TRAIN, *WORKERS, "--set", "data.sharding=file", arguments=("files",))
    assert done.code == 2
    for worker in (0, 1):
        assert any(f"[worker {worker}]" in line and "1 file and 2 workers" in line for line in done.err), done.err[-40:]


@pytest.mark.parametrize("uneven", ("error", "cut"))
def test_workers_with_different_numbers_of_batches(tmp_path: Path, uneven: str) -> None:
    options = ("--set", "data.sharding=off", "--set", f"data.uneven={uneven}")
    done = launch(tmp_path, TRAIN, *WORKERS, *options, arguments=("uneven",))
    if uneven == "error":
        assert done.code != 0
        for worker in (0, 1):
            assert any(f"[worker {worker}]" in line and "[8, 6]" in line for line in done.err), done.err[-40:]
        assert not any("STEPS" in line for line in done.out)
        return
    assert done.code == 0, done.err[-40:]
    assert sorted(line for line in done.out if "STEPS" in line) == ["[worker 0] STEPS 12", "[worker 1] STEPS 12"]
    # A batch of two rows is the global batch: one row a step, and an epoch has them all.
    assert rows(done, 1) == [f"[{row}]" for row in range(6)] * 2
    assert rows(done, 0) == [f"[{row}]" for row in range(6)] * 2
