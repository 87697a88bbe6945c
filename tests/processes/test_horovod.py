"""Two Horovod ranks on every stack: equal to one process, and what they refuse, average, broadcast and write."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.horovod_place import horovod_folder
from tests.processes.horovod_start import commands_with, horovodrun

pytestmark = pytest.mark.timeout(600)  # two ranks, each with TensorFlow's start and some fifty traces

STACK = "tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") else ""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank saw."""
    out = tmp_path_factory.mktemp("ranks")
    done = horovodrun(horovod_folder(), ["-m", "tests.processes.horovod_runs", str(out)])
    files = [out / f"rank_{rank}.json" for rank in range(2)]
    assert done.returncode == 0 and all(file.is_file() for file in files), done.stdout[-4000:]
    found = [json.loads(file.read_text()) for file in files]
    assert [each["size"] for each in found] == [2, 2]
    assert commands_with(str(out)) == []  # no rank and no launcher is left
    return found


def both(ranks: list[dict[str, Any]], case: str) -> list[Any]:
    """What both ranks saw in a case, which must have come to its end."""
    for rank, each in enumerate(ranks):
        assert "error" not in each[case], f"rank {rank}: {each[case]['error'][-3000:]}"
    return [each[case] for each in ranks]


def outcome(found: dict[str, Any], name: str = "communication") -> dict[str, Any]:
    """How a setting ended, which must be APPLIED."""
    ended: dict[str, Any] = found[name]
    assert ended["status"] == "APPLIED", ended
    return ended


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("sgd", 1e-5), ("adamw", 1e-4), ("global_clipnorm", 1e-5), ("clipnorm", 1e-5), ("legacy adam", 1e-4)],
)
def test_twenty_steps_are_those_of_one_process(ranks: list[dict[str, Any]], name: str, tolerance: float) -> None:
    for found in both(ranks, "equal"):
        if name not in found:
            pytest.skip("Keras 3 has no legacy optimizers")
        assert found[name]["difference"] < tolerance
        assert outcome(found[name])["observed"]["operations"] == {"HorovodAllreduce[float32]": 4}


