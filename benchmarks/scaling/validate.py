"""Predicts every published V100 row from topology, gradient sizes and the published one-GPU rate.

    python benchmarks/scaling/validate.py            # writes results.json and results.md beside this file

``published_v100.json`` holds the rows, ``tfvolta.cost`` the model. Two constants of the model are fitted here by least
squares, each on rows that are named in the results; all others come from the sources in tfvolta/cost. Errors are in
percentage points of scaling efficiency, predicted less measured. For rows that a constant was fitted on, the
error with that row left out of the fit is given too.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import sys
from typing import Any, Callable, Iterator, Sequence

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]

from published import Row, fabric_of, rows  # noqa: E402
from report import markdown  # noqa: E402

from tfvolta.cost.reduction import reduce  # noqa: E402
from tfvolta.cost.scaling import FITTED, Waiting, Workload, pass_ms_of, predict  # noqa: E402
from tfvolta.cost.spread import slowdown  # noqa: E402

WITHIN_POINTS = 5.0
# A row that has more machines and an efficiency higher by this contradicts the one with fewer.
CONTRADICTION_POINTS = 10.0
FAMILIES = ("resnet", "bert", "electra")


def efficiency(row: Row, waiting: Waiting = FITTED) -> float:
    """Predicted efficiency of a row against its base, 0 to 1."""
    base = dataclasses.replace(row.reduction, reduce_every=row.base_passes)
    pass_ms = row.step_ms / row.base_passes
    if row.base_gpus > 1:
        pass_ms = pass_ms_of(fabric_of(row.machine, row.base_gpus), row.gradients, base, row.step_ms, waiting)
    own = dataclasses.replace(row.reduction, reduce_every=row.passes)
    return row.passes_ms / predict(row.fabric, Workload(row.gradients, pass_ms), own, waiting).step_ms


def fit(selected: Sequence[Row], waiting: Callable[[float], Waiting]) -> float:
    """The constant with the least sum of squared errors, by Gauss and Newton's method."""
    value, step = 0.03, 1e-5
    for _ in range(6):
        errors = [efficiency(row, waiting(value)) - row.measured for row in selected]
        slopes = [
            (efficiency(row, waiting(value + step)) - row.measured - error) / step
            for row, error in zip(selected, errors)
        ]
        value -= sum(e * s for e, s in zip(errors, slopes)) / sum(s * s for s in slopes)
    return value


def with_spread(value: float) -> Waiting:
    """One machine: nothing is lost between machines."""
    return Waiting(value, 0.0)


def with_machine_loss(value: float) -> Waiting:
    return Waiting(FITTED.spread, value)


FITS: dict[str, Callable[[float], Waiting]] = {"spread": with_spread, "machine_loss": with_machine_loss}


def left_out(everything: Sequence[Row]) -> dict[int, float]:
    """Efficiency predicted for each fitted row by a constant that was fitted without it, by the row's position."""
    found = {}
    for name, waiting in FITS.items():
        members = [number for number, row in enumerate(everything) if row.fit == name]
        for number in members:
            constant = fit([everything[other] for other in members if other != number], waiting)
            found[number] = efficiency(everything[number], waiting(constant))
    return found


def flag(row: Row, everything: Sequence[Row]) -> str:
    """Why a row that is off by more than five points cannot be met by a model of communication; empty for the others.

    Each reason is read off the published rows themselves, but for the last, which compares the published loss with what
    the links allow.
    """
    error = 100 * (efficiency(row) - row.measured)
    if abs(error) <= WITHIN_POINTS:
        return ""
    series = [other for other in everything if (other.table, other.precision) == (row.table, row.precision)]
    best = max(series, key=lambda other: other.measured)
    if best.measured > 1.0:
        return f"its base ran under worse conditions: {best.gpus} GPUs reach {100 * best.measured:.0f} % of it"
    for fewer in series:
        for more in series:
            gain = 100 * (more.measured - fewer.measured)
            if more.gpus > fewer.gpus and gain > CONTRADICTION_POINTS:
                return f"its series contradicts itself: {more.gpus} GPUs gain {gain:.1f} points over {fewer.gpus}"
    return _witnessed(row, everything) or _too_long(row, error)


def _beyond_waiting_ms(row: Row) -> float:
    factor = slowdown(row.fabric.gpus, row.fabric.machines, FITTED.spread, FITTED.machine_loss)
    base = fabric_of(row.machine, row.base_gpus)
    factor /= slowdown(base.gpus, base.machines, FITTED.spread, FITTED.machine_loss)
    return row.loss_ms - row.passes_ms * (factor - 1.0)


