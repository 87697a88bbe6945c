"""Synthetic data from which a model can learn, so that the loss says whether training still works.

Labels that follow no rule would let a broken run look like a sound one: both only learn their batches by heart.
Everything follows from a seed.
"""

from __future__ import annotations

from typing import Any

from tfvolta.bench.workloads.workload import Sizes

_PATCH = 8
_OWN_TOKENS = 16
_OWN_SHARE = 0.5
_NOISE = 0.5


def _generator(seed: int) -> Any:
    import numpy as np

    return np.random.default_rng(seed)


def images(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Images of shape (rows, size, size, 3), each a pattern of its class under noise, and the classes (rows,)."""
    size, generator = int(sizes.image_size or 0), _generator(seed)
    labels = generator.integers(0, sizes.classes, rows).astype("int32")
    patterns = generator.standard_normal((int(sizes.classes or 0), _PATCH, _PATCH, 3), dtype="float32")
    found = _enlarged(patterns[labels], size)
    found += _NOISE * generator.standard_normal(found.shape, dtype="float32")
    return found, labels


def masks(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Images of shape (rows, size, size, 1), and for each pixel whether its region is bright: (rows, size, size, 1)."""
    size, generator = int(sizes.image_size or 0), _generator(seed)
    found = _enlarged(generator.standard_normal((rows, _PATCH, _PATCH, 1), dtype="float32"), size)
    bright = (found > 0).astype("float32")
    found += _NOISE * generator.standard_normal(found.shape, dtype="float32")
    return found, bright


def _enlarged(patterns: Any, size: int) -> Any:
    """Patterns of (rows, 8, 8, channels) as images of (rows, size, size, channels)."""
    import numpy as np

    index: Any = np.arange(size) * _PATCH // size
    return patterns[:, index][:, :, index]


def vectors(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Vectors of shape (rows, width), each the middle of its class under noise, and the classes (rows,)."""
    generator = _generator(seed)
    labels = generator.integers(0, sizes.classes, rows).astype("int32")
    middles = generator.standard_normal((int(sizes.classes or 0), int(sizes.width or 0)), dtype="float32")
    found = middles[labels] + 2 * generator.standard_normal((rows, int(sizes.width or 0)), dtype="float32")
    return found, labels


def tokens(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Sequences of shape (rows, tokens), half of whose tokens are typical of their class, and the classes (rows,)."""
    generator = _generator(seed)
    shape = (rows, int(sizes.tokens or 0))
    labels = generator.integers(0, sizes.classes, rows).astype("int32")
    typical = generator.integers(0, sizes.vocabulary, (int(sizes.classes or 0), _OWN_TOKENS))
    own = typical[labels[:, None], generator.integers(0, _OWN_TOKENS, shape)]
    other = generator.integers(0, sizes.vocabulary, shape)
    return _mixed(generator, own, other), labels


def _mixed(generator: Any, own: Any, other: Any) -> Any:
    import numpy as np

    return np.where(generator.random(own.shape) < _OWN_SHARE, own, other).astype("int32")


def translations(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Sentences and their translations word by word, (rows, tokens) each; labels are the next target tokens."""
    import numpy as np

    generator = _generator(seed)
    words, length = int(sizes.vocabulary or 0), int(sizes.tokens or 0)
    dictionary = generator.permutation(words)
    # A few words occur most of the time, as in a language.
    source = np.minimum(generator.geometric(0.05, (rows, length)), words) - 1
    target = dictionary[source]
    shifted = np.concatenate([np.zeros((rows, 1), target.dtype), target[:, :-1]], axis=1)
    given = {"source": source.astype("int32"), "target": shifted.astype("int32")}
    return given, target.astype("int32")


def clicks(sizes: Sizes, rows: int, seed: int) -> tuple[Any, Any]:
    """Clicks as in DLRM: 13 numbers and 26 categories each, and 1 where it was clicked, from a hidden rule."""
    import numpy as np

    generator = _generator(seed)
    numbers = generator.standard_normal((rows, 13), dtype="float32")
    categories = np.minimum(generator.geometric(0.01, (rows, 26)), int(sizes.vocabulary or 0)) - 1
    weights = generator.standard_normal(13)
    liking = generator.standard_normal(int(sizes.vocabulary or 0))
    score = numbers @ weights + liking[categories].sum(axis=1) / 5
    clicked = (generator.random(rows) < 1 / (1 + np.exp(-score))).astype("float32")
    return {"numbers": numbers, "categories": categories.astype("int32")}, clicked[:, None]
