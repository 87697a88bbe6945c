"""Runs of a made-up project, as tfvolta leaves them, for tests of the history."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from tests.pure.evidence_examples import evidence
from tfvolta.config.loading import load_config
from tfvolta.evidence.store import EvidenceStore
from tfvolta.history import keeping

BASE = "# What this project trains with.\nrun: {seed: 7}  # fixed\nxla:\n  jit: 'off'\n"
TUNED = BASE.replace("'off'", "model")


class Project:
    """A folder with a script, a config file and runs.

    Attributes:
        folder: Of the project.
        runs: Of its runs.
        config: Its config file.
        script: Its training script.
    """

    def __init__(self, folder: Path):
        self.folder, self.runs = folder, folder / "runs"
        self.config, self.script = folder / "own.yaml", folder / "train.py"
        self.script.write_text("import keras\n")
        self.config.write_text(BASE)

    def run(self, number: int, overrides: Sequence[str] = (), **changes: Any) -> Path:
        """Leaves a completed run of the config file as it is now; its folder."""
        config = load_config(str(self.config), overrides=overrides)
        fields: dict[str, Any] = {
            "run_id": f"run-{number}",
            "started": f"2026-03-01T12:{number:02d}:00.000Z",
            "command": ["tfvolta", "run", "--config", str(self.config), str(self.script), "--epochs", "2"],
            "script": str(self.script),
            "config": {
                "values": config.model_dump(mode="json"),
                "provenance": {key: str(origin) for key, origin in config.provenance.items()},
            },
            "fits": [fit()],
            "measurements": measured(),
        }
        own = evidence(**{**fields, **changes})
        store = EvidenceStore.create(self.runs, own.run_id)
        store.write(own)
        keeping.sources.cache_clear()
        keeping.keep(store.directory, own.run_id, config.given, str(self.script), own.facts)
        return store.directory

    def git(self, *words: str) -> str:
        """Runs git in the project."""
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        done = subprocess.run(["git", *who, *words], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()


def fit(rate: float = 100.0, losses: Optional[Mapping[str, float]] = None, **changes: Any) -> dict[str, Any]:
    """A fit of 60 steps of 16 examples in an epoch, as evidence has it."""
    held = {"0": 0.8, "1": 0.4} if losses is None else losses
    steps = 60 * len(held)
    return {
        "model": "sequential",
        "class": "Sequential",
        "steps": steps,
        "timed_steps": steps - 2,
        "timed_seconds": (steps - 2) / rate,
        "examples_per_second": 16 * rate,
        "loss": list(held.values())[-1],
        "losses": dict(held),
        "seed": 7,
        **changes,
    }


def measured(**changes: Any) -> dict[str, Any]:
    """Measurements of a run on one GPU."""
    return {
        "throughput": {"examples_per_second": 1600.0, "step_seconds_median": 0.01, "timed_steps": 118},
        "memory": {"peak_bytes": {"GPU:0": 2**30}},
        **changes,
    }


def content(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
