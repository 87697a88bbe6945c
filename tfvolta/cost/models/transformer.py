"""BERT and ELECTRA.

Sources: Devlin, Chang, Lee, Toutanova, BERT (arXiv 1810.04805); Clark, Luong, Le, Manning, ELECTRA (arXiv 2003.10555).
English uncased vocabulary, 512 positions. Work is that of one token; attention over the sequence adds a few percent at
128 to 512 tokens, the same in every layer, and is left out.
"""

from __future__ import annotations

from typing import Iterator

from tfvolta.cost.gradients import Layer

_VOCABULARY = 30522
_POSITIONS = 512
_SEGMENTS = 2
# Share of the tokens whose words are predicted in pre-training.
_MASKED = 0.15


def _dense(name: str, inputs: int, outputs: int, share: float = 1.0) -> Layer:
    return Layer(name, inputs * outputs + outputs, share * inputs * outputs)


def _norm(name: str, width: int) -> Layer:
    return Layer(name, 2 * width, 0.0)


def _embeddings(width: int) -> Iterator[Layer]:
    for name, count in (("words", _VOCABULARY), ("positions", _POSITIONS), ("segments", _SEGMENTS)):
        yield Layer(f"embedding of {name}", count * width, 0.0)
    yield _norm("embedding normalisation", width)


def _encoder(layers: int, width: int, inner: int) -> Iterator[Layer]:
    for number in range(layers):
        for part in ("query", "key", "value", "output"):
            yield _dense(f"layer {number} {part}", width, width)
        yield _norm(f"layer {number} attention normalisation", width)
        yield _dense(f"layer {number} intermediate", width, inner)
        yield _dense(f"layer {number} outer", inner, width)
        yield _norm(f"layer {number} normalisation", width)


def bert(layers: int, width: int) -> list[Layer]:
    """The layers of BERT with its pre-training heads; the output of masked words shares the word embedding.

    Args:
        layers: Encoder layers.
        width: Hidden size.
    """
    found = [*_embeddings(width), *_encoder(layers, width, 4 * width)]
    found.append(_dense("pooler", width, width, 0.0))
    found.append(_dense("masked words: transform", width, width, _MASKED))
    found.append(_norm("masked words: normalisation", width))
    found.append(Layer("masked words: bias", _VOCABULARY, _MASKED * width * _VOCABULARY))
    found.append(_dense("next sentence", width, 2, 0.0))
    return found


def electra(layers: int, width: int, embedding: int) -> list[Layer]:
    """The layers of ELECTRA's discriminator with its head, as it is fine-tuned.

    Args:
        layers: Encoder layers.
        width: Hidden size.
        embedding: Size of the embeddings; projected where it is not the hidden size.
    """
    found = list(_embeddings(embedding))
    if embedding != width:
        found.append(_dense("embedding projection", embedding, width))
    found += _encoder(layers, width, 4 * width)
    found.append(_dense("head: transform", width, width))
    found.append(_dense("head: output", width, 1))
    return found


def electra_pretraining(layers: int, width: int, divisor: int) -> list[Layer]:
    """Discriminator and generator together; the generator shares the embeddings.

    Args:
        layers: Encoder layers of both.
        width: Hidden size of the discriminator.
        divisor: By how much the generator is narrower.
    """
    narrow = width // divisor
    generator = [_dense("generator: embedding projection", width, narrow)]
    generator += _encoder(layers, narrow, 4 * narrow)
    generator.append(_dense("generator: transform", narrow, width, _MASKED))
    generator.append(_norm("generator: normalisation", width))
    generator.append(Layer("generator: bias", _VOCABULARY, _MASKED * width * _VOCABULARY))
    return [*generator, *electra(layers, width, width)]
