"""What pages are about, made by hand: runs with every measurement, a search, a bench."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.pure.bench_results import entry, lap
from tests.pure.evidence_examples import PROBLEM, evidence, outcome, step
from tfvolta.bench.judged import Band, Comparison, Gate
from tfvolta.bench.measured import Span
from tfvolta.bench.result import BenchResult
from tfvolta.callbacks.step_sample import step_sample
from tfvolta.evidence.schema import Evidence
from tfvolta.page.subject import Subjects
from tfvolta.tune.result import TuneResult

NASTY = "</style></script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&\x00\ud800"


def run(run_id: str = "first", seed: int = 0, epochs: int = 12, **changes: Any) -> Evidence:
    """A run on a GPU that has every measurement, with settings in all outcomes."""
    chance = random.Random(seed)
    times = [chance.lognormvariate(-3.4, 0.2) for _ in range(3000)]
    rate = 2000.0 + 100 * seed
    throughput = {
        "examples_per_second": rate,
        "step_seconds_median": 0.033,
        "step_seconds_mad": 0.004,
        "n": len(times),
        "step_times": "execution",
        "epochs": [{"epoch": n, "steps": 250, "examples_per_second": rate + 5 * (n % 3)} for n in range(epochs)],
        "step_sample": step_sample(times),
    }
    device = {"current_bytes": 2 * 2**30, "peak_bytes": 9 * 2**30}
    records = [{"epoch": n, "devices": {"GPU:0": device}} for n in range(epochs)]
    scales = [{"epoch": n, "batch": None, "scale": 2.0 ** (15 - n % 3)} for n in range(epochs)]
    compiled = {"function": "train", "epoch": 0, "step": 0, "seconds": 9.0, "traced": True, "compiled": True}
    measured = {
        "throughput": throughput,
        "memory": {"peak_bytes": {"GPU:0": 9 * 2**30}, "unavailable": {}, "records": records},
        "loss_scale": {"scale": 8192.0, "attempted": 3000, "applied": 2997, "skipped": 3, "records": scales},
        "compilations": {"compilations": 1, "compile_seconds": 8.9, "entries": [{**compiled, "shapes": ["(64, 8)"]}]},
    }
    statuses = ("APPLIED", "NO_EFFECT", "LATE", "NOT_APPLICABLE", "UNVERIFIABLE", "PENDING")
    fields = {
        "run_id": run_id,
        "measurements": measured,
        "plan": [step(status.lower(), True, origin="a.yaml:3") for status in statuses],
        "outcomes": {status.lower(): outcome(status, f"reason of {status}") for status in statuses},
        "contradictions": [PROBLEM],
    }
    return evidence(**{**fields, **changes})


def nasty() -> Evidence:
    """A run in which every text that a user or a library can choose is an attack."""
    return run(
        script=f"/home/me/{NASTY}.py",
        command=["tfvolta", "run", NASTY],
        warnings=[NASTY],
        contradictions=[],
        versions={NASTY: NASTY},
        outcomes={NASTY: outcome("LATE", NASTY)},
        plan=[step(NASTY, NASTY, message=NASTY, origin=NASTY)],
        error={"type": "ValueError", "message": NASTY, "traceback": NASTY},
        measurements={
            NASTY: {NASTY: NASTY},
            "memory": {"peak_bytes": {NASTY: 1.0}, "unavailable": {NASTY: NASTY}, "records": []},
            "compilations": {"entries": [{"function": NASTY, "shapes": [NASTY]}], "not_compiled": NASTY},
        },
    )


def search(**changes: Any) -> TuneResult:
    """A search with a gain and an ablation."""
    ratio = {"estimate": 1.4, "low": 1.2, "high": 1.6, "confidence": 0.95, "pairs": 5, "method": "Student's t"}
    baseline = {"ending": "measured", "examples_per_second": 100.0, "peak_bytes": {"GPU:0": 2**30}, "loss": 1.0}
    best = {**baseline, "number": 1, "examples_per_second": 140.0, "settings": {"xla.jit": "model"}}
    row = {"setting": "xla.jit", "value": "model", "without": None, "ratio": ratio, "verdict": "gain"}
    fields: dict[str, Any] = {
        "created": "2026-03-01T12:00:00.000Z",
        "command": ["tfvolta", "tune", "train.py"],
        "reproduce": "tfvolta tune --try xla.jit=model train.py",
        "script": "train.py",
        "fingerprint": "ab12",
        "machine": {"stack": "keras3", "cores": 8, "memory_mb": 1000, "gpus": ["Tesla V100"]},
        "versions": {},
        "seeds": [0, 1],
        "space": [],
        "combinations": 24,
        "baseline": baseline,
        "best": best,
        "trials": [{**baseline, "number": 0}, best, {"ending": "out of memory", "reason": "8 GiB", "number": 2}],
        "gain": ratio,
        "verdict": "gain",
        "sentence": "Gain: xla.jit=model trains at 1.40x.",
        "ablation": [row, {**row, "setting": "fit", "ratio": None, "verdict": "not measured", "note": "crash"}],
        "overhead": {"trial_seconds": 100, "tuner_seconds": 1, "tuner_cpu_seconds": 1, "share": 0.01},
    }
    return TuneResult.model_validate({**fields, **changes})


def bench() -> BenchResult:
    """A bench with a comparison that is no win and a gate that this machine has not."""
    span = Span(estimate=1.1, low=0.9, high=1.3, confidence=0.97)
    one = Comparison(
        treated="jit", reference="none", throughput=span, epoch_time=span, by_seed=(1.1,), n=6, band=Band(),
        wins=False, why=("no gain shown",),
    )  # fmt: skip
    return BenchResult(
        created="2026-03-01T12:00:00.000Z", command=("tfvolta", "bench", "mlp"), model="mlp", description="", sizes={},
        steps=10, warmup_epochs=1, rounds=6, seeds=(0,), method=("in turns",),
        entries=(entry("none", lap([1.0] * 6)), entry("jit", lap([0.9] * 6))), comparisons=(one,),
        gates=(Gate(stage="one node", reason="one GPU"),),
    )  # fmt: skip


def subjects(*runs: Evidence, **more: Any) -> Subjects:
    """Runs with their files, and what else is given."""
    return Subjects(runs=tuple((Path(f"runs/{each.run_id}/evidence.json"), each) for each in runs), **more)
