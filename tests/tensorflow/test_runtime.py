"""What has happened in a live process, seen in sub-processes that make it happen in one way each."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

REPORT = """
import sys
from tfvolta.bridge import runtime
def report(label):
    seen = runtime.tensorflow_imported, runtime.devices_listed, runtime.context_initialized, runtime.xla_compiled
    print(label, *(look() for look in seen))
"""


def _run(body: str) -> dict[str, list[bool]]:
    code = REPORT + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines() if line]
    return {label: [word == "True" for word in words] for label, *words in lines}


def test_moments_pass_in_their_order_and_looking_changes_nothing() -> None:
    seen = _run(
        """
        report("start")
        assert "tensorflow" not in sys.modules
        import tensorflow as tf
        report("imported")
        report("again")
        tf.config.list_physical_devices("GPU")
        report("listed")
        tf.constant(1.0) + 1
        report("initialized")
        f = tf.function(lambda x: x + 1)
        f(tf.constant(1.0))
        report("traced")
        g = tf.function(lambda x: x * 2, jit_compile=True)
        report("defined")
        g(tf.constant(1.0))
        report("compiled")
        """
    )
    assert seen == {
        "start": [False, False, False, False],
        "imported": [True, False, False, False],
        "again": [True, False, False, False],
        "listed": [True, True, False, False],
        "initialized": [True, True, True, False],
        "traced": [True, True, True, False],
        "defined": [True, True, True, False],
        "compiled": [True, True, True, True],
    }


@pytest.mark.parametrize(
    "statement",
    [
        "import tensorflow.compat.v2 as tf",
        "from tensorflow.python.framework import dtypes",
        "import keras",
        "from tensorflow import data",
    ],
)
def test_seen_however_tensorflow_was_imported(statement: str) -> None:
    seen = _run(
        f"""
        {statement}
        report("imported")
        import tensorflow
        tensorflow.data.Dataset.range(3)
        report("data")
        """
    )
    assert seen["imported"][:1] == [True] and not seen["imported"][2]
    assert seen["data"][2], "a data set initialises the context"


def test_seen_from_another_thread() -> None:
    seen = _run(
        """
        import tensorflow as tf, threading
        thread = threading.Thread(target=lambda: tf.constant(1.0) + 1)
        thread.start(); thread.join()
        report("thread")
        """
    )
    assert seen["thread"][2]
