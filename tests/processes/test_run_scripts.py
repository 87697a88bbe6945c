"""``tfvolta run`` around the scripts that people have: each ends as it would without, and the plan is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.script_run import Done, run_script
from tests.stack import KERAS3, STACK

HEAD = """
import numpy as np
import tensorflow as tf
keras = tf.keras
x = np.random.RandomState(0).randn(64, 8).astype("float32")
y = x[:, :1] * 0.5

def make():
    hidden = keras.layers.Dense(16, activation="relu", name="hidden")
    return keras.Sequential([keras.Input((8,)), hidden, keras.layers.Dense(1, name="head")])

def dtypes(model):
    print("DTYPES", *[layer.compute_dtype for layer in model.layers if layer.weights])
"""
FIT = """
model = make()
model.compile("adam", "mse")
model.fit(x, y, batch_size=8, epochs=2, verbose=0)
dtypes(model)
print("END")
"""
MIXED = ("--set", "mixed_precision={policy: mixed_float16}", "--set", "xla=null", "--set", "devices=null", "--quiet")
KERAS_NAME = "tf_keras" if STACK == "tf_keras" else "keras"
KERAS_IMPORT = "import tf_keras as keras" if STACK == "tf_keras" else "import keras"


def applied(done: Done) -> None:
    """The run ended well with the precision in force."""
    assert done.code == 0, done.err[-3000:]
    assert done.evidence["status"] == "completed"
    assert done.status("retrofit") == done.status("loss_scale") == "APPLIED", done.evidence["outcomes"]
    assert "DTYPES float16 float32" in done.out and "END" in done.out


IMPORTS = {
    "keras first": f"{KERAS_IMPORT}\nimport tensorflow as tf",
    "keras second": f"import tensorflow as tf\n{KERAS_IMPORT}",
    "from tensorflow": "import tensorflow as tf\nfrom tensorflow import keras",
    "compat": "import tensorflow.compat.v2 as tf\nkeras = tf.keras",
    "a submodule first": f"from {KERAS_NAME}.layers import Dense\n{KERAS_IMPORT}\nimport tensorflow as tf",
}


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS.keys())
def test_however_keras_is_imported(tmp_path: Path, imports: str) -> None:
    head = HEAD.replace("import tensorflow as tf\nkeras = tf.keras", imports)
    applied(run_script(tmp_path, head + FIT, *MIXED))


@pytest.mark.skipif(STACK == "keras2", reason="tf_keras belongs to newer TensorFlow")
def test_the_other_keras_than_the_environment_means(tmp_path: Path) -> None:
    other = "import tf_keras as keras" if KERAS3 else "import keras"
    head = HEAD.replace("import tensorflow as tf\nkeras = tf.keras", f"{other}\nimport tensorflow as tf")
    done = run_script(tmp_path, head + FIT, *MIXED)
    applied(done)
    assert done.evidence["stack"] == ("tf_keras" if KERAS3 else "keras3")


@pytest.mark.skipif(STACK == "keras2", reason="one Keras only")
def test_a_script_that_trains_models_of_both_keras(tmp_path: Path) -> None:
    head = HEAD.replace("keras = tf.keras", "import keras, tf_keras\nkeras = tf_keras")
    done = run_script(tmp_path, head + FIT + "keras = __import__('keras')" + FIT, *MIXED)
    applied(done)
    assert done.out.count("DTYPES float16 float32") == 2 and len(done.evidence["fits"]) == 2


def test_a_policy_of_the_scripts_own_agrees_or_gives_way(tmp_path: Path) -> None:
    body = HEAD + "keras.mixed_precision.set_global_policy('mixed_bfloat16')\n" + FIT
    applied(run_script(tmp_path, body, *MIXED))


def test_a_model_half_made_before_the_scripts_own_policy(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
keras.mixed_precision.set_global_policy("float32")
inputs = keras.Input((8,))
hidden = keras.layers.Dense(16, name="hidden")(inputs)
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))
make = lambda: model
"""
        + FIT
    )
    applied(run_script(tmp_path, body, *MIXED))


def test_a_loss_scale_optimizer_of_the_scripts_own_is_not_wrapped_again(tmp_path: Path) -> None:
    wrapper = "keras.optimizers.LossScaleOptimizer" if KERAS3 else "keras.mixed_precision.LossScaleOptimizer"
    body = (
        HEAD
        + FIT.replace('"adam"', f"{wrapper}(keras.optimizers.Adam(0.01))")
        + """
inner = model.optimizer.inner_optimizer
print("INNER", type(inner).__name__)
"""
    )
    done = run_script(tmp_path, body, *MIXED)
    applied(done)
    assert "INNER Adam" in done.out


