"""What the default config decides for the models of the examples where there are GPUs; it can be asked without one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import tfvolta
from tests.stack import KERAS3, STACK, keras
from tfvolta.facts.record import load
from tfvolta.knobs.jit import Jit
from tfvolta.session import Origin, Session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL: dict[str, tuple[Any, ...]] = {
    "resnet": (8, 8, (1, 1)),
    "transformer": (16, 103, 16, 2, 1),
    "lstm": (8, 16, 1),
}


def decided(name: str, tmp_path: Path) -> Any:
    """The decision of ``xla.jit: auto`` for an example's model on a DGX-1."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.make_model(*SMALL[name])
    if KERAS3 and name == "lstm":
        lstm = next(each for each in model.layers if isinstance(each, keras.layers.LSTM))
        lstm.supports_jit = False  # as Keras 3 has it where there is a GPU, for cuDNN
    config = tfvolta.load_config("tfvolta:default", overrides=[f"run.directory={tmp_path}"])
    facts = load("dgx1").model_copy(update={"stack": STACK})
    session = Session(config, facts=facts, stack=STACK, origin=Origin(record=False))
    session.context.model = model
    return Jit().decide("auto", session.context)


@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_xla_compiles_what_it_serves(name: str, tmp_path: Path) -> None:
    decision = decided(name, tmp_path)
    assert decision.on and "One compiled step fuses" in decision.reason


def test_the_lstm_stays_with_cudnn(tmp_path: Path) -> None:
    decision = decided("lstm", tmp_path)
    assert not decision.on and " (LSTM)" in decision.reason
