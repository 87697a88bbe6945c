"""What XLA compiled in one run is loaded in the next, with the same results; where that ends training it is refused."""

from __future__ import annotations

import pathlib

from tests.processes.script_run import run_script
from tests.stack import STACK

BODY = """
    import sys, numpy as np, {package} as keras
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(16, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.random.default_rng(0).random((32, 8)).astype("float32")
    print("LOSS", model.fit(x, x[:, :1], batch_size=16, verbose=0, shuffle=False).history["loss"])
"""


def test_a_second_run_loads_what_the_first_compiled(tmp_path: pathlib.Path) -> None:
    body = BODY.format(package="tf_keras" if STACK == "tf_keras" else "keras")
    options = ("--set", "xla.jit=model", "--set", "xla.cache_directory=kept")
    first = run_script(tmp_path, body, *options)
    if STACK == "keras2":
        assert first.code != 0 and "TargetRegistry::lookupTarget" in first.out + first.err
        assert "remove xla.cache_directory" in first.out + first.err
        return
    second = run_script(tmp_path, body, *options)
    assert first.code == second.code == 0, first.err + second.err
    seen = [evidence["outcomes"]["xla_cache"] for evidence in second.evidences]
    assert [each["status"] for each in seen] == ["APPLIED", "APPLIED"]
    assert seen[0]["observed"]["stored"] == seen[1]["observed"]["before"] > 0
    assert seen[0]["observed"]["before"] == seen[1]["observed"]["stored"] == 0
    losses = [[line for line in run.out.splitlines() if line.startswith("LOSS")] for run in (first, second)]
    assert losses[0] == losses[1]
