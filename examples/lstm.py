"""Trains an LSTM to tell from the name of a Unicode character what kind it is; prints its test accuracy.

The names come with Python: LATIN SMALL LETTER A is a small letter, EURO SIGN a symbol. Nothing is downloaded.
Full size on a GPU: lstm.py --width 1024 --layers 2 --length 80 --batch 256
"""

import argparse
import sys
import time
import unicodedata

import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers

# Kinds by Unicode's general categories.
KINDS = (("Lu",), ("Ll",), ("Lo", "Lm"), ("Mn", "Mc", "Me"), ("Nd", "Nl", "No"), ("Pd", "Ps", "Pe", "Po"), ("Sm", "So"))
ALPHABET = " -0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def load_data(length, rows):
    """The last letters of names as numbers, 0 before a name that is shorter, and the kinds; a fifth is for testing.

    Args:
        length: Letters of a name that are looked at.
        rows: Names of each kind at most.
    """
    kind_of = {category: kind for kind, categories in enumerate(KINDS) for category in categories}
    names = [[] for _ in KINDS]
    for character in map(chr, range(sys.maxunicode + 1)):
        kind, name = kind_of.get(unicodedata.category(character)), unicodedata.name(character, "")
        if kind is not None and name and not name.startswith(("CJK", "HANGUL", "TANGUT", "EGYPTIAN", "CUNEIFORM")):
            names[kind].append(name)
    shuffle = np.random.RandomState(0)
    pairs = [(name, kind) for kind, found in enumerate(names) for name in shuffle.permutation(found)[:rows]]
    pairs = [pairs[number] for number in shuffle.permutation(len(pairs))]
    inputs = np.zeros((len(pairs), length), "int32")
    for row, (name, _) in enumerate(pairs):
        letters = [ALPHABET.index(letter) + 1 for letter in name[-length:]]
        inputs[row, length - len(letters) :] = letters
    kinds = np.array([kind for _, kind in pairs], "int32")
    split = len(pairs) * 4 // 5
    return inputs[:split], kinds[:split], inputs[split:], kinds[split:]


def make_model(length, width, count):
    """An embedding, LSTM layers, and a score for each kind."""
    inputs = layers.Input((length,), dtype="int32")
    x = layers.Embedding(len(ALPHABET) + 1, width)(inputs)
    for number in range(count):
        x = layers.LSTM(width, return_sequences=number < count - 1)(x)
    return keras.Model(inputs, layers.Dense(len(KINDS), activation="softmax")(x), name="lstm")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=32, help="letters of a name")
    parser.add_argument("--rows", type=int, default=600, help="names of each kind")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    arguments = parser.parse_args()

    inputs, kinds, test_inputs, test_kinds = load_data(arguments.length, arguments.rows)
    keras.utils.set_random_seed(0)
    model = make_model(arguments.length, arguments.width, arguments.layers)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    started = time.perf_counter()
    model.fit(inputs, kinds, batch_size=arguments.batch, epochs=arguments.epochs, verbose=2)
    seconds = time.perf_counter() - started
    _, accuracy = model.evaluate(test_inputs, test_kinds, batch_size=arguments.batch, verbose=0)
    guess = np.bincount(test_kinds).max() / len(test_kinds)
    print(f"test accuracy {accuracy:.4f} (guessing: {guess:.4f}) after {arguments.epochs} epochs in {seconds:.1f} s")


if __name__ == "__main__":
    main()
