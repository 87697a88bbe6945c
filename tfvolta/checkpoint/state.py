"""The variables of a training, written and read by TensorFlow's own checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tfvolta.bridge.resuming_records import Named
from tfvolta.checkpoint.manifest import VariableRecord
from tfvolta.checkpoint.store import STATE, DamagedError, read_manifest

Groups = Mapping[str, Sequence[Named]]


def records(groups: Groups) -> dict[str, tuple[VariableRecord, ...]]:
    """Names, shapes and dtypes of variables, as a manifest keeps them."""
    return {group: tuple(map(_record, held)) for group, held in groups.items()}


def _record(named: Named) -> VariableRecord:
    name, variable = named
    return VariableRecord(name=name, shape=tuple(variable.shape.as_list()), dtype=variable.dtype.name)


def size_bytes(groups: Groups) -> int:
    """Bytes of the variables."""
    return sum(int(v.shape.num_elements() or 0) * int(v.dtype.size) for held in groups.values() for _, v in held)


def write(folder: Path, groups: Groups, iterator: Optional[Any] = None) -> None:
    """Writes variables, and the state of a data iterator, into a folder.

    Under a MultiWorkerMirroredStrategy every worker has to do so, as reading some variables takes all of them.
    """
    _checkpoint(groups, iterator).write(str(folder / STATE))


def check(folder: Path) -> None:
    """Reads every value of a checkpoint, with TensorFlow's checksums.

    Raises:
        DamagedError: One of them cannot be read.
    """
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(folder / STATE))
        for key, dtype in reader.get_variable_to_dtype_map().items():
            if dtype != tf.variant:  # an iterator's state, which no array can hold
                reader.get_tensor(key)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise DamagedError(str(error).splitlines()[0]) from error


def has_all(folder: Path) -> bool:
    """Whether a checkpoint's index has as many variables, of the same shapes, as its manifest names."""
    import tensorflow as tf

    shapes = tf.train.load_checkpoint(str(folder / STATE)).get_variable_to_shape_map()
    return all(
        tuple(shapes.get(f"{group}/{number}/.ATTRIBUTES/VARIABLE_VALUE", ())) == each.shape
        for group, held in read_manifest(folder).variables.items()
        for number, each in enumerate(held)
    )


def restore(folder: Path, groups: Groups) -> None:
    """Gives variables their saved values; those of other groups are left alone."""
    _checkpoint(groups).read(str(folder / STATE)).expect_partial().assert_existing_objects_matched()


def restore_iterator(folder: Path, iterator: Any) -> bool:
    """Gives a data iterator its saved state; False where it is another pipeline's."""
    import tensorflow as tf

    try:
        tf.train.Checkpoint(iterator=iterator).read(str(folder / STATE)).expect_partial()
    except tf.errors.OpError:
        return False
    return True


def _checkpoint(groups: Groups, iterator: Optional[Any] = None) -> Any:
    import tensorflow as tf

    held: dict[str, Any] = {group: [variable for _, variable in named] for group, named in groups.items()}
    if iterator is not None:
        held["iterator"] = iterator
    return tf.train.Checkpoint(**held)
