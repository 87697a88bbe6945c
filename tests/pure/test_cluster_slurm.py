"""Slurm: who is where, as Slurm itself laid the tasks out."""

from __future__ import annotations

import builtins
from typing import Any, Mapping, Optional

import pytest

from tests.pure.cluster_environments import config, slurm, without
from tfvolta.cluster import Cluster, resolve
from tfvolta.cluster.node_list import expand_nodes, tasks_per_node
from tfvolta.cluster.ports import FIRST, LAST, WIDTH, job_port, meeting_ports
from tfvolta.errors import ClusterError, Problem


def found(environ: Mapping[str, str], kind: Optional[str] = None, **section: Any) -> Cluster:
    cluster = resolve(environ, config(kind, **section))
    assert cluster is not None
    return cluster


def hosts(cluster: Cluster) -> list[str]:
    return [address.rsplit(":", 1)[0] for _, _, address in cluster.members()]


def refusal(environ: Mapping[str, str], kind: Optional[str] = None, **section: Any) -> str:
    with pytest.raises(ClusterError) as raised:
        resolve(environ, config(kind, **section))
    return str(raised.value)


@pytest.mark.parametrize("rank", range(11))
def test_unpadded_names_keep_the_order_of_slurms_list(rank: int) -> None:
    """TensorFlow's own resolver sorts names as texts, and makes rank 1 of n[1-11] the task on n10."""
    cluster = found(slurm(rank, "n[1-11]", "1(x11)", 11, SLURMD_NODENAME=f"n{rank + 1}"))
    assert (cluster.rank, cluster.task_index, cluster.host) == (rank, rank, f"n{rank + 1}")
    assert cluster.is_chief == (rank == 0)


