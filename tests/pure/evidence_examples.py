"""Evidence as runs leave it, for tests of reports."""

from __future__ import annotations

from typing import Any

from tfvolta.errors import Problem
from tfvolta.evidence.schema import Evidence
from tfvolta.facts.schema import Cpu, Facts, Gpu


def facts(**changes: Any) -> Facts:
    gpu = Gpu(index=0, name="Tesla V100-SXM2-16GB", memory_mb=16160, compute_capability=(7, 0))
    fields: dict[str, Any] = {"host": "node1", "gpus": (gpu,), "cpu": Cpu(cores=40, memory_mb=500000)}
    return Facts(**{**fields, **changes})


def step(knob: str, value: Any, status: str = "APPLIED", **more: Any) -> dict[str, Any]:
    return {"knob": knob, "keys": [f"section.{knob}"], "phase": "devices", "value": value, "status": status, **more}


def outcome(status: str, message: str = "", **more: Any) -> dict[str, Any]:
    applied_at = "2026-03-01T12:00:01.000Z" if status in ("APPLIED", "UNVERIFIABLE") else None
    fields = {"status": status, "message": message, "phase": "devices", "applied_at": applied_at}
    return {**fields, **more}


def evidence(**changes: Any) -> Evidence:
    """A completed run of two settings on a V100, with a throughput."""
    fields: dict[str, Any] = {
        "run_id": "20260301T120000Z-ab12",
        "status": "completed",
        "started": "2026-03-01T12:00:00.000Z",
        "updated": "2026-03-01T12:01:30.000Z",
        "ended": "2026-03-01T12:01:30.000Z",
        "command": ["tfvolta", "run", "train.py"],
        "script": "/home/me/train.py",
        "stack": "keras3",
        "config": {
            "values": {"devices": {"memory_growth": True}, "xla": {"jit": "auto"}},
            "provenance": {"devices.memory_growth": "a.yaml:3", "xla": "a.yaml:5"},
        },
        "facts": facts(),
        "versions": {"tensorflow": "2.21.0", "keras": "3.15.1"},
        "plan": [step("memory_growth", True), step("jit", "auto", message="decided at fit")],
        "outcomes": {
            "memory_growth": outcome("APPLIED", "1 of 1 GPUs grow", observed={"gpus": 1}, value=True),
            "jit": outcome("APPLIED", "the train step is compiled: MatMul[float16] inside", value="auto"),
        },
        "measurements": {
            "throughput": {"examples_per_second": 2000.0, "step_seconds": 0.032, "epochs": [{"steps": 3}]},
        },
    }
    return Evidence.model_validate({**fields, **changes})


PROBLEM = Problem("a.yaml:3: math.tf32", "a newer GPU", "Tesla V100", why="Volta has no TF32", fix="remove math.tf32")
