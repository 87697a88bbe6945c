"""Batches of one size, the last one of an epoch filled up: XLA compiles the step once, and no row is lost."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.errors import ConfigError, Problem

_WHERE = "tfvolta.data.padded_batches"


def padded_batches(dataset: Any, model: Any, batch_size: Optional[int] = None) -> Any:
    """Fills smaller batches up with copies of their last row, which the model leaves out of its loss and metrics.

    XLA compiles a step for each shape: the last, smaller batch of an epoch costs a second compilation. Here it has the
    shape of the others. Loss, gradients, metrics and the epoch's mean of the loss are those of the smaller batch; with
    several replicas, those of its rows together. A dropout layer draws other numbers than for the smaller batch.

    Example:
        ``model.fit(tfvolta.data.padded_batches(dataset, model), callbacks=[tfvolta.callbacks.XlaJit()])``

    Args:
        dataset: A ``tf.data.Dataset`` of batches ``(x, y)`` or ``(x, y, sample_weight)`` of dense tensors.
        model: The compiled model that will be trained with it. It learns what filled rows are.
        batch_size: Rows of a full batch; read from the data set's ``batch`` where it is not given.

    Returns:
        The data set; as it is where every batch has the same size already.

    Raises:
        ConfigError: The batch size is not known, the data are of another form, or the model has a part that sees all
            rows of a batch, such as batch normalization.
    """
    from tfvolta.bridge import bridge_for, datasets

    if datasets.static_batch(dataset.element_spec) is not None:
        return dataset
    found = datasets.batching(dataset)
    size = batch_size or (found.batch if found is not None else None)
    if found is not None and found.batch == size and found.remainder == 0:
        from tfvolta.data.static import static_batches

        return static_batches(dataset, size)
    problems = [] if size else [_unknown(dataset)]
    problems += _of_form(dataset)
    bridge = bridge_for(model)
    problems += [_seen(reason) for reason in bridge.padding_refusals(model)]
    if problems or size is None:
        raise ConfigError("The last batch cannot be filled up.", problems)
    bridge.leave_out_filled_rows(model)
    return dataset.map(lambda *element: _filled(element, size))


def _filled(element: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """A batch with as many rows as the others, and a weight for each row."""
    import tensorflow as tf

    from tfvolta.bridge.padded_rows import FILLED

    rows = tf.shape(tf.nest.flatten(element)[0])[0]
    element = element if len(element) == 3 else (*element, tf.ones([rows], tf.float32))

    def fill() -> tuple[Any, ...]:
        taken = tf.minimum(tf.range(size), rows - 1)
        x, y, weights = tf.nest.map_structure(lambda part: tf.gather(part, taken), element)
        return x, y, tf.nest.map_structure(lambda weight: _marked(weight, rows, FILLED), weights)

    x, y, weights = element
    whole = (x, y, tf.nest.map_structure(_floating, weights))
    filled = tf.cond(tf.equal(rows, size), lambda: whole, fill)
    for part in tf.nest.flatten(filled):
        part.set_shape([size, *part.shape[1:]])
    return tuple(filled)


def _marked(weight: Any, rows: Any, filled: float) -> Any:
    import tensorflow as tf

    weight = _floating(weight)
    true = tf.reshape(tf.range(tf.shape(weight)[0]) < rows, [-1, *[1] * (weight.shape.rank - 1)])
    return tf.where(true, weight, tf.constant(filled, weight.dtype))


def _floating(weight: Any) -> Any:
    """A weight as floating point numbers, which have an infinity."""
    import tensorflow as tf

    return weight if weight.dtype.is_floating else tf.cast(weight, tf.float32)


def _of_form(dataset: Any) -> list[Problem]:
    """What is wrong with the form of the batches."""
    import tensorflow as tf

    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        return [_form(f"{type(spec).__name__} of {len(spec)}" if isinstance(spec, tuple) else type(spec).__name__)]
    odd = [part for part in tf.nest.flatten(spec) if not isinstance(part, tf.TensorSpec) or not part.shape.rank]
    return [_form(f"a part of type {type(part).__name__}, shape {part.shape}") for part in odd[:1]]


def _form(received: str) -> Problem:
    return Problem(
        where=_WHERE,
        expected="batches (x, y) or (x, y, sample_weight) of dense tensors with a batch dimension",
        received=received,
        why="a filled row is told by its weight, which only data with targets have",
        fix="leave the smaller batch out: tfvolta.data.static_batches(dataset), or xla.remainder: drop",
    )


def _unknown(dataset: Any) -> Problem:
    return Problem(
        where=_WHERE,
        expected="a data set whose last transformations keep the batches of batch(n)",
        received=f"{type(dataset).__name__}, which hides them",
        why="unbatch, flat_map, filter or a generator can make batches of any size",
        fix=f"name the size: {_WHERE}(dataset, model, batch_size=64)",
    )


def _seen(reason: str) -> Problem:
    return Problem(
        where=_WHERE,
        expected="a model that filled rows do not change",
        received=reason,
        why="what it learns would depend on the filled rows",
        fix="leave the smaller batch out: tfvolta.data.static_batches(dataset), or xla.remainder: drop; or keep it",
    )
