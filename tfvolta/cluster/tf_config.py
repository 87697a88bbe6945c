"""TF_CONFIG: what tf.distribute itself reads, checked more strictly than TensorFlow checks it.

TensorFlow makes a local one-worker strategy of an empty or misspelt TF_CONFIG, so that each host trains a model of
its own without a word.

Source: ``tfconfig_cluster_resolver.py`` and ``multi_worker_util.py``, TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any, Mapping, Optional

from tfvolta.cluster.address import checked_address, same_place
from tfvolta.cluster.cluster import JOBS
from tfvolta.cluster.finding import Finding, Resolver, Surroundings
from tfvolta.cluster.roles import addressed
from tfvolta.errors import Problem

VARIABLE = "TF_CONFIG"
_WHERE = f"environment: {VARIABLE}"
_EXAMPLE = '{"cluster": {"worker": ["node1:12345", "node2:12345"]}, "task": {"type": "worker", "index": 0}}'
# Besides cluster and task: what TensorFlow reads too, and what cloud services add.
_OTHER_KEYS = ("rpc_layer", "environment", "session_master", "eval_session_master", "master_target", "job", "shared")


class _TwiceError(Exception):
    """A key stands twice in one object, of which JSON's reader would keep the last."""

    def __init__(self, key: str):
        super().__init__(key)
        fix = f'put everything of "{key}" under one key'
        self.problem = Problem(_WHERE, "each key once", f'"{key}" twice', "only the last of them would count", fix)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


def _mark(surroundings: Surroundings) -> Optional[str]:
    return VARIABLE if VARIABLE in surroundings.environ else None


def read(surroundings: Surroundings) -> Finding:
    """The cluster that TF_CONFIG describes, or everything that is wrong with it."""
    text = surroundings.environ[VARIABLE]
    try:
        content = json.loads(text, object_pairs_hook=_object)
    except _TwiceError as error:
        return Finding(problems=(error.problem,))
    except ValueError as error:
        return Finding(problems=(_not_json(text, error),))
    if not isinstance(content, dict) or not content:
        return Finding(problems=(_empty(text),))
    problems: list[Problem] = list(_misspelt(content))
    notes: list[str] = []
    addresses = _addresses(content, problems)
    job, index = _task(content, problems, notes)
    if addresses is not None and job is not None:
        problems += _misplaced(job, index, addresses)
    if problems or job is None or index is None or addresses is None:
        return Finding(problems=tuple(problems))
    counts = ", ".join(f"{len(tasks)} {_plural(job, len(tasks))}" for job, tasks in addresses.items())
    found = (f"{VARIABLE} names {counts} and says that this process is {job} {index}.", *notes)
    return Finding(addressed("tf_config", addresses, job, index, found))


def _plural(job: str, count: int) -> str:
    return "parameter server" + "s" * (count > 1) if job == "ps" else job + "s" * (count > 1)


def _not_json(text: str, error: ValueError) -> Problem:
    why = "it is set to nothing" if not text.strip() else f"it is no JSON: {error}"
    fix = f"unset {VARIABLE}" if not text.strip() else f"write it like {_EXAMPLE}, with double quotes; or unset it"
    return Problem(_WHERE, "JSON with cluster and task", text[:80] or "an empty text", why, fix)


def _empty(text: str) -> Problem:
    return Problem(
        where=_WHERE,
        expected="an object with cluster and task",
        received=text[:80],
        why="TensorFlow makes a local strategy of one worker out of it, and every host would train a model of its own",
        fix=f"unset {VARIABLE} for one process, or write it like {_EXAMPLE}",
    )


def _misspelt(content: Mapping[str, Any]) -> list[Problem]:
    """Keys that TensorFlow does not read; it says nothing about them."""
    found = []
    for key in content:
        if key in ("cluster", "task", *_OTHER_KEYS):
            continue
        near = difflib.get_close_matches(str(key).lower(), ("cluster", "task"), n=1, cutoff=0.5)
        fix = f'did you mean "{near[0]}"?' if near else f'take "{key}" out'
        found.append(Problem(_WHERE, "the keys cluster and task", f'"{key}"', "TensorFlow reads no such key", fix))
    return found


def _addresses(content: Mapping[str, Any], problems: list[Problem]) -> Optional[dict[str, tuple[str, ...]]]:
    """Addresses by job; None, with the problems, where they cannot be read."""
    where = f"{_WHERE}: cluster"
    cluster = content.get("cluster")
    if not isinstance(cluster, dict) or not cluster:
        received = "no cluster" if "cluster" not in content else json.dumps(cluster)[:80]
        why = "without it TensorFlow makes a local strategy of one worker, without a word"
        problems.append(Problem(where, "the addresses of each job", received, why, f"write it like {_EXAMPLE}"))
        return None
    before = len(problems)
    addresses: dict[str, tuple[str, ...]] = {}
    for job, tasks in cluster.items():
        if job not in JOBS:
            problems.append(_unknown_job(where, str(job)))
        else:
            addresses[job] = _tasks_of(f"{where}.{job}", tasks, problems)
    _count_jobs(where, addresses, problems)
    problems += _twice(where, addresses)
    return addresses if len(problems) == before else None


