"""A whole bench: contenders or stages measured, compared and saved."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

from tfvolta.bench.comparison import compare
from tfvolta.bench.contender import Contender, Course
from tfvolta.bench.figures import METHOD, figures
from tfvolta.bench.judged import Comparison, Gate
from tfvolta.bench.measured import Ending, Entry
from tfvolta.bench.race import Race, Runs
from tfvolta.bench.result import BenchResult
from tfvolta.bench.stages import Stage, Way, gate, stages
from tfvolta.bench.workloads.workload import Workload
from tfvolta.evidence.clock import now
from tfvolta.facts.schema import Facts


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be measured, and how.

    Attributes:
        workload: The model.
        course: What every contender trains.
        seeds: Each is a process of its own for every contender.
        folder: Takes everything.
        command: The command line that does it again.
        facts: This machine.
        limit_seconds: For anything that is waited for.
        together: Whether contenders start at the same time.
        least_gain: What throughput must gain at least, as a share.
    """

    workload: Workload
    course: Course
    seeds: tuple[int, ...]
    folder: Path
    command: tuple[str, ...]
    facts: Facts
    limit_seconds: float = 600.0
    together: bool = False
    least_gain: float = 0.0


class Bench:
    """Measures, and keeps what was measured so far.

    Args:
        plan: What is to be measured.
        say: Told what happens, in a line.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None]):
        self._plan = plan
        self._say = say
        self._entries: list[Entry] = []
        self._load_before = _load()
        self._created = now()

    def compare(self, contenders: Sequence[Contender]) -> BenchResult:
        """Measures contenders, and sets each against the first."""
        entries = self._measure(contenders, "")
        first, others = entries[0], entries[1:]
        measured = [each for each in others if each.figures is not None and first.figures is not None]
        return self._result(tuple(compare(each, first, self._plan.least_gain) for each in measured), ())

    def climb(self, way: Way, side_by_side: bool) -> BenchResult:
        """Measures stage after stage, each together with the last one that passed, up to the first refusal.

        Args:
            way: The stages.
            side_by_side: Measure all stages together instead, and judge each whatever became of the one before.
        """
        before = Stage("baseline", dataclasses.replace(way.baseline, name="baseline", batch=way.batch))
        planned = stages(way, self._plan.facts)
        known: dict[str, Entry] = {}
        if side_by_side:
            all_of_them = [stage.contender for stage in (before, *planned) if stage.contender is not None]
            known = {entry.name: entry for entry in self._measure(all_of_them, "")}
        gates: list[Gate] = []
        for stage in planned:
            if stage.contender is None:
                gates.append(Gate(stage=stage.name, reason=f"NOT_APPLICABLE: {stage.reason}"))
                continue
            gates.append(self._try(stage, before, known))
            self._say(f"{stage.name}: {'passes' if gates[-1].passes else 'refused'}")
            if gates[-1].passes:
                before = stage
            elif not side_by_side:
                break
        return self._result((), tuple(gates))

    def _try(self, stage: Stage, before: Stage, known: Mapping[str, Entry]) -> Gate:
        """Judges a stage by what is known, or by what is measured now."""
        assert stage.contender is not None and before.contender is not None
        names = before.contender.name, stage.contender.name
        if not known:
            both = self._measure((before.contender, stage.contender), stage.name)
            known = {entry.name: entry for entry in both}
        reference, treated = (known[name] for name in names)
        if reference.figures is None or treated.figures is None:
            failed = reference if reference.figures is None else treated
            return gate(stage, before, None, f"{failed.name}: {failed.ending.value}: {failed.reason}")
        return gate(stage, before, compare(treated, reference, self._plan.least_gain))

    def _measure(self, contenders: Sequence[Contender], stage: str) -> list[Entry]:
        plan = self._plan
        folder = plan.folder / stage.replace(" ", "_") if stage else plan.folder
        folder.mkdir(parents=True, exist_ok=True)
        race = Race(plan.course, folder, plan.limit_seconds, plan.together, self._say)
        entries = [self._entry(runs, stage) for runs in race.run(contenders, plan.seeds)]
        self._entries += entries
        return entries

    def _entry(self, runs: Runs, stage: str) -> Entry:
        contender, plan = runs.contender, self._plan
        measured = runs.laps if runs.ending is Ending.MEASURED else []
        batch = contender.batch or plan.course.sizes.batch
        return Entry(
            name=contender.name,
            stage=stage,
            words=contender.words,
            command=runs.command,
            ending=runs.ending,
            reason=runs.reason,
            laps=tuple(runs.laps),
            figures=figures(measured, batch, plan.workload.unit, contender.workers) if measured else None,
        )

    def _result(self, comparisons: tuple[Comparison, ...], gates: tuple[Gate, ...]) -> BenchResult:
        plan = self._plan
        result = BenchResult(
            created=self._created,
            command=plan.command,
            model=plan.workload.name,
            description=plan.workload.description,
            sizes=plan.course.sizes.to_json(),
            data=plan.course.data or "synthetic",
            steps=plan.course.steps,
            warmup_epochs=plan.course.warmup_epochs,
            rounds=plan.course.rounds,
            seeds=plan.seeds,
            method=METHOD,
            facts=plan.facts,
            load={"before": self._load_before, "after": _load(), "processors": os.cpu_count()},
            entries=tuple(self._entries),
            comparisons=comparisons,
            gates=gates,
        )
        result.write(plan.folder)
        return result


def _load() -> Optional[Any]:
    """Processes that want a processor, on average over a minute; None where the system does not say."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
