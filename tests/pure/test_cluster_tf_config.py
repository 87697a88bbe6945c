"""TF_CONFIG: what is taken, and every mistake that TensorFlow lets pass or reports late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pure.cluster_environments import config, tf_config
from tests.pure.recorded_context import machine
from tfvolta.cluster import resolve
from tfvolta.conflicts import Request
from tfvolta.contradictions import find_contradictions
from tfvolta.errors import ClusterError, PlanError

TWO = {"worker": ["node1:12345", "node2:12345"]}
FIRST = {"type": "worker", "index": 0}


def problems_of(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ClusterError) as raised:
        resolve(environ)
    assert isinstance(raised.value, PlanError) and raised.value.exit_code == 2
    assert all(problem.fix and problem.expected and problem.received for problem in raised.value.problems)
    return [f"{problem.where} | {problem.received} | {problem.fix}" for problem in raised.value.problems]


def test_two_workers() -> None:
    cluster = resolve(tf_config(TWO, {"type": "worker", "index": 1}))
    assert cluster is not None
    assert (cluster.resolver, cluster.task_type, cluster.task_index, cluster.rank) == ("tf_config", "worker", 1, 1)
    assert (cluster.world_size, cluster.num_workers, cluster.is_chief) == (2, 2, False)
    assert (cluster.address, cluster.host, cluster.port) == ("node2:12345", "node2", 12345)
    assert (cluster.local_rank, cluster.local_size) == (0, 1)
    assert cluster.tf_config() == {"cluster": TWO, "task": {"type": "worker", "index": 1}}
    assert json.loads(cluster.tf_config_text()) == cluster.tf_config()
    assert cluster.explain() == (
        "This process is worker 1, rank 1 of 2 (not the chief), at node2:12345; number 0 of 1 on its machine.",
        "TF_CONFIG names 2 workers and says that this process is worker 1.",
    )


@pytest.mark.parametrize(
    ("cluster", "task", "chief", "rank", "workers", "local"),
    [
        (TWO, FIRST, True, 0, 2, (0, 1)),
        ({"chief": ["a:1"], "worker": ["a:2", "b:2"]}, {"type": "worker", "index": 0}, False, 1, 3, (1, 2)),
        ({"chief": ["a:1"], "worker": ["a:2", "b:2"]}, {"type": "chief", "index": 0}, True, 0, 3, (0, 2)),
        ({"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, {"type": "ps", "index": 0}, False, 3, 2, (0, 1)),
        ({**TWO, "evaluator": ["e:1"]}, {"type": "evaluator", "index": 0}, False, None, 2, (None, None)),
        (TWO, {"type": "evaluator", "index": 0}, False, None, 2, (None, None)),
        ({"worker": ["localhost:1", "127.0.0.1:2"]}, {"type": "worker", "index": 1}, False, 1, 2, (1, 2)),
        ({"worker": ["[::1]:1", "[fd00::2]:2"]}, {"type": "worker", "index": 1}, False, 1, 2, (0, 1)),
        ({"worker": ["only:1"]}, FIRST, True, 0, 1, (0, 1)),
    ],
)
def test_roles(cluster: Any, task: Any, chief: bool, rank: Any, workers: int, local: Any) -> None:
    found = resolve(tf_config(cluster, task))
    assert found is not None
    assert (found.is_chief, found.rank, found.num_workers) == (chief, rank, workers)
    assert (found.local_rank, found.local_size) == local


def test_an_index_in_quotes_is_converted_and_said() -> None:
    cluster = resolve(tf_config(TWO, {"type": "worker", "index": "1"}))
    assert cluster is not None and cluster.task_index == 1
    assert any("taken as the number 1" in sentence for sentence in cluster.explain())
    assert cluster.tf_config()["task"]["index"] == 1


def test_other_keys_that_services_set_are_no_mistake() -> None:
    assert resolve(tf_config(TWO, FIRST, rpc_layer="grpc", environment="cloud")) is not None


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "set to nothing": ("", ["environment: TF_CONFIG | an empty text | unset TF_CONFIG"]),
    "no JSON": ("{'cluster': 1}", ["double quotes"]),
    "empty JSON": ("{}", ["unset TF_CONFIG for one process"]),
    "a list": ("[]", ["environment: TF_CONFIG"]),
    "misspelt cluster": (
        json.dumps({"clusters": TWO, "task": FIRST}),
        ['"clusters" | did you mean "cluster"?', "cluster | no cluster"],
    ),
    "misspelt task": (
        json.dumps({"cluster": TWO, "tasks": FIRST}),
        ['"tasks" | did you mean "task"?', "task | no task"],
    ),
    "task missing": (json.dumps({"cluster": TWO}), ["environment: TF_CONFIG: task | no task"]),
    "cluster missing": (json.dumps({"task": FIRST}), ["environment: TF_CONFIG: cluster | no cluster"]),
    "cluster empty": (json.dumps({"cluster": {}, "task": FIRST}), ["environment: TF_CONFIG: cluster | {}"]),
    "task a list": (json.dumps({"cluster": TWO, "task": ["worker", 0]}), ['["worker", 0]']),
    "type not in the cluster": (
        json.dumps({"cluster": TWO, "task": {"type": "chief", "index": 0}}),
        ['task.type | "chief" | set "type" to one of worker'],
    ),
    "type misspelt and index wrong": (
        json.dumps({"cluster": TWO, "task": {"type": "wroker", "index": "x"}}),
        ["task.index", "task.type"],
    ),
    "index out of range": (
        json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 2}}),
        ['task.index | 2 | set "index" below 2, or add the address of worker 2'],
    ),
    "index negative": (json.dumps({"cluster": TWO, "task": {"type": "worker", "index": -1}}), ["task.index | -1"]),
    "index a fraction": (json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 0.5}}), ["task.index | 0.5"]),
    "index a superscript": (
        json.dumps({"cluster": TWO, "task": {"type": "worker", "index": "\u00b2"}}),
        ["task.index"],
    ),
    "index true": (json.dumps({"cluster": TWO, "task": {"type": "worker", "index": True}}), ["task.index | true"]),
    "index missing": (json.dumps({"cluster": TWO, "task": {"type": "worker"}}), ["task.index | no index"]),
    "type missing": (json.dumps({"cluster": TWO, "task": {"index": 0}}), ["task.type | no type"]),
    "misspelt index": (
        json.dumps({"cluster": TWO, "task": {"type": "worker", "idx": 0}}),
        ['"idx"', "task.index | no index"],
    ),
    "duplicate address": (
        json.dumps({"cluster": {"worker": ["a:1", "b:1", "A:1"]}, "task": FIRST}),
        ["a:1 for worker 0 and worker 2"],
    ),
    "one socket under two names": (
        json.dumps({"cluster": {"worker": ["localhost:5000", "127.0.0.1:5000"]}, "task": FIRST}),
        ["localhost:5000 for worker 0 and worker 1"],
    ),
    "one port in two spellings": (
        json.dumps({"cluster": {"worker": ["a:5000", "a.:05000"]}, "task": FIRST}),
        ["a:5000 for worker 0 and worker 1"],
    ),
    "a job twice": (
        '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
        ['"worker" twice | put everything of "worker" under one key'],
    ),
    "no address to connect to": (
        json.dumps({"cluster": {"worker": ["0.0.0.0:1", "[::]:1"]}, "task": FIRST}),
        ["worker[0] | 0.0.0.0:1", "worker[1] | [::]:1"],
    ),
    "duplicate across jobs": (
        json.dumps({"cluster": {"worker": ["a:1"], "ps": ["a:1"]}, "task": FIRST}),
        ["a:1 for worker 0 and ps 0"],
    ),
    "host without port": (
        json.dumps({"cluster": {"worker": ["node1", "node2:1"]}, "task": FIRST}),
        ['cluster.worker[0] | node1 | write "node1:12345"'],
    ),
    "IPv6 without brackets": (
        json.dumps({"cluster": {"worker": ["fd00::1", "b:1"]}, "task": FIRST}),
        ['write "[fd00::1]:12345"'],
    ),
    "port no number": (json.dumps({"cluster": {"worker": ["a:x"]}, "task": FIRST}), ["worker[0] | a:x"]),
    "ports out of range": (
        json.dumps({"cluster": {"worker": ["a:0", "b:65536", "c:99999999"]}, "task": FIRST}),
        ["worker[0] | a:0", "worker[1] | b:65536", "worker[2] | c:99999999"],
    ),
    "a scheme": (json.dumps({"cluster": {"worker": ["grpc://a:1"]}, "task": FIRST}), ['write "a:1"']),
    "a space": (json.dumps({"cluster": {"worker": ["a b:1"]}, "task": FIRST}), ["without spaces"]),
    "no text": (json.dumps({"cluster": {"worker": [None, 3]}, "task": FIRST}), ["worker[0] | None", "worker[1] | 3"]),
    "a text for a list": (json.dumps({"cluster": {"worker": "a:1"}, "task": FIRST}), ['write ["a:1"]']),
    "an empty job": (json.dumps({"cluster": {"worker": ["a:1"], "ps": []}, "task": FIRST}), ["cluster.ps | []"]),
    "an unknown job": (
        json.dumps({"cluster": {"workers": ["a:1"]}, "task": FIRST}),
        ['cluster | "workers" | did you mean "worker"?'],
    ),
    "the chief's old name": (
        json.dumps({"cluster": {"master": ["a:1"], "worker": ["b:1"]}, "task": FIRST}),
        ['"master" | write "chief"'],
    ),
    "two chiefs": (
        json.dumps({"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief", "index": 0}}),
        ["cluster.chief | 2 of them"],
    ),
    "nobody trains": (json.dumps({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}), ["cluster | ps"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    text, expected = MISTAKES[name]
    found = problems_of({"TF_CONFIG": text})
    assert len(found) == len(expected), found
    for part in expected:
        assert any(part in line for line in found), (part, found)


def test_all_problems_at_once() -> None:
    text = json.dumps(
        {"cluster": {"worker": ["a", "b:0", "c:1", "c:1"]}, "task": {"type": "x", "index": "y"}, "tsk": 1}
    )
    assert len(problems_of({"TF_CONFIG": text})) == 5


@pytest.mark.parametrize(
    ("kind", "workers", "refused"),
    [("mirrored", 2, True), ("one_device", 2, True), ("mirrored", 1, False), ("multi_worker_mirrored", 2, False)],
)
def test_a_strategy_of_one_process_does_not_take_the_cluster_for_its_own(
    kind: str, workers: int, refused: bool
) -> None:
    environ = tf_config({"worker": TWO["worker"][:workers]}, FIRST)
    found = find_contradictions(Request(config(kind), machine(), environ), [])
    assert [problem.where for problem in found] == (["environment: TF_CONFIG"] if refused else [])


def test_a_broken_tf_config_is_told_to_a_strategy_of_one_process_too() -> None:
    found = find_contradictions(Request(config("mirrored"), machine(), {"TF_CONFIG": "{}"}), [])
    assert [problem.received for problem in found] == ["{}"]


def test_without_a_strategy_section_the_script_may_make_its_own() -> None:
    assert find_contradictions(Request(config(), machine(), tf_config(TWO, FIRST)), []) == []
