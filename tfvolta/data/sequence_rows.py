"""Sequences one by one, out of a data set of whatever form: ragged or padded batches, or single sequences."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

from tfvolta.errors import ConfigError, Problem

WHERE = "tfvolta.data.sequence_batches"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which parts of an element run along its sequence; parts are numbered as ``tf.nest.flatten`` does.

    Attributes:
        tokens: Number of the part of the features whose length counts.
        features: For each part of the features, whether it runs along.
        labels: For each part of the labels, whether each token has a label.
        padded: Whether sequences came padded, so that their end has to be found.
    """

    tokens: int
    features: tuple[bool, ...]
    labels: tuple[bool, ...]
    padded: bool


def rows(dataset: Any, batched: bool, labels: str, padding_value: int) -> tuple[Any, Layout]:
    """The sequences of a data set one by one, without padding: ``(features, labels, weights)``.

    Weights have the structure of the labels: for labels of tokens one for each token, otherwise a scalar.

    Args:
        dataset: Elements ``(features, labels)`` or ``(features, labels, weights)``.
        batched: Whether elements are batches.
        labels: ``token``, ``sequence``, or ``auto``: labels whose length is that of the sequence are tokens' labels.
        padding_value: What padded tokens are.

    Raises:
        ConfigError: There is no part that runs along a sequence, or there are no labels.
    """
    import tensorflow as tf

    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise ConfigError("These sequences cannot be divided.", [_no_labels(spec)])
    ragged = any(isinstance(part, tf.RaggedTensorSpec) for part in tf.nest.flatten(spec[0]))
    singles = dataset.unbatch() if batched else dataset
    dense = singles.map(lambda *element: tf.nest.map_structure(_dense, element), num_parallel_calls=tf.data.AUTOTUNE)
    layout = _layout(dense.element_spec, labels, padded=batched and not ragged)

    def whole(*element: Any) -> Any:
        x, y = element[:2]
        length = _length(tf.nest.flatten(x)[layout.tokens], layout, padding_value)
        x = along(x, layout.features, lambda part: part[:length])
        y = along(y, layout.labels, lambda part: part[:length])
        return x, y, _weights(element[2] if len(element) == 3 else None, y, layout.labels, length)

    return dense.map(whole, num_parallel_calls=tf.data.AUTOTUNE), layout


def along(structure: Any, runs: Sequence[bool], change: Any) -> Any:
    """The same structure with those parts changed that run along the sequence."""
    import tensorflow as tf

    flat = [change(part) if run else part for part, run in zip(tf.nest.flatten(structure), runs)]
    return tf.nest.pack_sequence_as(structure, flat)


def _dense(part: Any) -> Any:
    import tensorflow as tf

    if isinstance(part, tf.RaggedTensor):
        return part.to_tensor()
    return tf.sparse.to_dense(part) if isinstance(part, tf.SparseTensor) else part


def _layout(spec: Any, labels: str, padded: bool) -> Layout:
    import tensorflow as tf

    features = tf.nest.flatten(spec[0])
    candidates = [number for number, part in enumerate(features) if part.shape.rank]
    open_ended = [number for number in candidates if features[number].shape[0] is None]
    if not candidates:
        raise ConfigError("These sequences cannot be divided.", [_no_sequence(spec)])
    tokens = (open_ended or candidates)[0]
    size = features[tokens].shape[0]
    known = [_runs(part, size) for part in tf.nest.flatten(spec[1])]
    if labels != "auto":
        known = [labels == "token"] * len(known)
    return Layout(tokens, tuple(_runs(part, size) for part in features), tuple(known), padded)


def _runs(part: Any, size: Optional[int]) -> bool:
    """Whether a part's first axis is as long as the sequence."""
    return bool(part.shape.rank) and part.shape[0] == size


def _length(tokens: Any, layout: Layout, padding_value: int) -> Any:
    """Tokens of a sequence: up to the last that is no padding; one at least."""
    import tensorflow as tf

    size = tf.shape(tokens)[0]
    if not layout.padded or tokens.dtype == tf.string:
        return size
    used = tf.not_equal(tokens, tf.cast(padding_value, tokens.dtype))
    used = tf.reduce_any(tf.reshape(used, [size, -1]), axis=1)
    return tf.maximum(1, tf.reduce_max(tf.where(used, tf.range(1, size + 1), 0)))


def _weights(given: Any, y: Any, of_tokens: tuple[bool, ...], length: Any) -> Any:
    """Weights in the structure of the labels."""
    import tensorflow as tf

    flat = [None] if given is None else tf.nest.flatten(given)
    if len(flat) == 1:
        flat = flat * len(of_tokens)
    if len(flat) != len(of_tokens):
        raise ConfigError("These sequences cannot be divided.", [_weights_differ(len(flat), len(of_tokens))])
    made = []
    for weight, token in zip(flat, of_tokens):
        weight = tf.constant(1.0) if weight is None else tf.cast(weight, tf.float32)
        if token:
            made.append(tf.broadcast_to(weight, [length]) if weight.shape.rank == 0 else weight[:length])
        else:
            made.append(tf.reshape(weight, []))
    return tf.nest.pack_sequence_as(y, made)


def _no_labels(spec: Any) -> Problem:
    return Problem(
        where=WHERE,
        expected="elements (features, labels) or (features, labels, sample_weight)",
        received=f"elements of the form {type(spec).__name__} with {len(spec) if isinstance(spec, tuple) else 1} parts",
        why="pieces and filled rows carry their weight beside labels",
        fix="dataset.map(lambda features: (features, labels_of(features)))",
    )


def _no_sequence(spec: Any) -> Problem:
    return Problem(
        where=WHERE,
        expected="a feature whose first axis, after that of the batch, runs along the sequence",
        received=f"features {spec[0]}",
        fix="give single sequences of shape (length, ...), or batches of shape (rows, length, ...)",
    )


def _weights_differ(weights: int, labels: int) -> Problem:
    return Problem(
        where=WHERE,
        expected=f"one sample_weight, or one for each of {labels} labels",
        received=f"{weights} of them",
        fix="give sample_weight the structure of the labels",
    )
