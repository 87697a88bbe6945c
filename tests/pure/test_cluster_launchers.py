"""Open MPI, MPICH, Kubernetes and Horovod; which source is taken, and what is said about the others."""

from __future__ import annotations

import pathlib
from typing import Any, Mapping, Optional

import pytest

from tests.pure.cluster_environments import config, horovodrun, indexed_job, mpich, open_mpi, slurm, tf_config, without
from tests.pure.recorded_context import machine
from tfvolta.cluster import Cluster, resolve
from tfvolta.errors import ClusterError

WORKERS = "multi_worker_mirrored"
TWO = tf_config({"worker": ["a:1", "b:1"]}, {"type": "worker", "index": 0})


def found(environ: Mapping[str, str], kind: Optional[str] = WORKERS, host: str = "", **section: Any) -> Cluster:
    cluster = resolve(environ, config(kind, **section), machine(host=host))
    assert cluster is not None
    return cluster


def refusal(environ: Mapping[str, str], kind: Optional[str] = WORKERS, host: str = "", **section: Any) -> str:
    with pytest.raises(ClusterError) as raised:
        resolve(environ, config(kind, **section), machine(host=host))
    return str(raised.value)


def hosts(cluster: Cluster) -> list[str]:
    return [address.rsplit(":", 1)[0] for _, _, address in cluster.members()]


# -- MPI


@pytest.mark.parametrize("start", [open_mpi, mpich])
def test_ranks_of_one_machine_meet_on_loopback(start: Any) -> None:
    cluster = found(start(2, 3, 2, 3))
    assert hosts(cluster) == ["127.0.0.1"] * 3
    assert (cluster.rank, cluster.local_rank, cluster.local_size) == (2, 2, 3)
    assert len(set(cluster.addresses["worker"])) == 3


def test_jobs_of_open_mpi_have_ports_of_their_own() -> None:
    one = found(open_mpi(0, 2, 0, 2, PMIX_NAMESPACE="a@1")).port
    other = found(open_mpi(0, 2, 0, 2, PMIX_NAMESPACE="a@2")).port
    assert one != other
    assert found(open_mpi(0, 2, 0, 2), port=20000).addresses["worker"] == ("127.0.0.1:20000", "127.0.0.1:20001")
    assert any("set cluster.port where two jobs share" in text for text in found(mpich(0, 2, 0, 2)).explain())


@pytest.mark.parametrize(
    ("start", "variable", "text"),
    [
        (open_mpi, "TFVOLTA_HOSTFILE", "node1 slots=2\nnode2 slots=2  # the last\n"),
        (open_mpi, "OMPI_MCA_orte_default_hostfile", "# MPIJob\nnode1.svc.ns slots=2\nnode2.svc.ns max_slots=2\n"),
        (mpich, "HYDRA_HOST_FILE", "node1:2\nnode2:2\n"),
        (open_mpi, "PBS_NODEFILE", "node1\nnode1\nnode2\nnode2\n"),
    ],
)
def test_hosts_from_a_file(start: Any, variable: str, text: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    cluster = found(start(2, 4, 0, 2, **{variable: str(file)}), host="node2")
    assert [name.split(".")[0] for name in hosts(cluster)] == ["node1", "node1", "node2", "node2"]
    assert (cluster.local_rank, cluster.local_size) == (0, 2)
    assert f"Hosts from {variable}." in cluster.explain()


def test_hosts_from_the_batch_job_around() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[9-10]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    cluster = found({**open_mpi(3, 4, 1, 2), **job}, host="n10")
    assert (cluster.resolver, hosts(cluster)) == ("open_mpi", ["n9", "n9", "n10", "n10"])
    lsf = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "h1 2 h2 2"}
    assert hosts(found({**open_mpi(1, 4, 1, 2), **lsf}, host="h1.domain")) == ["h1", "h1", "h2", "h2"]


@pytest.mark.parametrize(("start", "passed"), [(open_mpi, "mpirun -x"), (mpich, "mpiexec -genv")])
def test_unknown_hosts_are_refused_where_addresses_are_needed_and_only_there(start: Any, passed: str) -> None:
    environ = start(3, 4, 1, 2)
    text = refusal(environ)
    assert "environment: TFVOLTA_HOSTFILE" in text and passed in text and "strategy.kind: horovod" in text
    cluster = found(environ, "horovod")
    assert (dict(cluster.addresses), cluster.rank, cluster.world_size, cluster.num_workers) == ({}, 3, 4, 4)
    assert (cluster.local_rank, cluster.local_size, cluster.is_chief, cluster.address) == (1, 2, False, None)
    with pytest.raises(ClusterError, match="TFVOLTA_HOSTFILE"):
        cluster.tf_config()
    assert found(start(0, 4, 0, 2), "horovod").is_chief


def test_ranks_that_do_not_fill_the_hosts_in_order_are_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("node1 slots=2\nnode2 slots=2\n")
    by_node = open_mpi(1, 4, 0, 2, TFVOLTA_HOSTFILE=str(file))
    text = refusal(by_node, host="node2")
    assert "rank 1 on node1, number 1 of 2" in text and "rank 1 on node2, number 0 of 2" in text
    assert "--map-by slot" in text
    file.write_text("node1 slots=2\n")
    assert "a slot for each of 4 ranks" in refusal(by_node, host="node2")
    file.write_text("# nothing\n")
    assert "which names none" in refusal(by_node, host="node2")
    assert "can read" in refusal({**by_node, "TFVOLTA_HOSTFILE": str(tmp_path / "absent")}, host="node2")