def test_a_strategy_scope_of_the_scripts_own_wins(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = make()
    model.compile("adam", "mse", steps_per_execution=3)
model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y))
dtypes(model)
print("REPLICAS", model.distribute_strategy.num_replicas_in_sync)
print("END")
"""
    )
    done = run_script(tmp_path, body, *MIXED)
    applied(done)
    assert "REPLICAS 2" in done.out
    assert done.evidence["measurements"]["throughput"]["steps"] == 16


def test_fits_in_a_function_of_another_module_and_twice(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(
        "def train(model, x, y):\n"
        "    model.fit(x, y, batch_size=8, verbose=0)\n"
        "    model.evaluate(x, y, verbose=0)\n"
        "    model.predict(x, verbose=0)\n"
        "    model.compile('sgd', 'mse')\n"
        "    model.fit(x, y, batch_size=8, epochs=3, verbose=0)\n"
    )
    body = (
        HEAD
        + "from trainer import train\n"
        + FIT.replace("model.fit(x, y, batch_size=8, epochs=2, verbose=0)", "train(model, x, y)")
    )
    done = run_script(tmp_path, body, *MIXED)
    applied(done)
    assert done.evidence["measurements"]["throughput"]["steps"] == 24
    assert done.evidence["measurements"]["throughput"]["fit"] == 2
    assert [(fit["epochs"], fit["steps"]) for fit in done.evidence["fits"]] == [(1, 8), (3, 24)]


def test_a_model_class_with_fit_and_compile_of_its_own(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="relu")
        self.head = keras.layers.Dense(1)
    def call(self, inputs):
        return self.head(self.hidden(inputs))
    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)
    def fit(self, *args, **kwargs):
        return super().fit(*args, **kwargs)
make = Own
"""
        + FIT
    )
    applied(run_script(tmp_path, body, *MIXED))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    body = """
import multiprocessing, sys
def square(n):
    print("noise", file=sys.stderr)
    return n * n
if __name__ == "__main__":
    with multiprocessing.get_context("METHOD").Pool(2) as pool:
        print("SQUARES", pool.map(square, [1, 2, 3]))
"""
    body = body.replace("METHOD", method)
    train = "\n".join("    " + line for line in (HEAD + FIT).splitlines())
    done = run_script(tmp_path, body + train, *MIXED)
    applied(done)
    assert "SQUARES [1, 4, 9]" in done.out and done.err.count("noise") == 3


def test_training_in_a_forked_child_has_evidence_of_its_own(tmp_path: Path) -> None:
    body = (
        """
import multiprocessing
def train():
"""
        + "\n".join("    " + line for line in (HEAD + FIT).splitlines())
        + """
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=train)
    child.start(); child.join()
    print("CHILD", child.exitcode)
"""
    )
    done = run_script(tmp_path, body, *MIXED)
    assert "CHILD 0" in done.out and "DTYPES float16 float32" in done.out
    parent, child = done.evidences
    assert child["outcomes"]["retrofit"]["status"] == "APPLIED" and child["status"] == "completed"
    assert parent["outcomes"]["retrofit"]["status"] == "PENDING" and parent["pid"] != child["pid"]
    assert done.code == 1 and "in this process" in done.err


def test_a_changed_working_directory_does_not_split_the_evidence(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = run_script(tmp_path, HEAD + "import os\nos.chdir('elsewhere')\n" + FIT, *MIXED)
    applied(done)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_ends_in_the_middle(tmp_path: Path) -> None:
    done = run_script(tmp_path, HEAD + FIT + "import sys\nsys.exit('enough')\n", *MIXED)
    assert done.code == 1 and "enough" in done.err and "Traceback" not in done.err
    assert done.status("retrofit") == "APPLIED" and done.evidence["error"]["type"] == "SystemExit"


def test_exit_zero_before_any_fit_is_success(tmp_path: Path) -> None:
    body = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--size')\nparser.parse_args()\n"
    done = run_script(tmp_path, body, *MIXED, arguments=("--help",))
    assert done.code == 0 and "--size" in done.out and done.evidence["status"] == "completed"


def test_an_exception_inside_fit_is_the_scripts(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        raise RuntimeError("mine")
model = make()
model.compile("adam", "mse")
model.fit(x, y, epochs=2, verbose=0, callbacks=[Stop()])
"""
    )
    done = run_script(tmp_path, body, *MIXED)
    assert done.code == 1 and "RuntimeError: mine" in done.err and "train.py" in done.err
    assert "runpy" not in done.err and done.evidence["error"]["type"] == "RuntimeError"
    assert "runpy" not in done.evidence["error"]["traceback"]


def test_a_fit_that_failed_is_followed_by_one_that_works(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
model = make()
model.compile("adam", "mse")
try:
    model.fit(x, y[:, :0], batch_size=8, verbose=0)
except Exception as error:
    print("CAUGHT")
try:
    model.fit(x, y[:3], batch_size=8, verbose=0)
except Exception as error:
    print("CAUGHT")
"""
        + FIT.replace('model = make()\nmodel.compile("adam", "mse")\n', "")
    )
    done = run_script(tmp_path, body, *MIXED)
    applied(done)
    assert done.out.count("CAUGHT") >= 1


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = run_script(tmp_path, "x = 1\nprint('hello'\ny = 2\n", *MIXED)
    assert done.code == 1 and "SyntaxError" in done.err and 'File "train.py", line 2' in done.err
    assert "Traceback" not in done.err and "runpy" not in done.err
    assert done.evidence["status"] == "failed" and "runpy" not in done.evidence["error"]["traceback"]


def test_a_broken_import_keeps_the_frames_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    done = run_script(tmp_path, "import broken\n", *MIXED)
    assert done.code == 1 and "train.py" in done.err and "broken.py" in done.err and "runpy" not in done.err


def test_a_script_under_a_folder_named_like_the_runner(tmp_path: Path) -> None:
    folder = tmp_path / "runpy_tfvolta"
    folder.mkdir()
    done = run_script(folder, "raise KeyError('mine')\n", *MIXED)
    assert done.code == 1 and done.err.count("KeyError: 'mine'") == 1 and 'File "train.py", line 1' in done.err


def test_a_refusal_that_the_script_catches_still_fails_the_run(tmp_path: Path) -> None:
    body = (
        HEAD
        + """
tf.constant(1.0)
model = make()
model.compile("adam", "mse", run_eagerly=True)
try:
    model.fit(x, y, verbose=0)
except Exception:
    print("SWALLOWED")
"""
    )
    done = run_script(tmp_path, body, "--set", "xla={jit: model}", "--set", "mixed_precision=null", "--quiet")
    assert "SWALLOWED" in done.out
    assert done.code == 2 and "run_eagerly" in done.err and done.evidence["status"] == "failed"
    assert "Traceback" not in done.err
