"""Who is missing when a run stands still: told from the signs of life of all its workers."""

from __future__ import annotations

from typing import Iterable, NamedTuple, Sequence

from tfvolta.evidence.heartbeat import Heartbeat

# A worker writes once a second; silent for this long it is stopped, or its interpreter is held by a call that hangs.
SILENT_SECONDS = 10.0


class Standstill(NamedTuple):
    """Why nothing goes on.

    Attributes:
        missing: Workers for which the others wait; empty where all stand in the same step.
        sentence: For a person.
    """

    missing: tuple[str, ...]
    sentence: str


def standstill(beats: Sequence[Heartbeat], now: float, expected: Iterable[str] = ()) -> Standstill:
    """Who is missing, and what the others do meanwhile.

    A worker is missing that never spoke, that is silent while others speak, or that has begun fewer steps than the
    furthest: the others wait for it in a collective.

    Args:
        beats: What the workers last said.
        now: Seconds since 1970.
        expected: Names of all workers, where they are known.
    """
    absent = tuple(name for name in expected if name not in {beat.worker for beat in beats})
    inside = [beat for beat in beats if beat.is_training]
    late = [beat for beat in beats if not beat.is_training]
    furthest = max((beat.begun for beat in inside), default=0)
    silent = [beat for beat in inside if now - beat.written > SILENT_SECONDS]
    silent = silent if len(silent) < len(inside) else []
    behind = [beat for beat in inside if beat.begun < furthest or beat in silent]
    waiting = [beat for beat in inside if beat not in behind]
    missing = absent + tuple(beat.worker for beat in [*late, *behind])
    parts = [f"{_names(absent)} {_are(absent)} not there yet"] if absent else []
    parts += [f"{beat.worker} is not in fit ({beat.state})" for beat in late]
    parts += [_last_seen(beat, now) for beat in behind]
    if waiting and missing:
        names = [beat.worker for beat in waiting]
        parts.append(f"{_names(names)} {'waits' if len(names) == 1 else 'wait'} in step {furthest}")
    elif waiting:
        parts.append(_all_alike(waiting, now))
    return Standstill(missing, "; ".join(parts))


def _last_seen(beat: Heartbeat, now: float) -> str:
    step = f"at step {beat.begun}" if beat.begun else "before its first step"
    return f"{beat.worker} was last seen {step}, {max(0.0, now - beat.progressed):.0f} s ago"


def _all_alike(beats: Sequence[Heartbeat], now: float) -> str:
    names = [beat.worker for beat in beats]
    since = min(max(0.0, now - beat.progressed) for beat in beats)
    if len(names) == 1:
        return f"{names[0]} has been in step {beats[0].begun} for {since:.0f} s"
    return f"{_names(names)} have all been in step {beats[0].begun} for {since:.0f} s; their stacks tell who hangs"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _names(names: Sequence[str]) -> str:
    """``worker 1``, ``workers 0 and 2``, ``chief 0, worker 1 and ps 0``."""
    jobs = {name.rsplit(" ", 1)[0] for name in names}
    if len(names) > 1 and len(jobs) == 1:
        numbers = [name.rsplit(" ", 1)[-1] for name in names]
        return f"{jobs.pop()}s {', '.join(numbers[:-1])} and {numbers[-1]}"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
