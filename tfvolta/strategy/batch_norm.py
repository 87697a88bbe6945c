"""Batch normalisation under several replicas: each normalises its own share of the batch, unless told to synchronise.

Keras 2 then averages the replicas' moving statistics, which is wrong for the variance; Keras 3 keeps replica 0's, in
each worker its own.
"""

from __future__ import annotations

from typing import Any, Optional

# Below this many examples a replica, statistics of its share alone are noisy enough to change accuracy
# (Wu and He, Group Normalization, 2018, figure 1: error rises from 16 examples down).
SMALL_SHARE = 16
SYNCHRONIZE = (
    "make the layers with synchronized=True, or call "
    "tfvolta.strategy.batch_norm.synchronize_batch_norm(model) before fit"
)


def audit_batch_norm(model: Any, replicas: int) -> list[str]:
    """Paths of the layers that normalise with one replica's share of the batch; empty for a single replica.

    Frozen layers are left out: they use their moving statistics and compute none.

    Args:
        model: Any Keras model; nested layers are found too.
        replicas: Number of replicas that it trains on.
    """
    if replicas < 2:
        return []
    return [
        path for path, layer in _batch_norms(model) if layer.trainable and not getattr(layer, "synchronized", False)
    ]


def batch_norm_layers(model: Any) -> list[str]:
    """Paths of the batch normalisation layers that compute statistics, synchronised or not."""
    return [path for path, layer in _batch_norms(model) if layer.trainable]


def why_batch_norm(model: Any, replicas: int, global_batch: Optional[int] = None) -> str:
    """What becomes of the statistics of layers that are not synchronised.

    Args:
        model: Any Keras model.
        replicas: Number of replicas that it trains on.
        global_batch: Examples of one batch given to ``fit``, where known.
    """
    from tfvolta.bridge import stack_of
    from tfvolta.bridge.workers import spans_workers

    share = f"its {global_batch // replicas} examples" if global_batch else f"1/{replicas} of the batch"
    small = " (few, so the statistics are noisy)" if global_batch and global_batch // replicas < SMALL_SHARE else ""
    if stack_of(model) != "keras3":
        kept = "the moving statistics are averaged over replicas, which leaves out the variance between them"
    elif spans_workers(getattr(model, "distribute_strategy", None)):
        kept = "every worker keeps the moving statistics of its own first replica, and saves others than the chief's"
    else:
        kept = "the moving statistics of replica 0 are kept, those of the others are lost"
    return f"each of {replicas} replicas normalises with {share} alone{small}, and {kept}"


def note_batch_norm(model: Any, replicas: int, global_batch: Optional[int] = None) -> str:
    """The sentence for evidence; empty where every layer is synchronised or there is one replica.

    Args:
        model: Any Keras model.
        replicas: Number of replicas that it trains on.
        global_batch: Examples of one batch given to ``fit``, where known.
    """
    names = audit_batch_norm(model, replicas)
    if not names:
        return ""
    why = why_batch_norm(model, replicas, global_batch)
    fix = f"{SYNCHRONIZE[0].upper()}{SYNCHRONIZE[1:]}."
    return f"BatchNormalization in {', '.join(names)} is not synchronized: {why}. {fix}"


def synchronize_batch_norm(model: Any) -> list[str]:
    """Makes batch normalisation use the statistics of the global batch; weights and moving statistics are kept.

    Costs one small all-reduce a layer and step, and Keras 2's fused kernel, which cannot synchronise.

    Args:
        model: Any Keras model, built or not, compiled or not.

    Returns:
        Paths of the layers that were changed. A saved model remembers the change on Keras 3; Keras 2 never writes
        ``synchronized`` into a saved model, so call this again after loading one there.
    """
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    changed = []
    for path, layer in _batch_norms(model):
        if getattr(layer, "synchronized", False) or getattr(layer, "virtual_batch_size", None) is not None:
            continue
        layer.synchronized = True
        if hasattr(layer, "fused"):
            layer.fused = False
        changed.append(path)
    if changed:
        bridge.reset_functions(model)
    return changed


def _batch_norms(model: Any) -> list[tuple[str, Any]]:
    """Batch normalisation layers of any Keras, subclasses included, with their paths."""
    from tfvolta.bridge import bridge_for

    return [
        (path, layer)
        for path, layer in bridge_for(model).layers(model)
        if any(cls.__name__ in ("BatchNormalization", "BatchNormalizationBase") for cls in type(layer).__mro__)
    ]
