"""The gradient monitor as a callback and from a config: groups of layers, evidence, patterns that match nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.util import event_pb2

import tfvolta
from tests.stack import keras, tf
from tfvolta.errors import ConfigError, EvidenceWarning, NoEffectError
from tfvolta.evidence.reading import latest, read
from tfvolta.outcome import Status

X, Y = np.ones((12, 4), "float32"), np.ones((12, 1), "float32")


def dense(name: str, units: int, **arguments: Any) -> Any:
    return keras.layers.Dense(units, use_bias=False, kernel_initializer="ones", name=name, **arguments)


def block(name: str) -> Any:
    return keras.Sequential([keras.Input((4,)), dense(f"{name}_a", 4), dense(f"{name}_b", 4)], name=name)


def model() -> Any:
    """Two blocks and a head; with all weights 1 and inputs 1 every gradient can be written down."""
    inputs = keras.Input((4,))
    outputs = dense("head", 1)(block("second")(block("first")(inputs)))
    made = keras.Model(inputs, outputs)
    made.compile(keras.optimizers.SGD(0.0), "mse")
    return made


def fit(trained: Any, callbacks: Any, epochs: int = 1) -> None:
    trained.fit(X, Y, batch_size=2, epochs=epochs, verbose=0, shuffle=False, callbacks=callbacks)


def test_each_layer_below_the_model_is_a_group() -> None:
    monitor = tfvolta.callbacks.GradientMonitor(every_steps=4)
    fit(model(), [monitor], epochs=2)
    assert [(row["step"], row["epoch"]) for row in monitor.rows] == [(1, 0), (5, 0), (9, 1)]
    groups = monitor.rows[0]["groups"]
    assert set(groups) == {"first", "second", "head"}
    outputs = 4.0**5  # of five layers, each the sum of four
    error = 2 * (outputs - 1)
    # The head sees inputs of 4**4 in its four weights; what is before it gets the error through weights of 1.
    assert groups["head"]["norm"] == pytest.approx(error * 4.0**4 * 2, rel=1e-5)
    parts = [error * 4.0**4 for _ in range(2)]  # each of a block's 16 weights: its input times the paths behind it
    assert groups["first"]["norm"] == pytest.approx(np.sqrt(sum(16 * (each / 4) ** 2 for each in parts)), rel=1e-5)
    assert groups["first"]["elements"] == 32 and monitor.rows[0]["all"]["elements"] == 68
    assert monitor.summary()["samples"] == 3


def test_patterns_are_groups_and_the_rest_is_one() -> None:
    monitor = tfvolta.callbacks.GradientMonitor(groups=["*_b", "first", "InputLayer"])
    fit(model(), [monitor])
    elements = {name: figures["elements"] for name, figures in monitor.rows[0]["groups"].items()}
    assert elements == {"*_b": 32, "first": 16, "other layers": 20}


def test_a_pattern_without_a_layer_names_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="instead of frist write first"):
        fit(model(), [tfvolta.callbacks.GradientMonitor(groups=["frist"])])
    with pytest.raises(ConfigError, match="every_steps"):
        tfvolta.callbacks.GradientMonitor(every_steps=0)


def test_a_config_puts_the_rows_into_the_evidence(tmp_path: Path) -> None:
    section = {"every_steps": 3, "groups": ["Dense"]}
    config = tfvolta.load_config(run={"directory": str(tmp_path)}, gradient_monitor=section)
    fit(model(), tfvolta.build_callbacks(config))
    evidence = read(latest(tmp_path))
    assert evidence.outcomes["gradient_monitor"].status is Status.APPLIED
    rows = evidence.measurements["gradients"]["rows"]
    assert [row["step"] for row in rows] == [1, 4] and set(rows[0]["groups"]) == {"Dense"}
    wrong = tfvolta.load_config(run={"directory": str(tmp_path)}, gradient_monitor={"groups": ["densse"]})
    with pytest.raises(NoEffectError, match="instead of densse write Dense"):
        fit(model(), tfvolta.build_callbacks(wrong))


def test_mixed_precision_shows_true_norms(tmp_path: Path) -> None:
    config = tfvolta.load_config(
        run={"directory": str(tmp_path)},
        mixed_precision={"policy": "mixed_float16", "loss_scale": {"initial": 16.0}},
        gradient_monitor={"every_steps": 1},
    )
    trained = model()
    callbacks = tfvolta.build_callbacks(config)
    trained.fit(X / 64, Y, batch_size=2, verbose=0, shuffle=False, callbacks=callbacks)
    monitor = next(each for each in callbacks if isinstance(each, tfvolta.callbacks.GradientMonitor))
    row = monitor.rows[0]
    inputs = 4.0**4 / 64
    assert row["loss_scale"] == 16.0
    assert row["groups"]["head"]["norm"] == pytest.approx(2 * (4 * inputs - 1) * inputs * 2, rel=2e-3)


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard would read from the event files of a folder: tag, step, value."""
    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = event_pb2.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_tensorboard_reads_the_same_figures_over_several_fits(tmp_path: Path) -> None:
    section = {"every_steps": 4, "groups": ["*_b", "first"], "tensorboard": str(tmp_path / "board" / "deep")}
    policy = {"policy": "mixed_float16", "loss_scale": {"initial": 16.0}}
    config = tfvolta.load_config(run={"directory": str(tmp_path)}, gradient_monitor=section, mixed_precision=policy)
    trained = model()
    fit(trained, tfvolta.build_callbacks(config))
    evidence = read(latest(tmp_path))
    outcome = evidence.outcomes["gradient_monitor"]
    assert outcome.status is Status.APPLIED and outcome.observed["tensorboard"] == section["tensorboard"]
    rows = evidence.measurements["gradients"]["rows"]
    found = scalars(Path(section["tensorboard"]))
    assert outcome.observed["scalars"] == len(found) == 4 * 7 + 1
    for row in rows:
        assert found["gradients/loss_scale"][row["step"]] == row["loss_scale"]
        for group, figures in {**row["groups"], "all": row["all"]}.items():
            for name in ("norm", "zero_share", "underflow_share", "overflow", "non_finite"):
                seen = found[f"gradients/{group}/{name}"][row["step"]]
                assert seen == pytest.approx(figures[name], rel=1e-6), (group, name)
    fit(trained, tfvolta.build_callbacks(config))
    steps = sorted(scalars(Path(section["tensorboard"]))["gradients/first/norm"])
    assert steps == [1, 5, 7, 11]  # six steps a fit: the second goes on where the first ended


def test_a_board_that_cannot_be_written_is_no_success(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    section = {"every_steps": 4, "tensorboard": str(taken)}
    config = tfvolta.load_config(run={"directory": str(tmp_path / "runs")}, gradient_monitor=section)
    with pytest.raises(NoEffectError, match=r"gradient_monitor\.tensorboard: a writable folder"):
        fit(model(), tfvolta.build_callbacks(config))
    with pytest.warns(EvidenceWarning, match="No scalars for TensorBoard"):
        monitor = tfvolta.callbacks.GradientMonitor(every_steps=4, tensorboard=str(taken))
        fit(model(), [monitor])
    assert monitor.samples == 2  # training went on
