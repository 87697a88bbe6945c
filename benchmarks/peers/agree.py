#!/usr/bin/env python3
"""Do both sides train the same model? Losses step by step in float32 on a CPU, from the same weights and data.

    python3 benchmarks/peers/agree.py --torch-python PYTHON                       # 20 steps of each tiny model
    python3 benchmarks/peers/agree.py --torch-python PYTHON --full --batch 4      # one step at full size
    python3 benchmarks/peers/agree.py --torch-python PYTHON --legacy              # tf_keras instead of Keras 3

Exit code 1: losses of a model differ by more than the band.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.peers.workloads import MODELS  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
FIRST = 1e-2  # of the first losses, absolute: the same weights, data and arithmetic but for its order
BAND = 0.05  # of every later loss, relative to the first one: rounding grows from step to step
LIMIT_SECONDS = 500


def losses(python: str, side: str, arguments: Sequence[str], legacy: bool = False) -> list[float]:
    """Losses of an epoch of one step each.

    Args:
        python: Interpreter that has the framework.
        side: ``torch`` or ``keras``.
        arguments: Of the script.
        legacy: tf_keras instead of Keras 3.

    Raises:
        subprocess.CalledProcessError: The script failed.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environ["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    command = [python, str(HERE / f"{side}_script.py"), *arguments]
    ran = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True, timeout=LIMIT_SECONDS)
    return parsed(ran.stdout.decode(), side)


def parsed(text: str, side: str) -> list[float]:
    """Losses in what a script printed."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if side == "keras":
        return list(map(float, ast.literal_eval(lines[-1])["loss"]))
    rows = [json.loads(line) for line in lines]
    return [row["first_loss"] if "first_loss" in row else row["loss"] for row in rows]


def compared(model: str, ours: Sequence[float], peer: Sequence[float]) -> dict[str, Any]:
    """How far the losses of a model are from each other, and whether that is within the band.

    Raises:
        ValueError: The sides made different numbers of steps, or none.
    """
    if not ours or len(ours) != len(peer):
        raise ValueError(f"{model}: {len(ours)} losses against {len(peer)}")
    gaps = [abs(a - b) for a, b in zip(ours, peer)]
    agrees = gaps[0] <= FIRST and all(gap <= BAND * peer[0] for gap in gaps)  # a NaN is within no band
    return {
        "model": model,
        "agrees": agrees,
        "steps": len(gaps),
        "first_gap": gaps[0],
        "largest_gap_of_first_loss": max(gaps) / peer[0],
        "keras": list(ours),
        "torch": list(peer),
    }


def main(given: Optional[Sequence[str]] = None) -> int:
    arguments = parser().parse_args(given)
    agree = True
    for model in arguments.models:
        script = [model, "--steps", "1", "--epochs", "1" if arguments.full else str(arguments.steps)]
        script += ["--batch", str(arguments.batch)] if arguments.batch else []
        script += [] if arguments.full else ["--tiny"]
        peer = losses(arguments.torch_python, "torch", [*script, "--compile", "off"])
        row = compared(model, losses(sys.executable, "keras", script, arguments.legacy), peer)
        row = {"size": "full" if arguments.full else "tiny", "legacy": arguments.legacy, **row}
        print(json.dumps(row), flush=True)
        agree &= row["agrees"]
    return 0 if agree else 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--torch-python", default=sys.executable, help="interpreter that has PyTorch")
    found.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    found.add_argument("--steps", type=int, default=20, help="of the tiny models")
    found.add_argument("--full", action="store_true", help="one step at full size")
    found.add_argument("--batch", type=int, help="examples of a step")
    found.add_argument("--legacy", action="store_true", help="tf_keras instead of Keras 3")
    return found


if __name__ == "__main__":
    sys.exit(main())
