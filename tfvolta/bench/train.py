#!/usr/bin/env python3
"""Trains one workload, epoch by epoch; the script of a contender, and an ordinary script for ``tfvolta run``.

    tfvolta run --config configs/v100_32gb.yaml tfvolta/bench/train.py resnet50 --steps 30 --rounds 3

Started by hand it prints one JSON line an epoch. Started by ``tfvolta bench`` it tells the bench, and waits for its
turn after each epoch but the warm-up ones. Nothing here speeds up training: that is left to the config.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from typing import Any, Optional

from tfvolta.bench.turns import Turns
from tfvolta.bench.workloads.registry import find
from tfvolta.bench.workloads.workload import Sizes, Workload
from tfvolta.cluster import resolve

# Batches of synthetic data that are kept on the host and come again and again: so many, and no more than so many bytes.
MOST_BATCHES = 4
MOST_BYTES = 2**30


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("model")
    found.add_argument("--sizes", type=json.loads, default={}, help="sizes to change, as a JSON object")
    found.add_argument("--tiny", action="store_true")
    found.add_argument("--steps", type=int, default=20, help="of an epoch")
    found.add_argument("--warmup-epochs", type=int, default=2)
    found.add_argument("--rounds", type=int, default=7, help="measured epochs")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--data", help="FILE.npz or module:function instead of synthetic data")
    found.add_argument("--ranks", type=int, default=1, help="processes that share a batch and do not divide it")
    return found


class Teller:
    """What is told to the bench; printed where there is none. Ranks but the first tell nothing and wait for nobody."""

    def __init__(self, is_first: bool, environ: Any):
        self.is_first = is_first
        self._turns = Turns.of(environ) if is_first else None

    def say(self, kind: str, **values: Any) -> None:
        """Tells."""
        if self._turns is not None:
            self._turns.say(kind, **values)
        elif self.is_first:
            print(json.dumps({"kind": kind, **values}), flush=True)

    def wait(self) -> None:
        """Waits for the turn."""
        if self._turns is not None:
            self._turns.wait()


def make_clock(keras: Any, teller: Teller, arguments: argparse.Namespace, energy: Any) -> Any:
    """A callback that times epochs and takes turns.

    Training ends when the loss of the last batch has come from the device; the epoch, when callbacks before this one
    have done what they do at its end.
    """

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        """Times epochs, and between them waits."""

        batches = 0
        began = 0.0
        trained: Optional[float] = None
        joules: Optional[float] = None

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            """Reads the clock."""
            self.batches, self.trained = 0, None
            self.joules = energy.joules()
            self.began = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """Counts, and after the last batch waits for the device; several steps of one call end together."""
            self.batches = batch + 1
            if self.batches >= arguments.steps and logs and "loss" in logs:
                float(logs["loss"])
                self.trained = time.perf_counter() - self.began

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            """Tells what the epoch took, and waits for the next turn."""
            seconds = time.perf_counter() - self.began
            after = energy.joules()
            used = None if after is None or self.joules is None else after - self.joules
            loss = float((logs or {}).get("loss", math.nan))
            told = {"epoch": epoch, "seconds": seconds, "train_seconds": self.trained or seconds, "joules": used}
            teller.say("epoch", **told, steps=self.batches, loss=_finite(loss))
            if epoch + 1 >= arguments.warmup_epochs:
                teller.wait()

    return Clock()


def _finite(value: float) -> Any:
    """JSON has no NaN."""
    return value if math.isfinite(value) else str(value)


def dataset(tf: Any, workload: Workload, sizes: Sizes, arguments: argparse.Namespace) -> Any:
    """One epoch of whole batches with static shapes, which lie in host memory; in another order with another seed."""
    own = own_rows(sizes.batch, arguments.ranks)
    if arguments.data is not None:
        from tfvolta.bench.given import given_dataset

        found = given_dataset(tf, arguments.data, sizes.batch, arguments.steps)
        return found if arguments.ranks == 1 else found.map(lambda *both: tf.nest.map_structure(lambda x: x[own], both))
    import numpy as np

    row = sum(array.nbytes for array in tf.nest.flatten(workload.data(sizes, 1, 0)))
    batches = max(1, min(MOST_BATCHES, MOST_BYTES // (row * sizes.batch)))
    order = np.random.default_rng(arguments.seed).permutation(batches)
    features, labels = workload.data(sizes, batches * sizes.batch, 0)

    def stacked(array: Any) -> Any:
        return array.reshape(batches, sizes.batch, *array.shape[1:])[order, own]

    both = tf.nest.map_structure(stacked, (features, labels))
    return tf.data.Dataset.from_tensor_slices(both).cache().repeat().take(arguments.steps).prefetch(2)


def own_rows(batch: int, ranks: int) -> slice:
    """The rows of a batch that this process trains on, where several share it."""
    cluster = resolve(os.environ) if ranks > 1 else None
    each, rank = batch // ranks, 0 if cluster is None or cluster.rank is None else cluster.rank
    return slice(rank * each, (rank + 1) * each)


def is_first_rank() -> bool:
    """Whether this process is the one that speaks for all."""
    cluster = resolve(os.environ)
    return cluster is None or cluster.is_chief


def is_alone() -> bool:
    """Whether no other process trains with this one."""
    cluster = resolve(os.environ)
    return cluster is None or cluster.world_size == 1


def main() -> int:
    """Trains."""
    started = time.perf_counter()
    arguments = parser().parse_args()
    workload = find(arguments.model)
    sizes = workload.sized(arguments.sizes, arguments.tiny)
    teller = Teller(is_first_rank(), os.environ)
    import tensorflow as tf

    from tfvolta.measure.energy import EnergyCounter

    keras = tf.keras
    keras.utils.set_random_seed(arguments.seed)
    model = workload.build(keras, sizes)
    model.compile(**workload.compile_arguments(keras))
    data = dataset(tf, workload, sizes, arguments)
    clock = make_clock(keras, teller, arguments, EnergyCounter.of_process(os.environ))
    teller.say("built", seconds=time.perf_counter() - started, parameters=int(model.count_params()))
    epochs = arguments.warmup_epochs + arguments.rounds
    model.fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[clock])
    if teller.is_first:
        from tfvolta.bench.afterwards import figures, waiting_for_data

        waited = waiting_for_data(model, data) if is_alone() else {"diagnosis": "not measured in several processes"}
        teller.say("figures", input=waited, **figures(tf, model, sizes.batch // arguments.ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
