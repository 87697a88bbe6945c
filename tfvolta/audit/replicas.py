"""What several replicas make of layers and optimizers that were written for one."""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, Optional, Sequence

from tfvolta.audit.finding import Finding
from tfvolta.cluster import resolve
from tfvolta.cluster.tf_config import VARIABLE
from tfvolta.errors import ClusterError
from tfvolta.strategy.batch_norm import SYNCHRONIZE, audit_batch_norm, why_batch_norm

_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


def replicas_of(model: Any) -> int:
    """Number of replicas that a model trains on."""
    return int(model.distribute_strategy.num_replicas_in_sync)


def cluster_left_alone(model: Any, environ: Optional[Mapping[str, str]] = None) -> Optional[Finding]:
    """Finds TF_CONFIG of several workers over a strategy that does not know them: each trains a model of its own.

    Args:
        model: Any Keras model.
        environ: This process's environment when None.
    """
    environ = os.environ if environ is None else environ
    if VARIABLE not in environ or _horovod_runs():
        return None
    try:
        cluster = resolve({VARIABLE: environ[VARIABLE]})
    except ClusterError as error:
        wrong = error.problems[0]
        what, why = f"{VARIABLE}={wrong.received}", f"{wrong.why}; TensorFlow trains alone with it"
        return Finding("cluster_left_alone", what, (), why, wrong.fix, refuses=True)
    if cluster is None or cluster.has_parameter_servers or cluster.task_type == "evaluator":
        return None
    replicas = replicas_of(model)
    if replicas >= cluster.num_workers:
        return None
    return Finding(
        rule="cluster_left_alone",
        what=f"{VARIABLE} names {cluster.num_workers} workers, and the model trains on {replicas} "
        f"replica{'s' * (replicas > 1)}, in this process alone",
        layers=(),
        why="each worker trains a model of its own on all the data, and nothing else says so",
        fix="make and compile the model inside the scope of MultiWorkerMirroredStrategy (strategy.kind: "
        f"multi_worker_mirrored), or unset {VARIABLE}",
        refuses=True,
    )


def _horovod_runs() -> bool:
    """Whether Horovod joins the processes, which looks at no TF_CONFIG."""
    modules = (sys.modules.get(name) for name in ("horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras"))
    return any(module is not None and module.is_initialized() for module in modules)


def batch_below_replicas(model: Any) -> Optional[Finding]:
    """Finds a running fit whose global batch has fewer rows than the strategy has replicas: some would get none."""
    replicas = replicas_of(model)
    if replicas < 2 or not hasattr(model, "fit"):
        return None
    from tfvolta.bridge import bridge_for

    data = bridge_for(model).fit_data(model)
    if data is None or data.batch is None or data.batch >= replicas:
        return None
    return Finding(
        rule="batch_below_replicas",
        what=f"fit was given batches of {data.batch} and the strategy has {replicas} replicas",
        layers=(),
        why="a batch given to fit is the global batch, which replicas divide: some of them get no rows, and a mean "
        "over none is not a number",
        fix=f"give fit batches of {replicas} rows at least, better a multiple of {replicas}",
        refuses=True,
    )


def uneven_shares(model: Any) -> Optional[Finding]:
    """Finds a running fit of which some batches give the replicas different numbers of rows.

    Each replica takes the mean over its own rows, and every replica's gradient counts the same, so that a row in a
    smaller share counts more, and the update is not that of one device on the whole batch. A replica without rows makes
    statistics of batch normalisation that are not numbers, on Keras 3; that is refused.
    """
    replicas = replicas_of(model)
    if replicas < 2 or not hasattr(model, "fit"):
        return None
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    data = bridge.fit_data(model)
    if data is None or data.batch is None or data.batch < replicas:
        return None
    batches = (("batches", data.batch), ("a last batch", data.remainder))
    uneven = [(name, rows, _shares(rows, data.batch, replicas)) for name, rows in batches if rows and rows % replicas]
    if not uneven:
        return None
    empty = any(0 in shares for _, _, shares in uneven) and bridge.stack == "keras3"
    layers = audit_batch_norm(model, replicas) if empty else []
    said = " and ".join(f"{name} of {rows}, which {_taken(shares)}" for name, rows, shares in uneven)
    drop = "" if data.batch % replicas else "; xla.remainder: drop leaves a smaller last batch out"
    return Finding(
        rule="uneven_shares",
        what=f"fit has {said}",
        layers=tuple(layers),
        why="batch normalisation over no rows is not a number, and every weight becomes one"
        if layers
        else "a replica takes the mean over its own rows and all replicas count the same: rows of smaller shares count"
        " more, and the weights become others than with one replica",
        fix=f"give fit batches of a multiple of {replicas} rows{drop}",
        refuses=bool(layers),
    )


def _shares(rows: int, batch: int, replicas: int) -> list[int]:
    """How a strategy divides a batch: each replica up to its share of a whole one, the first ones one row more."""
    quotient, more = divmod(batch, replicas)
    shares: list[int] = []
    for replica in range(replicas):
        shares.append(min(quotient + (replica < more), rows - sum(shares)))
    return shares


def _taken(shares: Sequence[int]) -> str:
    said = ", ".join(map(str, shares)) if len(shares) <= 8 else f"from {max(shares)} down to {min(shares)}"
    return f"{len(shares)} replicas take as {said}"


def unsynchronized_batch_norm(model: Any) -> Optional[Finding]:
    """Finds batch normalisation that sees one replica's share of the batch."""
    replicas = replicas_of(model)
    names = audit_batch_norm(model, replicas)
    if not names:
        return None
    return Finding(
        rule="unsynchronized_batch_norm",
        what="BatchNormalization is not synchronized",
        layers=tuple(names),
        why=why_batch_norm(model, replicas),
        fix=SYNCHRONIZE,
    )


def clipped_shares(model: Any) -> Optional[Finding]:
    """Finds clipping that Keras 3 applies to each replica's share of the gradient instead of the sum.

    In a fit with tfvolta's callbacks the optimiser adds up first.

    Source: ``_backend_apply_gradients`` clips and then calls ``_backend_update_step``, which adds up the replicas.
    """
    from tfvolta.bridge import bridge_for
    from tfvolta.bridge.clipped_sums import clips_sums

    optimizer = getattr(model, "optimizer", None)
    replicas = replicas_of(model)
    if optimizer is None or replicas < 2 or clips_sums(optimizer):
        return None
    inner = bridge_for(optimizer).inner_optimizer(optimizer)
    name = next((name for name in _CLIPPING if getattr(inner, name, None)), None)
    if name is None:
        return None
    return Finding(
        rule="clipped_shares",
        what=f"{type(inner).__name__} has {name}={getattr(inner, name)} and trains on {replicas} replicas",
        layers=(),
        why=f"Keras 3 clips the share of each replica before it adds them up: a share is 1/{replicas} of the gradient,"
        f" so the limit is up to {replicas} times what it says",
        fix="fit with tfvolta's callbacks, which let Keras clip the sum",
    )