def _tasks_of(where: str, tasks: Any, problems: list[Problem]) -> tuple[str, ...]:
    if not isinstance(tasks, list) or not tasks:
        fix = f'write ["{tasks}"]' if isinstance(tasks, str) else 'write ["host:port", ...], or take the job out'
        problems.append(Problem(where, "a list of addresses", json.dumps(tasks)[:80], fix=fix))
        return ()
    checked = [checked_address(f"{where}[{index}]", text) for index, text in enumerate(tasks)]
    problems += [item for item in checked if isinstance(item, Problem)]
    return tuple(item for item in checked if isinstance(item, str))


def _unknown_job(where: str, job: str) -> Problem:
    if job == "master":
        why, fix = "TensorFlow 1 called the chief so", 'write "chief"'
    else:
        near = difflib.get_close_matches(job.lower(), JOBS, n=1, cutoff=0.5)
        why, fix = "tf.distribute knows no other job", f'did you mean "{near[0]}"?' if near else f'take "{job}" out'
    return Problem(where, f"the jobs {', '.join(JOBS)}", f'"{job}"', why, fix)


def _count_jobs(where: str, addresses: Mapping[str, tuple[str, ...]], problems: list[Problem]) -> None:
    if len(addresses.get("chief", ())) > 1:
        received = f"{len(addresses['chief'])} of them"
        problems.append(Problem(f"{where}.chief", "one chief", received, fix='put the others under "worker"'))
    if addresses and not addresses.keys() & {"chief", "worker"}:
        problems.append(
            Problem(
                where, "a worker or a chief", ", ".join(addresses), "nobody would train", f"write it like {_EXAMPLE}"
            )
        )


def _twice(where: str, addresses: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    places: dict[tuple[str, int], list[str]] = {}
    first: dict[tuple[str, int], str] = {}
    for job, tasks in addresses.items():
        for index, address in enumerate(tasks):
            place = same_place(address)
            places.setdefault(place, []).append(f"{job} {index}")
            first.setdefault(place, address.lower())
    return [
        Problem(
            where=where,
            expected="an address of its own for each task",
            received=f"{first[place]} for {' and '.join(names)}",
            why="two processes cannot listen on one port; one of them would fail or wait for ever",
            fix="give each task on one host a port of its own",
        )
        for place, names in places.items()
        if len(names) > 1
    ]


def _task(content: Mapping[str, Any], problems: list[Problem], notes: list[str]) -> tuple[Optional[str], Optional[int]]:
    """Job and index of this process; None, with the problems, for what cannot be read."""
    where = f"{_WHERE}: task"
    task = content.get("task")
    fix = 'add "task": {"type": "worker", "index": 0}, with the index of each process'
    if not isinstance(task, dict) or not task:
        received = "no task" if "task" not in content else json.dumps(task)[:80]
        problems.append(Problem(where, "type and index of this process", received, "TensorFlow cannot guess it", fix))
        return None, None
    for key in task:
        if key not in ("type", "index", "trial", "cloud"):
            near = difflib.get_close_matches(str(key).lower(), ("type", "index"), n=1, cutoff=0.5)
            hint = f'did you mean "{near[0]}"?' if near else f'take "{key}" out'
            problems.append(Problem(where, "the keys type and index", f'"{key}"', fix=hint))
    kind = task.get("type")
    if not isinstance(kind, str) or not kind:
        received = json.dumps(kind) if "type" in task else "no type"
        problems.append(Problem(f"{where}.type", f"one of {', '.join(JOBS)}", received, fix=fix))
        kind = None
    return kind, _index(where, task, problems, notes)


def _index(where: str, task: Mapping[str, Any], problems: list[Problem], notes: list[str]) -> Optional[int]:
    value = task.get("index")
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        notes.append(f'The index "{value}" in {VARIABLE} is a text; it is taken as the number {int(value)}.')
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        received = json.dumps(value) if "index" in task else "no index"
        fix = 'write "index": 0 for the first process of a job, 1 for the second'
        problems.append(Problem(f"{where}.index", "a whole number from 0 on", received, fix=fix))
        return None
    return value


def _misplaced(job: str, index: Optional[int], addresses: Mapping[str, tuple[str, ...]]) -> list[Problem]:
    """The problem with a job that the cluster does not have, or with an index beyond it."""
    # TensorFlow lets an evaluator stand outside of the cluster, since nobody talks to it.
    if job == "evaluator" and job not in addresses:
        return []
    if job not in addresses:
        received, why = f'"{job}"', "this process would belong to no job of the cluster"
        fix = f'set "type" to one of {", ".join(addresses)}, or add "{job}" to "cluster"'
        return [Problem(f"{_WHERE}: task.type", f"a job of the cluster: {', '.join(addresses)}", received, why, fix)]
    count = len(addresses[job])
    if index is None or index < count:
        return []
    return [
        Problem(
            where=f"{_WHERE}: task.index",
            expected=f"an index from 0 to {count - 1}, for the cluster has {count} {job} task{'s' * (count > 1)}",
            received=str(index),
            why="indices count from 0",
            fix=f'set "index" below {count}, or add the address of {job} {index} to "cluster"',
        )
    ]


def _missing(surroundings: Surroundings) -> tuple[str, ...]:
    return () if VARIABLE in surroundings.environ else (VARIABLE,)


RESOLVER = Resolver("tf_config", _mark, read, _missing)
