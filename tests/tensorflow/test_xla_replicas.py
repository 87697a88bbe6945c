"""Compiling a step of several replicas: refused before training, whoever made the strategy."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
import numpy as np
from tests.stack import STACK, keras, tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tfvolta
from tests.pure.recorded_context import H200, machine
from tfvolta.callbacks import ApplyPlan, XlaJit
from tfvolta.config import load_config
from tfvolta.errors import NoEffectError, NoEffectWarning, PlanError
from tfvolta.facts.schema import TensorFlowBuild
from tfvolta.session import Origin, Session

warnings.simplefilter("ignore", UserWarning)
data = tf.data.Dataset.from_tensor_slices((np.ones((8, 2), "f"), np.ones((8, 1), "f"))).batch(4)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def made():
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
    return model


def steps(model):
    return int(model.optimizer.iterations.numpy())


model = made()
try:
    model.fit(data, verbose=0, callbacks=[XlaJit(True)])
except NoEffectError as error:
    assert steps(model) == 0
    for part in ("jit_compile=True", "2 replicas", "xla.jit: clustering", "auto"):
        assert part in str(error), part
    print("refused")

model = made()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(data, verbose=0, callbacks=[XlaJit(True, strict=False)])
assert any(issubclass(each.category, NoEffectWarning) for each in caught)
assert steps(model) == 2
print("warned")

build = TensorFlowBuild(version="2.21.0", cuda_version="12.5", compute_capabilities=("compute_90",))
gpu = machine(H200, tensorflow=build).model_copy(update={"stack": STACK})
session = Session(load_config(xla={"jit": "auto"}), gpu, origin=Origin(record=False))
model = made()
model.fit(data, verbose=0, callbacks=[ApplyPlan(session)])
outcome = session.endings["jit"].outcome
assert outcome.status.value == "APPLIED" and "2 replicas" in outcome.message, outcome
assert steps(model) == 2
print("downgraded")

config = load_config(
    xla={"jit": "model"}, strategy={"kind": "mirrored", "devices": ["CPU:0", "CPU:1"]}, run={"directory": sys.argv[1]}
)
for call in (tfvolta.build_strategy, tfvolta.build_callbacks):
    try:
        call(config)
    except PlanError as error:
        assert "xla.jit: model with 2 replicas" in str(error) and "clustering" in str(error), error
        print("planned")
"""


def test_several_replicas_are_refused_everywhere(tmp_path: pathlib.Path) -> None:
    """One process for all, because a second CPU has to be made before TensorFlow starts."""
    root = pathlib.Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    script = tmp_path / "replicas.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "runs")], capture_output=True, text=True, env=environ, cwd=root
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["refused", "warned", "downgraded", "planned", "planned"]


COMMAND = """
import numpy as np
import tensorflow as tf
import {package} as keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2), "f"), np.ones((8, 1), "f"), verbose=0)
print("trained")
"""


@pytest.mark.parametrize("own", [False, True])
def test_tfvolta_run_refuses_it_too(tmp_path: pathlib.Path, own: bool) -> None:
    from tests.stack import STACK

    root = pathlib.Path(__file__).parents[2]
    script = tmp_path / "train.py"
    text = COMMAND.format(package="tf_keras" if STACK == "tf_keras" else "keras")
    options = ["--set", "xla.jit=model"]
    if own:
        text = text.replace(
            "model = ",
            "cpu = tf.config.list_physical_devices('CPU')[0]\n"
            "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)\n"
            "tf.distribute.experimental_set_strategy(tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']))\n"
            "model = ",
        )
    else:
        options += ["--set", "strategy.kind=mirrored", "--set", "strategy.logical_cpus=2"]
        options += ["--set", "strategy.devices=[CPU:0, CPU:1]"]
    script.write_text(text, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tfvolta", "run", "--directory", str(tmp_path / "runs"), *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "trained" not in done.stdout
    assert "2 replicas" in done.stderr and "clustering" in done.stderr
    assert "Traceback" not in done.stderr
