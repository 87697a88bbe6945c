"""Trains a transformer to write on in Python's own documentation, character by character; prints its test accuracy.

The text is what ``help("if")`` and the like show; it comes with Python, so nothing is downloaded.
Full size on a GPU: transformer.py --width 1024 --heads 16 --layers 24 --length 512 --batch 32
"""

import argparse
import time
from pydoc_data import topics

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers


def load_data(length, rows):
    """Pieces of text as numbers of characters: inputs, and for each place the character that comes next.

    Args:
        length: Characters of a piece.
        rows: Pieces for training; a quarter as many, of text that comes later, are for testing. 0 for all.

    Returns:
        Training inputs and targets, test inputs and targets, and how many different characters there are.
    """
    text = np.array(list("\n".join(topics.topics[name] for name in sorted(topics.topics))))
    characters, numbers = np.unique(text, return_inverse=True)
    count = (len(numbers) - 1) // length
    inputs = numbers[: count * length].reshape(count, length).astype("int32")
    targets = numbers[1 : count * length + 1].reshape(count, length).astype("int32")
    split = count * 4 // 5
    train = slice(0, min(rows, split) if rows else split)
    test = slice(split, split + rows // 4 if rows else count)
    return inputs[train], targets[train], inputs[test], targets[test], len(characters)


class Positions(layers.Layer):
    """Adds what is learned for each place to the characters there."""

    def build(self, shape):
        self.table = self.add_weight(name="table", shape=shape[1:], initializer="random_normal")
        super().build(shape)

    def call(self, x):
        return x + tf.cast(self.table, x.dtype)


def block(x, width, heads):
    """Attention to earlier characters, then two dense layers, each with a way around it."""
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
    x = layers.Add()([x, y])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(4 * width, activation="gelu")(y)
    return layers.Add()([x, layers.Dense(width)(y)])


def make_model(length, characters, width, heads, count):
    """A transformer with causal attention that gives scores for the next character at each place."""
    inputs = layers.Input((length,), dtype="int32")
    x = Positions()(layers.Embedding(characters, width)(inputs))
    for _ in range(count):
        x = block(x, width, heads)
    return keras.Model(inputs, layers.Dense(characters)(layers.LayerNormalization()(x)), name="transformer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="characters of a piece of text")
    parser.add_argument("--rows", type=int, default=3200, help="pieces of text for training; 0 for all")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()

    inputs, targets, test_inputs, test_targets, characters = load_data(arguments.length, arguments.rows)
    keras.utils.set_random_seed(0)
    model = make_model(arguments.length, characters, arguments.width, arguments.heads, arguments.layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(2e-3), loss=loss, metrics=["accuracy"])
    started = time.perf_counter()
    model.fit(inputs, targets, batch_size=arguments.batch, epochs=arguments.epochs, verbose=2)
    seconds = time.perf_counter() - started
    _, accuracy = model.evaluate(test_inputs, test_targets, batch_size=arguments.batch, verbose=0)
    guess = np.mean(test_targets == np.bincount(targets.ravel()).argmax())
    print(f"test accuracy {accuracy:.4f} (guessing: {guess:.4f}) after {arguments.epochs} epochs in {seconds:.1f} s")


if __name__ == "__main__":
    main()