def _witnessed(row: Row, everything: Sequence[Row]) -> str:
    """Another row reduces at least as many bytes over at least as many GPUs of this machine and loses less by it."""
    size = row.gradients.parameters * row.reduction.bytes_each
    for other in everything:
        larger = other.gradients.parameters * other.reduction.bytes_each >= size and other.gpus >= row.gpus
        if other is row or other.machine != row.machine or other.model != row.model or not larger:
            continue
        bound_ms = max(_beyond_waiting_ms(other), reduce(row.fabric, row.gradients, row.reduction, 0.0).exposed_ms)
        best = row.passes_ms / (row.passes_ms + row.loss_ms - _beyond_waiting_ms(row) + bound_ms)
        if 100 * (best - row.measured) > WITHIN_POINTS:
            return (
                f"not communication: another row ({other.precision}, {other.gpus} GPUs, batch {other.batch}) sends as "
                f"much and loses {max(0.0, _beyond_waiting_ms(other)):.0f} ms a step beyond waiting, this one "
                f"{_beyond_waiting_ms(row):.0f} ms"
            )
    return ""


def _too_long(row: Row, error: float) -> str:
    allowed = reduce(row.fabric, row.gradients, row.reduction, 0.0).exposed_ms
    ratio = _beyond_waiting_ms(row) / allowed
    if error > 0 and ratio > 2.0:
        return f"input or host: loses {ratio:.0f} times what its gradients take over these links"
    return "not explained"


def entries() -> Iterator[dict[str, Any]]:
    """One entry of the results for each row."""
    everything = rows()
    without = left_out(everything)
    for number, row in enumerate(everything):
        predicted = efficiency(row)
        entry = {
            "table": row.table,
            "family": row.family,
            "model": row.model,
            "machine": row.machine,
            "precision": row.precision,
            "batch": row.batch,
            "gpus": row.gpus,
            "base_gpus": row.base_gpus,
            "reduce_every": row.passes,
            "measured_percent": round(100 * row.measured, 2),
            "predicted_percent": round(100 * predicted, 2),
            "error_points": round(100 * (predicted - row.measured), 2),
            "fitted": row.fit,
            "flag": flag(row, everything),
        }
        if number in without:
            entry["error_points_left_out"] = round(100 * (without[number] - row.measured), 2)
        yield entry


def _summary(chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    errors = [entry.get("error_points_left_out", entry["error_points"]) for entry in chosen]
    return {
        "rows": len(errors),
        "mean_absolute_points": round(statistics.fmean(abs(error) for error in errors), 2),
        "largest_points": max(errors, key=abs),
    }


def results() -> dict[str, Any]:
    """Everything that is committed in results.json."""
    everything, found = rows(), list(entries())
    ours = [entry for entry in found if entry["family"] in FAMILIES]
    kept = [entry for entry in ours if not entry["flag"]]
    groups = {
        "one machine, no constant fitted on it": [e for e in kept if e["base_gpus"] == 1 and not e["fitted"]],
        "one machine, spread fitted on the others": [e for e in kept if e["base_gpus"] == 1 and e["fitted"]],
        "several machines, loss fitted on the others": [e for e in kept if e["base_gpus"] > 1],
        "several machines, flagged rows and other models too": [e for e in found if e["base_gpus"] > 1],
    }
    constants = {}
    for name, waiting in FITS.items():
        members = [row for row in everything if row.fit == name]
        models = sorted({row.model for row in members})
        constants[name] = {
            "used": getattr(FITTED, name),
            "fitted": round(fit(members, waiting), 4),
            "rows": len(members),
            "tables": sorted({row.table for row in members}),
            "fitted_on_one_model": {
                model: round(fit([row for row in members if row.model == model], waiting), 4) for model in models
            },
        }
    return {
        "command": "python benchmarks/scaling/validate.py",
        "constants": constants,
        "summary": {name: _summary(chosen) for name, chosen in groups.items()},
        "flagged_in_families": len(ours) - len(kept),
        "rows": found,
    }


def main() -> None:
    """Writes the results."""
    found = results()
    (FOLDER / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "results.md").write_text(markdown(found), encoding="utf-8")
    print(json.dumps({name: found[name] for name in ("constants", "summary", "flagged_in_families")}, indent=1))


if __name__ == "__main__":
    main()
