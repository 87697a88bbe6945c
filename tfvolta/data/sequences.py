"""Sequences in batches of few shapes: long ones split, like lengths together, padded to fixed lengths."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional, Sequence, Union

from tfvolta.data.length_buckets import SequenceReport, batch_sizes, choose_boundaries, make_report, pieces
from tfvolta.data.sequence_rows import WHERE, Layout, along, rows
from tfvolta.errors import ConfigError, Problem


@dataclasses.dataclass(frozen=True)
class SequenceSettings:
    """How sequences are batched.

    Attributes:
        max_tokens: Longer sequences are split into pieces of so many tokens; None splits none.
        buckets: Padded lengths, or how many are chosen from the lengths of the data.
        multiple: Padded lengths that are chosen are multiples of it.
        tokens_per_batch: Tokens of a batch, padding included; by default those of a batch as it came, at the longest
            padded length.
        labels: ``token``, ``sequence``, or ``auto``, which tells by their shape.
        padding_value: What padded tokens are.
        sample: Most sequences that are looked at for their lengths.
        replicas: Batches divide by it.
        batched: Whether elements are batches; found out where not given.
    """

    max_tokens: Optional[int] = None
    buckets: Union[int, Sequence[int]] = 4
    multiple: int = 8
    tokens_per_batch: Optional[int] = None
    labels: str = "auto"
    padding_value: int = 0
    sample: int = 20000
    replicas: int = 1
    batched: Optional[bool] = None


def sequence_batches(
    dataset: Any, settings: Optional[SequenceSettings] = None, **changes: Any
) -> tuple[Any, SequenceReport]:
    """Gives sequences batches of few, fixed shapes, each of which XLA compiles once.

    Sequences that are longer than ``max_tokens`` are split. Labels of tokens are split along, and each token keeps its
    weight; a label of a whole sequence comes with each of its pieces, and the weight is divided by their number. Every
    padded token of labels has weight 0, and a bucket's last batch is filled with rows of weight 0. So the sum of the
    weighted losses over an epoch is the same as before; Keras's mean divides it by the number of rows (and tokens),
    which is another.

    Sequences come in the order in which their buckets fill up, and what is left in the buckets comes at the end.
    Lengths are found by reading up to ``sample`` sequences once. Metrics that ignore weights count padding as well:
    use ``weighted_metrics``.

    Example:
        ``dataset, report = tfvolta.data.sequence_batches(dataset, max_tokens=512, buckets=4)``

    Args:
        dataset: A ``tf.data.Dataset`` of ``(features, labels)`` or ``(features, labels, sample_weight)``: ragged or
            padded batches, or single sequences; the features in any structure.
        settings: How; the defaults where not given.
        changes: Fields of ``SequenceSettings`` in place of these.

    Raises:
        ConfigError: The data have no sequences, no labels, or sequences that are longer than all padded lengths.
    """
    from tfvolta.bridge import sequence_data

    asked = dataclasses.replace(settings or SequenceSettings(), **changes)
    batched = sequence_data.is_batched(dataset) if asked.batched is None else asked.batched
    if batched is None:
        raise ConfigError("These data may be batches or not.", [_unknown_batches()])
    number = sequence_data.batch_rows(dataset) if batched else None
    single, layout = rows(dataset, batched, asked.labels, asked.padding_value)
    lengths, came, complete = _survey(single, dataset, layout, batched, asked.sample)
    boundaries = _boundaries(lengths, complete, asked)
    tokens = asked.tokens_per_batch or (None if number is None else number * boundaries[-1])
    if tokens is None:
        raise ConfigError("The size of a batch is not known.", [_no_size()])
    sizes = batch_sizes(boundaries, tokens, asked.replicas)
    report = make_report(lengths, asked.max_tokens, boundaries, sizes, came, complete)
    split = _split(single, layout, asked.max_tokens) if asked.max_tokens else single
    return _mark(_bucketed(split, layout, boundaries, sizes, asked), report, dataset), report


def _survey(
    single: Any, dataset: Any, layout: Layout, batched: bool, sample: int
) -> tuple[list[int], dict[str, int], bool]:
    """Lengths of the sequences, what they came as, and whether these are all."""
    import tensorflow as tf

    def size(x: Any, *_: Any) -> Any:
        return tf.shape(tf.nest.flatten(x)[layout.tokens])[0]

    measured = single.map(size, num_parallel_calls=tf.data.AUTOTUNE).take(sample + 1).batch(1024)
    lengths = [int(length) for batch in measured.as_numpy_iterator() for length in batch]
    complete, lengths = len(lengths) <= sample, lengths[:sample]
    if not lengths:
        raise ConfigError("There are no sequences.", [_no_data()])
    if not (batched and layout.padded):
        return lengths, {"tokens": sum(lengths), "shapes": len(set(lengths))}, complete
    tokens, shapes, seen = 0, set(), 0
    shape_of = dataset.map(lambda x, *_: tf.shape(tf.nest.flatten(x)[layout.tokens])[:2])
    for count, width in shape_of.as_numpy_iterator():
        count = min(int(count), len(lengths) - seen)
        tokens, seen = tokens + count * int(width), seen + count
        shapes.add((count, int(width)))
        if seen >= len(lengths):
            break
    return lengths, {"tokens": tokens, "shapes": len(shapes)}, complete


def _boundaries(lengths: list[int], complete: bool, asked: SequenceSettings) -> tuple[int, ...]:
    """The padded lengths; the last one takes every piece."""
    split = [piece for length in lengths for piece in pieces(length, asked.max_tokens)]
    if isinstance(asked.buckets, int):
        chosen = choose_boundaries(split, asked.buckets, asked.multiple)
        if asked.max_tokens is not None and not complete:
            longest = math.ceil(asked.max_tokens / asked.multiple) * asked.multiple
            chosen = (*(size for size in chosen[:-1] if size < longest), longest)
    else:
        chosen = tuple(sorted(asked.buckets))
    longest = asked.max_tokens if asked.max_tokens is not None and not complete else max(split)
    if longest > chosen[-1]:
        raise ConfigError("Some sequences are too long.", [_too_long(longest, chosen)])
    return chosen


def _split(single: Any, layout: Layout, max_tokens: int) -> Any:
    """Every sequence in pieces of so many tokens, the last of which may be shorter."""
    import tensorflow as tf

    def divide(x: Any, y: Any, weights: Any) -> Any:
        length = tf.shape(tf.nest.flatten(x)[layout.tokens])[0]
        number = (length + max_tokens - 1) // max_tokens
        shared = [
            weight if token else weight / tf.cast(number, weight.dtype)
            for weight, token in zip(tf.nest.flatten(weights), layout.labels)
        ]
        weights = tf.nest.pack_sequence_as(weights, shared)

        def piece(index: Any) -> Any:
            first = tf.cast(index, tf.int32) * max_tokens
            cut = [
                along(part, runs, lambda tensor: tensor[first : first + max_tokens])
                for part, runs in ((x, layout.features), (y, layout.labels), (weights, layout.labels))
            ]
            return tuple(cut)

        return tf.data.Dataset.range(tf.cast(number, tf.int64)).map(piece)

    return single.flat_map(divide)


def _bucketed(
    single: Any, layout: Layout, boundaries: Sequence[int], sizes: Sequence[int], asked: SequenceSettings
) -> Any:
    """Batches of one bucket each, padded to its length and filled up to its number of rows."""
    import tensorflow as tf

    def length(x: Any, *_: Any) -> Any:
        return tf.shape(tf.nest.flatten(x)[layout.tokens])[0]

    def filled(x: Any, y: Any, weights: Any) -> Any:
        tokens = tf.nest.flatten(x)[layout.tokens]
        bucket = tf.searchsorted(tf.constant(boundaries), tf.shape(tokens)[1:2])[0]
        missing = tf.gather(tf.constant(sizes), bucket) - tf.shape(tokens)[0]

        def fill(part: Any) -> Any:
            return tf.concat([part, tf.repeat(part[:1], missing, axis=0)], axis=0)

        kept = tf.nest.map_structure(
            lambda part: tf.pad(part, [[0, missing]] + [[0, 0]] * (part.shape.rank - 1)), weights
        )
        return tf.nest.map_structure(fill, x), tf.nest.map_structure(fill, y), kept

    _check_shapes(single.element_spec, layout)
    batches = single.bucket_by_sequence_length(
        length,
        bucket_boundaries=[boundary + 1 for boundary in boundaries],  # it takes lengths below, and pads to one less
        bucket_batch_sizes=[*sizes, 1],
        padding_values=_padding_values(single.element_spec, layout, asked.padding_value),
        pad_to_bucket_boundary=True,
    )
    return batches.map(filled, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _padding_values(spec: Any, layout: Layout, padding_value: int) -> Any:
    import tensorflow as tf

    def zero(part: Any) -> Any:
        return tf.constant("") if part.dtype == tf.string else tf.cast(0, part.dtype)

    values = tf.nest.map_structure(zero, spec)
    flat, tokens = tf.nest.flatten(values[0]), tf.nest.flatten(spec[0])[layout.tokens]
    if tokens.dtype != tf.string:
        flat[layout.tokens] = tf.cast(padding_value, tokens.dtype)
    return (tf.nest.pack_sequence_as(values[0], flat), *values[1:])


def _check_shapes(spec: Any, layout: Layout) -> None:
    """Refuses axes that are open besides that of the sequence, which would be padded to its length too."""
    import tensorflow as tf

    runs = (*layout.features, *layout.labels)
    parts = tf.nest.flatten(spec[0]) + tf.nest.flatten(spec[1])
    wrong = [part for part, run in zip(parts, runs) if part.shape.rank is None or None in part.shape[1 if run else 0 :]]
    if wrong:
        raise ConfigError("These sequences cannot be padded.", [_open_axis(wrong[0])])


def _mark(made: Any, report: SequenceReport, dataset: Any) -> Any:
    """Says how many batches there are, where that is certain, and notes the report for whoever looks at the data."""
    import tensorflow as tf

    from tfvolta.bridge import pipeline, sequence_data

    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        made = made.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    elif report.batches is not None and not pipeline.describe(dataset).draws:
        made = made.apply(tf.data.experimental.assert_cardinality(report.batches))
    sequence_data.note(made, report)
    return made


def _unknown_batches() -> Problem:
    return Problem(
        where=WHERE,
        expected="a data set of which it can be seen whether its elements are batches",
        received="elements that a generator or flat_map makes",
        fix="say batched=True or batched=False",
    )


def _no_size() -> Problem:
    return Problem(
        where=WHERE,
        expected="tokens_per_batch, or data that come in batches",
        received="single sequences, and no tokens_per_batch",
        fix="tokens_per_batch=4096, or dataset.padded_batch(32)",
    )


def _no_data() -> Problem:
    return Problem(where=WHERE, expected="at least one sequence", received="an empty data set", fix="check the data")


def _too_long(longest: int, boundaries: Sequence[int]) -> Problem:
    return Problem(
        where=WHERE,
        expected=f"sequences of at most {boundaries[-1]} tokens, the longest bucket",
        received=f"a sequence of {longest}",
        why="every sequence needs a bucket that it fits into",
        fix=f"max_tokens={boundaries[-1]} splits longer ones, or add a bucket of {math.ceil(longest / 8) * 8}",
    )


def _open_axis(part: Any) -> Problem:
    return Problem(
        where=WHERE,
        expected="fixed sizes on all axes but that of the sequence",
        received=f"a part of shape {part.shape}",
        why="each open axis would be padded to the length of the bucket",
        fix="fix it with tf.ensure_shape in dataset.map(...)",
    )
