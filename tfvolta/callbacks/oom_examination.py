"""From a failed step to everything that can be said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.config.schema import known_keys
from tfvolta.memory.exhaustion import Exhaustion, Held, read
from tfvolta.memory.post_mortem import Place, PostMortem, rows_of
from tfvolta.memory.remedy import Circumstances, largest_batch, remedies
from tfvolta.memory.workspace import limit_mb

if TYPE_CHECKING:
    from tfvolta.bridge.guard_records import FailedStep
    from tfvolta.session import Session

_LARGEST = 5


def examine(
    session: Session, model: Any, failed: FailedStep, place: Place, iterator: Any, notes: tuple[str, ...]
) -> PostMortem:
    """What is known of a failed step; its state is filled in by whoever knows where it is saved.

    Args:
        session: The session of the fit.
        model: The model.
        failed: The step.
        place: Where in the training it was.
        iterator: What the step was given.
        notes: What else the reader should know.
    """
    from tfvolta.bridge import bridge_for
    from tfvolta.bridge.allocator_figures import gpu_figures

    bridge = bridge_for(model)
    found = read(type(failed.error).__name__, str(failed.error))
    devices = gpu_figures()
    groups = bridge.training_variables(model)
    sizes = [
        Held(name, _bytes(each), f"{each.dtype.name}{_shape(each)}") for held in groups.values() for name, each in held
    ]
    total = sum(each.size_bytes for each in sizes)
    rows = rows_of(failed.shapes)
    fixed = total + sum(_bytes(each) for _, each in groups["model"])  # and as many gradients as weights
    info = devices.get(found.device) or {}
    return PostMortem(
        place=place,
        exhaustion=found,
        shapes=failed.shapes,
        batch_size=rows,
        devices=devices,
        variables=tuple(sorted(sizes, key=lambda each: -each.size_bytes)[:_LARGEST]),
        variables_bytes=total,
        at_most=_at_most(rows, info, found, fixed),
        remedies=tuple(remedies(_circumstances(session, bridge, model, failed, (place, found, info), iterator))),
        state="",
        restored=False,
        put_back=failed.put_back,
        notes=notes,
    )


def _at_most(rows: Optional[int], info: Any, found: Exhaustion, fixed_bytes: int) -> Optional[int]:
    if rows is None or found.asked_bytes is None or not info.get("limit_bytes"):
        return None
    return largest_batch(rows, info["peak_bytes"] + found.asked_bytes, fixed_bytes, info["limit_bytes"])


def _circumstances(
    session: Session, bridge: Any, model: Any, failed: FailedStep, known: tuple[Place, Exhaustion, Any], iterator: Any
) -> Circumstances:
    place, found, info = known
    config, gpus = session.config, session.context.facts.gpus
    on_gpu = bool(gpus) and not found.host
    graph = bridge.train_graph(model)
    limit, current = info.get("limit_bytes"), info.get("current_bytes")
    return Circumstances(
        batch_size=rows_of(failed.shapes),
        replicas=int(model.distribute_strategy.num_replicas_in_sync),
        reduce_every=config.get("communication.reduce_every") or 1,
        stage=place.stage,
        host=found.host,
        compute_capability=min(gpu.compute_capability for gpu in gpus) if on_gpu else None,
        memory_mb=min(gpu.memory_mb for gpu in gpus) if on_gpu else None,
        half_precision=any(dtype in ("float16", "bfloat16") for dtype in bridge.compute_dtypes(model).values()),
        compiled=failed.compiled,
        convolutions=graph is not None and any("Conv" in key for key in graph.operations),
        workspace_limit_mb=_workspace_mb(config.get("cudnn.workspace_limit_mb"), gpus),
        asked_bytes=found.asked_bytes,
        free_bytes=limit - current if limit and current is not None else None,
        varies=_varies(iterator),
        on_oom=config.get("memory.on_oom") or "report",
        keys=known_keys(),
    )


def _varies(iterator: Any) -> bool:
    """Whether the data leave another size open than the number of rows."""
    import tensorflow as tf

    specs = tf.nest.flatten(getattr(iterator, "element_spec", ()), expand_composites=True)
    shapes = [spec.shape for spec in specs if isinstance(spec, tf.TensorSpec)]
    return any(shape.rank is None or None in shape.as_list()[1:] for shape in shapes)


def _bytes(variable: Any) -> int:
    return int(variable.shape.num_elements() or 0) * int(variable.dtype.size)


def _shape(variable: Any) -> list[Optional[int]]:
    return list(variable.shape.as_list())


def _workspace_mb(setting: Any, gpus: Any) -> Optional[int]:
    """What is set for scratch memory; None where TensorFlow's default counts."""
    if setting is None or not gpus:
        return None
    return limit_mb(setting, {}, min(gpu.memory_mb for gpu in gpus))
