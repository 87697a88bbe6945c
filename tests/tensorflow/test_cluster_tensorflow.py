"""The cluster beside TensorFlow's own resolvers: they read what it writes, and it is right where they are wrong."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import tfvolta
from tests.pure.cluster_environments import slurm, tf_config
from tests.stack import keras, tf
from tfvolta.audit.replicas import cluster_left_alone
from tfvolta.cluster import resolve
from tfvolta.config.schema import Config
from tfvolta.errors import PlanError
from tfvolta.knobs.first_all_reduce import strategy_step, time_all_reduce
from tfvolta.outcome import Status

resolvers = tf.distribute.cluster_resolver
TWO = {"worker": ["127.0.0.1:15001", "127.0.0.1:15002"]}


def small_model() -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize(
    "environ",
    [
        slurm(10, "n[1-11]", "1(x11)", 11),
        slurm(3, "n[9-10]", "2(x2)", 4),
        tf_config({"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, {"type": "ps", "index": 0}),
        tf_config(TWO, {"type": "worker", "index": "1"}),
    ],
)
def test_tensorflow_reads_what_is_written(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = resolve(environ)
    assert cluster is not None
    monkeypatch.setenv("TF_CONFIG", cluster.tf_config_text())
    read = resolvers.TFConfigClusterResolver()
    assert read.cluster_spec().as_dict() == {job: list(tasks) for job, tasks in cluster.addresses.items()}
    assert (read.task_type, read.task_id) == (cluster.task_type, cluster.task_index)
    assert read.cluster_spec().task_address(read.task_type, read.task_id) == cluster.address


@pytest.mark.parametrize("text", ["{}", json.dumps({"clusters": TWO, "task": {"type": "worker", "index": 0}})])
def test_tensorflow_takes_a_mistake_for_a_single_worker(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert resolvers.TFConfigClusterResolver().cluster_spec().as_dict() == {}
    with pytest.raises(PlanError):
        resolve(os.environ)


def test_tensorflows_resolver_of_slurm_sorts_names_as_texts_and_gives_every_job_one_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = slurm(1, "n[1-11]", "1(x11)", 11, SLURMD_NODENAME="n2")
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    theirs = resolvers.SlurmClusterResolver(jobs={"worker": 11}, auto_set_gpu=False, gpus_per_node=1, gpus_per_task=1)
    assert theirs.cluster_spec().as_dict()["worker"][1] == "n10:8888"  # and not n2, on which Slurm put rank 1
    ours = resolve(environ)
    other_job = resolve({**environ, "SLURM_JOB_ID": "992"})
    assert ours is not None and other_job is not None
    assert ours.host == "n2"
    assert ours.port != other_job.port


def test_a_model_that_trains_alone_beside_tf_config_of_several_workers_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    model = small_model()
    alone = tf_config(TWO, {"type": "worker", "index": 0})
    finding = cluster_left_alone(model, alone)
    assert finding is not None and finding.refuses and "names 2 workers" in finding.what
    assert cluster_left_alone(model, {}) is None
    assert cluster_left_alone(model, tf_config({"worker": TWO["worker"][:1]}, {"type": "worker", "index": 0})) is None
    assert cluster_left_alone(model, tf_config(TWO, {"type": "evaluator", "index": 0})) is None
    broken = cluster_left_alone(model, {"TF_CONFIG": "{}"})
    assert broken is not None and broken.refuses
    monkeypatch.setenv("TF_CONFIG", alone["TF_CONFIG"])
    config = Config.model_validate({"run": {"directory": str(tmp_path)}, "fit": {"steps_per_execution": 1}})
    with pytest.raises(PlanError, match="each worker trains a model of its own"):
        model.fit(tf.ones((4, 2)), tf.ones((4, 1)), verbose=0, callbacks=tfvolta.build_callbacks(config, model))


def test_an_all_reduce_through_a_strategy_counts_its_replicas() -> None:
    value = {"kibibytes": 8, "repeats": 3, "timeout_seconds": 30.0}
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    outcome = time_all_reduce(strategy_step(tf, strategy, value), value)
    assert (outcome.status, outcome.observed["took_part"], outcome.observed["bytes"]) == (Status.APPLIED, 1, 8192)