def test_each_rank_says_who_it_is(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(both(ranks, "equal")):
        said = outcome(found["sgd"], "strategy")
        assert said["observed"]["rank"] == rank and said["observed"]["replicas"] == 2
        assert "The batch of 8 is this rank's; the global batch is 16." in said["message"]
        assert f"Rank {rank} of 2" in outcome(found["sgd"], "horovod_rank")["message"]


def test_groups_are_single_operations(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "formats"):
        assert found["groups"]["difference"] < 1e-5
        assert outcome(found["groups"])["observed"]["operations"] == {"HorovodGroupedAllreduce[float32]": 2}


def test_compressed_gradients_travel_as_float16(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "formats"):
        assert 0 < found["compression"]["difference"] < 5e-3
        ended = outcome(found["compression"])
        assert ended["observed"]["operations"] == {"HorovodGroupedAllreduce[float16]": 3}
        assert "Compression covers 4 of 4 variables." in ended["message"]


def test_the_division_may_come_after_the_sum(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "formats"):
        assert found["predivide"]["difference"] < 1e-5


def test_a_sparse_gradient_that_is_smaller_dense_is_made_dense(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "sparse"):
        assert found["small"]["difference"] < 1e-5
        observed = outcome(found["small"])["observed"]
        assert observed["operations"] == {"HorovodAllreduce[float32]": 3} and observed["gathered"] == 0
        (choice,) = observed["sparse"]
        # 8 examples of 3 ids on each of 2 ranks: 48 rows of 4 float32 and an index; the whole variable has 40 rows.
        assert (choice["rows"], choice["dense_bytes"], choice["as_dense"]) == (24, 40 * 4 * 4, True)
        assert choice["gathered_bytes"] > choice["dense_bytes"]
        assert "made dense" in outcome(found["small"])["message"]


def test_rows_are_gathered_where_that_is_smaller(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "sparse"):
        assert found["large"]["difference"] < 1e-4  # Adam
        observed = outcome(found["large"])["observed"]
        assert observed["operations"]["HorovodAllreduce[float32]"] == 2
        assert sum(count for key, count in observed["operations"].items() if key.startswith("HorovodAllgather")) == 2
        (choice,) = observed["sparse"]
        assert not choice["as_dense"] and choice["gathered_bytes"] < choice["dense_bytes"] == 1000 * 4 * 4


def test_a_config_can_insist_on_dense(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "sparse"):
        assert found["always"]["difference"] < 1e-4  # Adam
        assert outcome(found["always"])["observed"]["operations"] == {"HorovodAllreduce[float32]": 3}


def test_rows_that_are_named_more_than_once_are_added_up(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "sparse"):
        assert found["repeated"]["difference"] < 1e-5
        assert outcome(found["repeated"])["observed"]["gathered"] == 1


def test_rows_are_compressed_too_and_the_report_counts_them(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "sparse"):
        assert found["compressed"]["difference"] < 5e-3
        ended = outcome(found["compressed"])
        assert ended["observed"]["operations"]["HorovodAllgather[float16]"] == 1
        assert ended["observed"]["operations"]["HorovodAllreduce[float16]"] == 2
        assert "Compression covers 3 of 3 variables." in ended["message"]


def test_an_overflow_on_one_rank_skips_the_step_on_all(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "overflow")
    assert first["scales"] == second["scales"] == first["alone"]
    assert first["scales"][2:4] == [1024.0, 512.0]
    assert first["skipped"] == second["skipped"] == 1
    assert first["weights"] == second["weights"]
    assert first["difference"] < 5e-3  # float16
    outcome(first)


@pytest.mark.parametrize("name", ["plain", "groups", "compressed", "legacy"])
def test_four_batches_make_one_update_and_one_reduction(ranks: list[dict[str, Any]], name: str) -> None:
    for cases in both(ranks, "windows"):
        if name not in cases:
            pytest.skip("Keras 3 has no legacy optimizers")
        found = cases[name]
        assert found["difference"] < (5e-3 if name == "compressed" else 1e-5)
        assert (found["batches"], found["updates"], found["applied"], found["iterations"]) == (True, 5, 5, 5)
        dtype = "float16" if name == "compressed" else "float32"
        grouped = {f"HorovodGroupedAllreduce[{dtype}]": 1}
        update = grouped if name == "groups" else {f"HorovodAllreduce[{dtype}]": 4}
        assert found["operations"] == {"update": update, "accumulate": {}}
        assert "A replica sends" in outcome(found, "reduce_every")["message"]


def test_an_overflow_on_one_rank_leaves_its_window_out_on_all(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "overflow in a window")
    assert first["weights"] == second["weights"]  # Horovod's own addition of gradients lets them differ from here on
    for found in (first, second):
        assert found["scales"] == [512.0, 512.0]
        assert (found["updates"], found["applied"], found["skipped"]) == (10, 9, 1)
        assert found["difference"] < 5e-3


def test_weights_and_optimizer_are_broadcast_before_the_first_step(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "same start"):
        assert found["difference"] < 1e-3  # Adam, whose state only rank 0 had
        assert found["iterations"] == 3 + 20


def test_an_optimizer_keeps_its_state_when_it_is_distributed(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "kept state"):
        assert found and all(each == {"iterations": 3, "kept": True} for each in found.values())


def test_an_eager_model_is_reduced_too(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "eager"):
        assert found["difference"] < 1e-5
        assert "runs eagerly" in outcome(found)["message"]


def test_a_step_with_horovod_is_not_compiled_and_the_reason_is_given(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "jit"):
        assert found["asked"]["difference"] < 1e-5
        assert any("is not compiled by XLA (jit_compile=True): Horovod's" in text for text in found["warnings"])
        assert found["auto"]["difference"] < 1e-5
        assert outcome(found["auto"], "jit")["observed"]["compiled"] is False


def test_unequal_numbers_of_batches_are_refused_on_all_ranks(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "uneven"):
        assert "ClusterError: Ranks have different numbers of batches." in found["refused"]
        assert "received: [4, 2]" in found["refused"] and "data.uneven: cut" in found["refused"]


def test_or_every_rank_is_cut_to_the_fewest(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "uneven")
    assert first["steps"] == second["steps"] == [2, 2, 2, 2]  # two epochs of arrays, two of a data set
    assert first["difference"] < 1e-5  # each epoch began with the data anew
    assert len(first["warnings"]) == 2 and "[4, 2] batches an epoch; every rank trains 2" in first["warnings"][0]


def test_data_that_do_not_say_how_many_batches_they_have_are_warned_of_once(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "unknown")
    (text,) = first["warnings"]
    assert "[None, None]" in text and "pass steps_per_epoch" in text
    assert second["warnings"] == []


def test_one_callback_does_all_of_it(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "one callback")
    for found in (first, second):
        assert found["difference"] < 1e-5
        assert outcome(found)["observed"]["operations"] == {"HorovodGroupedAllreduce[float32]": 2}
        assert found["ended"]["watchdog"] == "APPLIED"
    assert first["files"] == ["log.csv"] and second["files"] == []
    assert "horovod_optimizer APPLIED" in first["said"] and "horovod_optimizer" not in second["said"]


def test_a_loaded_model_is_refused_by_itself_and_distributed_by_a_config(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "loaded")
    for found in (first, second):
        for ending in (".keras", ".h5"):
            package, name = found[ending]["optimizer"].split(".")
            assert name == "Adam" and package in ("keras", "tf_keras")  # no class of Horovod's or tfvolta's
            assert "size() > 1 but the optimizer is not distributed" in found[ending]["plain"]
        (finding,) = found["audit"]
        assert finding.startswith("undistributed_optimizer: size() > 1 but the optimizer is not distributed")
        assert found["again"]["iterations"] == 2 * 20
        assert found["difference"] < 1e-6
        outcome(found)
    assert first["again"]["weights"] == second["again"]["weights"]


def test_weights_that_differ_are_found_at_the_end_of_the_epoch(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "diverged"):
        assert "ClusterError: Weights differ between ranks." in found["raised"]
        assert "weights after epoch 2" in found["raised"] and "last/bias" in found["raised"]


def test_a_rank_that_stops_alone_is_an_error_and_no_hang(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "parted"):
        assert "rank 0 begins epoch 2; rank 1 has ended" in found["raised"]


def test_models_of_other_shapes_are_refused_with_their_variables(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "different models"):
        assert "Ranks train different models." in found["raised"]
        assert "rank 0: float32 (4, 8); rank 1: float32 (4, 9)" in found["raised"]


def test_only_rank_0_prints_and_writes(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "output")
    assert "loss" in first["printed"] and first["files"] == ["last.keras", "log.csv"]
    assert second["printed"] == "" and second["files"] == []
    assert "on rank 0 only, and not on rank 1: CSVLogger, ModelCheckpoint" in second["said"]
    assert "on rank 0 only" not in first["said"]
    assert len(first["warned"]) == 1 and "write over one another" in first["warned"][0] and second["warned"] == []


def test_metrics_are_those_of_all_examples(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "metrics")
    assert first["history"] == second["history"]
    (loss, mae), (val_loss, val_mae) = first["reference"]
    for epoch in range(2):
        assert first["history"]["loss"][epoch] == pytest.approx(loss, rel=1e-5)
        assert first["history"]["mae"][epoch] == pytest.approx(mae, rel=1e-5)
        assert first["history"]["val_loss"][epoch] == pytest.approx(val_loss, rel=1e-5)
        assert first["history"]["val_mae"][epoch] == pytest.approx(val_mae, rel=1e-5)


def test_a_train_step_past_the_optimizer_is_no_success(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "not reduced"):
        assert "NoEffectError" in found["raised"] and "holds no operation of Horovod's" in found["raised"]
        assert "self.optimizer.apply_gradients" in found["raised"]


def test_a_script_s_own_wrapper_stays_and_is_refused_where_ranks_would_diverge(ranks: list[dict[str, Any]]) -> None:
    for found in both(ranks, "own wrapper"):
        if not found:
            pytest.skip("Horovod's own wrapper fails under Keras 3")
        assert found["difference"] < 1e-5
        assert found["ends"]["status"] == "APPLIED"
        assert "The script reduces its gradients itself" in found["ends"]["message"]
        assert "communication.groups changes nothing" in found["asked"]
        assert found["backend"] == ("tf_keras" if STACK == "tf_keras" else "keras")
        for family in ("new", "legacy"):
            assert "Training like this makes ranks diverge." in found[family]
            assert "communication.reduce_every: 2" in found[family]


def test_ranks_stop_together_at_a_loss_that_is_not_finite_on_one(ranks: list[dict[str, Any]]) -> None:
    first, second = both(ranks, "numerics")
    hidden, outputs = (0.2, 0.4), (0.06, 0.12)  # of the two ranks, whose gradients are averaged
    norm = sum(2 * output * value for output, value in zip(outputs, hidden)) / 2 * 3**0.5
    for found in (first, second):
        assert found["steps"] == [1, 3] and found["norms"] == [pytest.approx(norm, rel=5e-3), 0.0]
        assert found["batches"] == [2] and found["scale"] == [64.0, 1]  # the overflow was tolerated
    assert (first["culprits"], second["culprits"]) == (["nothing"], ["inputs"])
    assert first["what"] == ["the loss is not finite on another worker"]