@pytest.mark.parametrize(
    ("nodes", "counts", "size", "expected"),
    [
        ("n1", "4", 4, ["n1"] * 4),
        ("n[1-3],m7", "2(x3),1", 7, ["n1", "n1", "n2", "n2", "n3", "n3", "m7"]),
        ("z1,a1", "1,2", 3, ["z1", "a1", "a1"]),
        ("n[3,1]", "1(x2)", 2, ["n3", "n1"]),
        ("dgx[09-10]-ib", "1(x2)", 2, ["dgx09-ib", "dgx10-ib"]),
        ("r[1-2]n[1-2]", "1(x4)", 4, ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[001,010-011],cpu1", "1(x4)", 4, ["gpu001", "gpu010", "gpu011", "cpu1"]),
    ],
)
def test_node_lists_and_tasks_per_node(nodes: str, counts: str, size: int, expected: list[str]) -> None:
    cluster = found(slurm(0, nodes, counts, size))
    assert hosts(cluster) == expected
    assert len({address for _, _, address in cluster.members()}) == size


@pytest.mark.parametrize(
    ("distribution", "others", "expected"),
    [
        ("block", {}, ["a1", "a1", "a1", "a2"]),
        ("cyclic", {}, ["a1", "a2", "a1", "a1"]),
        ("cyclic:block", {}, ["a1", "a2", "a1", "a1"]),
        ("plane", {"SLURM_DIST_PLANESIZE": "2"}, ["a1", "a1", "a2", "a1"]),
    ],
)
def test_distributions(distribution: str, others: dict[str, str], expected: list[str]) -> None:
    environ = slurm(2, "a[1-2]", "3,1", 4, SLURM_DISTRIBUTION=distribution, **others)
    assert hosts(found({**environ, "SLURMD_NODENAME": expected[2]})) == expected


def test_a_layout_that_the_variables_do_not_tell_is_refused_by_the_rank_that_it_hits() -> None:
    environ = slurm(0, "a[1-2]", "1(x2)", 2, SLURM_DISTRIBUTION="arbitrary", SLURMD_NODENAME="a2")
    text = refusal(environ)
    assert "expected: rank 0 on a1" in text and "received: rank 0 on a2" in text and "--distribution=block" in text


def test_ranks_on_one_node_are_numbered_and_have_ports_of_their_own() -> None:
    cluster = found(slurm(4, "n[1-3]", "2(x3)", 6, SLURMD_NODENAME="n3"))
    assert (cluster.host, cluster.local_rank, cluster.local_size) == ("n3", 0, 2)
    first, second = cluster.addresses["worker"][4:]
    assert int(second.rsplit(":", 1)[1]) == int(first.rsplit(":", 1)[1]) + 1
    assert cluster.port == job_port("991", "0")
    assert found(slurm(0, "n1", "2", 2), port=30000).addresses["worker"] == ("n1:30000", "n1:30001")


def test_ports_of_jobs_and_steps_do_not_meet() -> None:
    jobs = [job_port(str(number)) for number in range(100_000, 100_300)]
    assert len(set(jobs)) == len(jobs)
    steps = [job_port("991", str(step)) for step in range(100)]
    assert len(set(steps)) == len(steps)
    assert all(FIRST <= port <= LAST + 1 - WIDTH and (port - FIRST) % WIDTH == 0 for port in jobs + steps)
    # The meeting before training stays inside the ports of the job.
    assert all(port < other < port + WIDTH for port in jobs for other in meeting_ports(port, frozenset({port})))
    assert meeting_ports(12345, frozenset({12345, 12377}), 2) == (12378, 12379)
    assert all(FIRST <= port <= 65535 for port in meeting_ports(65535, frozenset(), 8))


def test_parameter_servers_take_the_last_ranks() -> None:
    cluster = found(slurm(4, "n[1-5]", "1(x5)", 5), "parameter_server", parameter_servers=2)
    assert {job: len(tasks) for job, tasks in cluster.addresses.items()} == {"chief": 1, "worker": 2, "ps": 2}
    assert (cluster.task_type, cluster.task_index, cluster.rank, cluster.num_workers) == ("ps", 1, 4, 2)
    assert found(slurm(1, "n[1-3]", "1(x3)", 3), "parameter_server").name == "worker 0"
    assert "at least 3 processes" in refusal(slurm(0, "n[1-2]", "1(x2)", 2), "parameter_server")


def test_one_task_is_one_process() -> None:
    assert resolve(slurm(0, "n1", "1", 1), config("multi_worker_mirrored")) is None


def test_a_batch_script_without_srun_is_refused_where_several_processes_are_wanted() -> None:
    batch = without(slurm(0, "n[1-2]", "1(x2)", 2), "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")
    assert resolve(batch, config("mirrored")) is None
    assert resolve(batch) is None
    text = refusal(batch, "multi_worker_mirrored")
    assert "start with srun" in text and "the batch script runs once" in text
    # Slurm numbers the batch script's own step from the top.
    assert "start with srun" in refusal({**batch, "SLURM_STEP_ID": "4294967291"}, "multi_worker_mirrored")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID"),
        ({"SLURM_PROCID": "2"}, "a rank below 2"),
        ({"SLURM_STEP_NODELIST": "n[1-"}, "environment: SLURM_STEP_NODELIST"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(y2)"}, "such as 2(x3),1"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2"}, "2 numbers that add up to 2 tasks"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, "3 numbers that add up to 3"),
    ],
)
def test_variables_that_do_not_fit(change: dict[str, str], expected: str) -> None:
    assert expected in refusal({**slurm(0, "n[1-2]", "1(x2)", 2), **change})


def test_a_forced_resolver_names_the_variables_that_are_missing() -> None:
    text = refusal({"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0"}, resolver="slurm")
    missing = "SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE in the environment"
    assert missing in text and "SLURM_JOB_ID," not in text
    assert "with srun" in refusal({}, resolver="slurm")


def test_a_list_without_brackets_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.startswith("ClusterShell"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", absent)
    assert expand_nodes("here", "n1,n2") == ("n1", "n2")
    problem = expand_nodes("here", "n[1-2]")
    assert isinstance(problem, Problem) and "pip install 'tfvolta[slurm]'" in problem.fix


@pytest.mark.parametrize(("text", "counts"), [("2(x3),1", (2, 2, 2, 1)), ("4", (4,)), ("1,2(x2)", (1, 2, 2))])
def test_tasks_per_node(text: str, counts: tuple[int, ...]) -> None:
    assert tasks_per_node("here", text) == counts