def test_faults_of_ranks() -> None:
    assert "OMPI_COMM_WORLD_RANK in the environment" in refusal({"OMPI_COMM_WORLD_SIZE": "2"})
    assert "a rank below 2" in refusal(open_mpi(2, 2, 0, 2))
    assert "a whole number" in refusal({**open_mpi(0, 2, 0, 2), "OMPI_COMM_WORLD_SIZE": "two"})
    assert resolve(open_mpi(0, 1, 0, 1), config(WORKERS)) is None


# -- Kubernetes


def test_an_indexed_job() -> None:
    environ = indexed_job(2, TFVOLTA_WORKERS="4", TFVOLTA_SERVICE="net")
    cluster = found(environ)
    assert hosts(cluster) == [f"train-{index}.net" for index in range(4)]
    assert (cluster.rank, cluster.is_chief, cluster.local_size) == (2, False, 1)
    # Every pod has an address of its own, and all the same port.
    assert len({address.rsplit(":", 1)[1] for address in cluster.addresses["worker"]}) == 1
    assert found(environ, port=2222).port == 2222


def test_an_indexed_job_says_exactly_what_is_missing() -> None:
    assert resolve(indexed_job(0), config("mirrored")) is None
    assert 'env: [{name: TFVOLTA_WORKERS, value: "4"}]' in refusal(indexed_job(0))
    assert "JOB_COMPLETION_INDEX in the environment" in refusal({}, resolver="kubernetes")
    assert "clusterIP: None" in refusal(indexed_job(0, TFVOLTA_WORKERS="2"))
    named = {**indexed_job(0, TFVOLTA_WORKERS="2", TFVOLTA_SERVICE="net"), "HOSTNAME": "myhost"}
    assert "completionMode: Indexed" in refusal(named)
    assert "a rank below 2" in refusal(indexed_job(2, TFVOLTA_WORKERS="2", TFVOLTA_SERVICE="net"))
    assert resolve(indexed_job(0, TFVOLTA_WORKERS="1"), config(WORKERS)) is None


def test_the_service_is_read_off_the_pods_full_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "train-0.web.team.svc.cluster.local")
    assert hosts(found(indexed_job(0, TFVOLTA_WORKERS="2"))) == ["train-0.web", "train-1.web"]


def test_operators_set_what_others_read() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    tf_job = tf_config(
        {"worker": ["job-worker-0.ns.svc:2222", "job-worker-1.ns.svc:2222"]}, {"type": "worker", "index": 1}
    )
    assert found({**pod, **tf_job}).resolver == "tf_config"
    assert found({**pod, **open_mpi(0, 2, 0, 2)}).resolver == "open_mpi"


# -- Horovod


def test_horovodrun_gives_ranks() -> None:
    cluster = found(horovodrun(1, 2), "horovod")
    assert (cluster.resolver, cluster.rank, cluster.world_size, cluster.local_rank) == ("horovod", 1, 2, 1)
    assert "tfvolta launch" in refusal(horovodrun(1, 2))
    assert "HOROVOD_SIZE in the environment" in refusal({"HOROVOD_RANK": "0"}, "horovod")
    assert "a rank below 2" in refusal(horovodrun(3, 2), "horovod")


def test_horovod_does_not_look_at_tf_config() -> None:
    assert found({**TWO, **horovodrun(1, 2)}, "horovod").resolver == "horovod"
    assert found({**TWO, **horovodrun(1, 2)}, WORKERS).resolver == "tf_config"


# -- which one


def test_nothing_is_one_process() -> None:
    assert resolve({}) is None
    assert resolve({"PATH": "/bin", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}, config(WORKERS)) is None
    assert resolve(TWO, config(WORKERS, resolver="local")) is None


def test_a_launcher_inside_an_allocation_comes_first_and_the_others_are_named() -> None:
    step = slurm(0, "n[1-2]", "1(x2)", 2)
    cluster = found({**step, **open_mpi(1, 2, 1, 2), **TWO})
    assert cluster.resolver == "tf_config"
    assert [text for text in cluster.explain() if "was not used" in text] == [
        "OMPI_COMM_WORLD_SIZE is set too and was not used; cluster.resolver: open_mpi would use it.",
        "SLURM_JOB_ID is set too and was not used; cluster.resolver: slurm would use it.",
    ]
    assert found({**step, **open_mpi(1, 2, 1, 2)}).resolver == "open_mpi"
    assert found({**step, **open_mpi(1, 2, 1, 2)}, resolver="slurm").resolver == "slurm"


def test_srun_with_pmi_is_slurm() -> None:
    environ = {**slurm(1, "n[1-2]", "1(x2)", 2), "PMI_RANK": "1", "PMI_SIZE": "2"}
    assert found(environ).resolver == "slurm"
    assert found({**environ, "PMI_RANK": "0"}, host="n1").resolver == "mpich"


def test_a_forced_resolver_proposes_the_one_whose_variables_are_set() -> None:
    text = refusal(TWO, resolver="open_mpi")
    assert "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE in the environment" in text
    assert "set cluster.resolver: tf_config, whose variables are set" in text
    assert found(TWO, resolver="tf_config").explain()[-1] == "cluster.resolver: tf_config was asked for."


def test_without_a_config_ranks_are_enough() -> None:
    cluster = resolve(without(open_mpi(3, 4, 1, 2), "PMIX_NAMESPACE"))
    assert cluster is not None and (cluster.rank, cluster.lacking is not None) == (3, True)
