"""Compares the workers' reports: what makes them unfit to train together, and what is worth a warning."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from tfvolta.errors import Problem

# Clocks matter to logs and to file times, not to training.
MOST_CLOCK_OFFSET_SECONDS = 1.0
_ABSENT = "not installed"
Report = Mapping[str, Any]


def compare(reports: Sequence[Report]) -> tuple[list[Problem], list[str]]:
    """Problems that refuse training, and warnings.

    Args:
        reports: One a worker, in the order of ranks; the first is the chief's, to which the others are held.
    """
    if not reports:
        return [], []
    chief, others = reports[0], reports[1:]
    problems = [*_versions(chief, others), *_configs(chief, others), *_device_counts(reports)]
    return problems, [*_models(reports), *_commits(chief, others), *_clocks(others)]


def title(report: Report) -> str:
    """A worker in words, such as ``worker 1 (node2:12345)``."""
    return f"{report['name']} ({report['address'] or report['host']})"


def _versions(chief: Report, others: Sequence[Report]) -> Iterator[Problem]:
    names = {name: None for report in (chief, *others) for name in report["versions"]}
    for name in names:
        expected = chief["versions"].get(name, _ABSENT)
        found = [(report["versions"].get(name, _ABSENT), report) for report in others]
        for received, workers in _differing(found, expected):
            hosts = ", ".join(dict.fromkeys(str(worker["host"]) for worker in workers))
            yield Problem(
                where=f"{_titles(workers)}: {name}",
                expected=f"{expected}, as {title(chief)} has",
                received=received,
                why="workers of different versions send each other different collectives, and wait for ever",
                fix=_version_fix(name, expected, hosts),
            )


def _version_fix(name: str, expected: str, hosts: str) -> str:
    if name == "python":
        return f"use Python {expected} on {hosts}"
    if name == "stack":
        return (
            f"set TF_USE_LEGACY_KERAS=1 in the environment of all workers or of none; {hosts} and the chief differ, "
            "and either may be the one that is wrong"
        )
    if expected == _ABSENT:
        return f"uninstall {name} on {hosts}, or install it everywhere"
    return f"on {hosts}: pip install {name}=={expected}"


def _configs(chief: Report, others: Sequence[Report]) -> Iterator[Problem]:
    keys = {key: None for report in (chief, *others) for key in report["config"]}
    for key in keys:
        expected = chief["config"].get(key)
        found = [(report["config"].get(key), report) for report in others]
        for received, workers in _differing(found, expected):
            yield Problem(
                where=f"{_titles(workers)}: {key}",
                expected=f"{json.dumps(expected)}, as {title(chief)} has",
                received=json.dumps(received),
                why="all workers must train by one config",
                fix="give every worker the same config file and the same --set",
            )


def _device_counts(reports: Sequence[Report]) -> Iterator[Problem]:
    """MultiWorkerMirroredStrategy multiplies its own number of devices by that of the workers, whatever these have."""
    trained = [report for report in reports if report["kind"] == "multi_worker_mirrored"]
    counts = {len(report["gpus"]) for report in trained}
    if len(counts) < 2:
        return
    expected = len(trained[0]["gpus"])
    for received, workers in _differing([(len(report["gpus"]), report) for report in trained], expected):
        yield Problem(
            where=f"{_titles(workers)}: GPUs",
            expected=f"{expected}, as {title(trained[0])} has",
            received=str(received),
            why="MultiWorkerMirroredStrategy takes it for granted that every worker has as many devices as it has "
            "itself, and waits for replicas that do not exist",
            fix="show every worker the same number of GPUs with CUDA_VISIBLE_DEVICES or devices.visible",
        )


def _models(reports: Sequence[Report]) -> Iterator[str]:
    by_model: dict[str, list[Report]] = {}
    for report in reports:
        for model in dict.fromkeys(report["gpus"]):
            by_model.setdefault(model, []).append(report)
    if len(by_model) > 1:
        listed = "; ".join(f"{model}: {_titles(workers)}" for model, workers in by_model.items())
        yield f"The workers have GPUs of different models, and every step waits for the slowest. {listed}."


def _commits(chief: Report, others: Sequence[Report]) -> Iterator[str]:
    expected = chief.get("commit")
    for received, workers in _differing([(report.get("commit"), report) for report in others], expected):
        yield (
            f"{_titles(workers)} runs the script from git commit {received or 'none'}, {title(chief)} from "
            f"{expected or 'none'} (a plus means changed files): bring the folders to one state."
        )


def _clocks(others: Sequence[Report]) -> Iterator[str]:
    for report in others:
        offset = float(report.get("clock_offset_seconds") or 0.0)
        doubt = float(report.get("round_trip_seconds") or 0.0) / 2
        if abs(offset) - doubt > MOST_CLOCK_OFFSET_SECONDS:
            ahead = "ahead of" if offset > 0 else "behind"
            yield (
                f"The clock of {title(report)} is {abs(offset):.1f} s {ahead} the chief's: times in logs and files do"
                " not compare; synchronise the clocks (chrony, ntpd)."
            )


def _differing(found: Sequence[tuple[Any, Report]], expected: Any) -> Iterator[tuple[Any, list[Report]]]:
    """Values other than the expected one, each with the workers that have it.

    Args:
        found: Each worker's value with its report.
    """
    others: dict[str, tuple[Any, list[Report]]] = {}
    for value, report in found:
        if value != expected:
            others.setdefault(repr(value), (value, []))[1].append(report)
    yield from others.values()


def _titles(reports: Sequence[Report]) -> str:
    """Some workers in words; of many the first few."""
    shown = [title(report) for report in reports[:4]]
    more = len(reports) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
