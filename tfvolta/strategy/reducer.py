"""All-reduce objects that note what they put into the graph, so that packing is seen and not believed.

``tf.distribute.CrossDeviceOps`` is made to be subclassed: ``batch_reduce_implementation`` is where Keras's gradients
arrive, all in one call, while the train step is traced. Counting the graph's operations before and after that
call gives those of the gradients alone; metrics and batch normalisation add operations of the same types elsewhere.
"""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.all_reduce_record import note, operations


def make_reducer(tensorflow: Any, implementation: str, num_packs: Optional[int]) -> Optional[Any]:
    """The recording all-reduce of MirroredStrategy for a config's ``implementation``.

    Args:
        implementation: ``auto`` leaves the choice to TensorFlow.
        num_packs: For ``nccl`` and ``hierarchical_copy``; None is TensorFlow's default, one pack.

    Returns:
        A ``tf.distribute.CrossDeviceOps`` with a list ``reductions``, or None for ``auto``.
    """
    distribute = tensorflow.distribute
    base = {
        "nccl": distribute.NcclAllReduce,
        "hierarchical_copy": distribute.HierarchicalCopyAllReduce,
        "reduction_to_one_device": distribute.ReductionToOneDevice,
    }.get(implementation)
    if base is None:
        return None
    made = _recording(base)() if num_packs is None else _recording(base)(num_packs=num_packs)
    made.reductions = []
    return made


def _recording(base: Any) -> Any:
    """A subclass of one of TensorFlow's all-reduces that notes every batch of gradients."""

    def batch_reduce_implementation(self: Any, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        pairs = list(value_destination_pairs)
        before = operations()
        result = base.batch_reduce_implementation(self, reduce_op, pairs, options)
        self.reductions.append(note([value for value, _ in pairs], before))
        return result

    return type(base.__name__, (base,), {"batch_reduce_implementation": batch_reduce_implementation})
