"""``tfvolta estimate scaling`` on the command line."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.pure.evidence_examples import evidence, outcome
from tests.pure.machines import machine
from tests.pure.sources import ROOT
from tfvolta.cli.main import main
from tfvolta.evidence.store import EvidenceStore

RESNET = ("--model", "resnet50", "--images-per-second", "1270", "--batch", "256", "--machine", "dgx1")
STEP = ("--model", "resnet50", "--step-ms", "100")


def estimate(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["estimate", "scaling", *arguments, "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["estimate", "scaling", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "Traceback" not in printed.err
    return printed.err


def test_it_runs_without_tensorflow_or_a_gpu() -> None:
    code = (
        "import sys; from tfvolta.cli.main import main; "
        f"code = main(['estimate', 'scaling', *{list(RESNET)!r}]); "
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules), sys.modules; sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Scaling of resnet50 on dgx1" in done.stdout and "1,270" in done.stdout


def test_the_table_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "scaling", *RESNET, "--gpus", "1,8,32"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "32 = 4 x 8" in text and "4 x InfiniBand EDR" in text
    assert "GPU 0 3 2 1 5 6 7 4" in text and "communication.compression: fp16" in text
    assert "at most, on 24 published V100 rows with several machines" in text


def test_every_number_of_gpus_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    content = estimate(capsys, *RESNET, "--gpus", "8,1,2,8", "--kind", "horovod")
    assert [point["gpus"] for point in content["points"]] == [1, 2, 8]
    one, _, eight = content["points"]
    assert one["efficiency_percent"] == 100.0 and one["examples_per_second"] == pytest.approx(1270.0)
    assert 90 < eight["efficiency_percent"] < 100
    assert eight["step_ms"] == pytest.approx(
        content["pass_ms"] + eight["waiting_ms"] + eight["exposed_communication_ms"]
    )
    assert content["gradients"]["parameters"] == 25_557_032 and "one machine" in content["error"]


def test_settings_change_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    def exposed(*settings: str) -> float:
        content = estimate(capsys, "--model", "bert_large", "--step-ms", "150", "--machine", "dgx1", *settings)
        value: float = content["points"][-1]["exposed_communication_ms"]
        return value

    plain = exposed()
    assert exposed("--compression", "fp16") < plain
    assert exposed("--pack-mb", "32") < 0.5 * plain
    assert exposed("--num-packs", "4") >= plain
    assert exposed("--num-packs", "0") < 0.5 * plain
    assert exposed("--kind", "horovod") < 0.5 * plain
    assert exposed("--kind", "horovod", "--xla") > plain
    assert exposed("--algorithm", "tree") > plain
    assert exposed("--kind", "horovod", "--cycle-time-ms", "50") > exposed("--kind", "horovod")
    content = estimate(capsys, *STEP, "--machine", "dgx1", "--reduce-every", "4")
    assert content["points"][0]["step_ms"] == 400.0 and content["pass_ms"] == 100.0


def test_gradients_can_be_given_by_size_or_number(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--parameters", "25,000,000"), ("--gradients-mb", "100")):
        content = estimate(capsys, *arguments, "--step-ms", "100", "--machine", "dgx2", "--gpus", "16")
        assert content["gradients"]["parameters"] == 25_000_000 and not content["gradients"]["structure"]
    main(["estimate", "scaling", "--parameters", "25000000", "--step-ms", "100", "--machine", "dgx2"])
    assert "layers unknown, taken as equal" in " ".join(capsys.readouterr().out.split())


def test_between_machines_the_adapters_count(capsys: pytest.CaptureFixture[str]) -> None:
    def network(*arguments: str) -> str:
        text: str = estimate(capsys, *STEP, "--gpus", "16", "--machine", "dgx1", *arguments)["network"]
        return text

    assert network() == network("--nodes-link", "ib_edr") == "4 x InfiniBand EDR in each machine, 48 GB/s together"
    assert network("--adapters", "2").startswith("2 x InfiniBand EDR")
    assert network("--nodes-link", "ethernet_25").startswith("1 x 25 Gbit Ethernet")
    assert (
        network("--nodes-link", "ib_hdr", "--adapters", "4") == "4 x InfiniBand HDR in each machine, 96 GB/s together"
    )


def test_a_facts_file_is_a_machine(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "two.json"
    two = machine("dgx1").model_copy(update={"gpus": machine("dgx1").gpus[:2]})
    file.write_text(two.model_dump_json())
    content = estimate(capsys, *STEP, "--machine", str(file), "--gpus", "1,2,4", "--nodes-link", "ib_edr")
    assert [point["machines"] for point in content["points"]] == [1, 1, 2]
    assert content["settings"]["kind"] == "multi_worker_mirrored"


@pytest.mark.parametrize(("least", "code"), [("50", 0), ("99.9", 1)])
def test_an_efficiency_that_is_too_low_is_a_failed_check(
    capsys: pytest.CaptureFixture[str], least: str, code: int
) -> None:
    estimate(capsys, *STEP, "--machine", "dgx1", "--at-least", least, code=code)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*STEP, "--machine", "dgx1", "--gpus", "1,x,0"), ["--gpus", "x, 0", "1,2,4,8"]),
        ((*STEP, "--machine", "dgx1", "--gpus", ""), ["--gpus", "nothing"]),
        ((*STEP, "--machine", "dgx1", "--gpus", "8,12"), ["multiple of 8", "12", "--gpus 16"]),
        ((*STEP, "--machine", "cpu"), ["a machine with GPUs", "--machine dgx1"]),
        ((*STEP, "--machine", "dgx3"), ["dgx3", "did you mean dgx"]),
        ((*STEP, "--machine", "h200_x2", "--gpus", "4"), ["--nodes-link", "ethernet_25", "h200_x2 has"]),
        ((*STEP, "--machine", "dgx1", "--nodes-link", "ib_edf"), ["did you mean ib_edr?"]),
        ((*STEP, "--machine", "dgx1", "--kind", "horovd"), ["did you mean horovod?"]),
        ((*STEP, "--machine", "dgx1", "--gpus", "16", "--kind", "mirrored"), ["one process on one machine"]),
        ((*STEP, "--machine", "dgx1", "--compression", "int8"), ["none, fp16"]),
        ((*STEP, "--machine", "dgx1", "--reduce-every", "1.5"), ["a whole number above 0", "1.5"]),
        ((*STEP, "--machine", "dgx1", "--reduce-every", "0"), ["a whole number above 0"]),
        ((*STEP, "--machine", "dgx1", "--pack-mb", "nan"), ["--pack-mb", "a number above 0"]),
        ((*STEP, "--machine", "dgx1", "--pack-mb", "8", "--num-packs", "2"), ["either their number or their size"]),
        ((*STEP, "--machine", "dgx1", "--kind", "horovod", "--num-packs", "2"), ["--kind mirrored without"]),
        ((*STEP, "--machine", "dgx1", "--cycle-time-ms", "5"), ["only Horovod looks in cycles"]),
        ((*STEP, "--machine", "dgx1", "--algorithm", "hierarchical"), ["--kind horovod"]),
        ((*STEP, "--machine", "dgx1", "--algorithm", "rign"), ["did you mean ring?"]),
        ((*STEP, "--machine", "dgx1", "--at-least", "101"), ["at most 100"]),
        ((*STEP, "--machine", "dgx1", "--images-per-second", "9"), ["--step-ms and --images-per-second"]),
        (("--model", "resnet50", "--images-per-second", "9", "--machine", "dgx1"), ["--batch"]),
        (("--model", "resnet50", "--step-ms", "-3", "--machine", "dgx1"), ["--step-ms", "above 0"]),
        (("--model", "resnet50", "--machine", "dgx1"), ["--run", "one GPU's step"]),
        (("--model", "resnet", "--step-ms", "9", "--machine", "dgx1"), ["did you mean resnet", "--parameters N"]),
        (("--step-ms", "9", "--machine", "dgx1"), ["--model resnet50", "depends on the bytes"]),
        ((*STEP, "--parameters", "5", "--machine", "dgx1"), ["--model and --parameters", "keep --model"]),
        (("--parameters", "0", "--step-ms", "9", "--machine", "dgx1"), ["--parameters", "a whole number above 0"]),
        (("--gradients-mb", "inf", "--step-ms", "9", "--machine", "dgx1"), ["--gradients-mb"]),
        ((*STEP, "--run", "none", "--machine", "dgx1"), ["No such run"]),
    ],
    ids=lambda value: "_".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_explained(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: list[str]
) -> None:
    text = refusal(capsys, *arguments)
    assert [part for part in expected if part not in text] == []
    assert "expected:" in text and "received:" in text


def test_everything_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = refusal(
        capsys, "--model", "resnt50", "--gpus", "x", "--kind", "horvod", "--pack-mb", "big", "--machine", "dgx1"
    )
    assert text.count("expected:") == 5


def test_gpus_of_two_models_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    facts = machine("dgx1")
    other = facts.gpus[1].model_copy(update={"name": "NVIDIA A100"})
    file = tmp_path / "mixed.json"
    file.write_text(facts.model_copy(update={"gpus": (facts.gpus[0], other)}).model_dump_json())
    assert "GPUs of one model" in refusal(capsys, *STEP, "--machine", str(file), "--gpus", "2")


def test_an_unknown_subject_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["estimate", "speed"])
    assert ended.value.code == 2 and "scaling" in capsys.readouterr().err


def run_of(tmp_path: pathlib.Path, replicas: int, **throughput: Any) -> str:
    """The folder of a run whose step was measured."""
    measured = {"step_seconds_median": 0.2, "epochs": [{"steps": 10, "examples": 2560 * replicas}], **throughput}
    observed = {"replicas": replicas, "gradient_bytes": 102_228_128}
    store = EvidenceStore.create(tmp_path / "runs", "measured")
    store.write(
        evidence(
            run_id="measured",
            facts=machine("dgx1"),
            measurements={"throughput": measured},
            outcomes={"communication": outcome("APPLIED", observed=observed)},
        )
    )
    return str(store.path.parent if store.path.is_file() else store.path)


def test_a_run_gives_step_batch_machine_and_gradients(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    content = estimate(capsys, "--run", run_of(tmp_path, 1), "--gpus", "1,8")
    assert content["pass_ms"] == pytest.approx(200.0) and content["batch"] == 256
    assert content["machine"] == "the machine of run measured"
    assert content["gradients"]["bytes"] == 102_228_128


def test_a_run_on_several_gpus_is_led_back_to_one(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    content = estimate(capsys, "--run", run_of(tmp_path, 8), "--gpus", "1,8")
    assert content["pass_ms"] < 200.0 and content["batch"] == 256
    assert content["points"][-1]["step_ms"] == pytest.approx(200.0)


@pytest.mark.parametrize("throughput", [{"step_seconds_median": None}, {"step_times": "dispatch"}])
def test_a_run_without_step_times_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, throughput: dict[str, Any]
) -> None:
    text = refusal(capsys, "--run", run_of(tmp_path, 1, **throughput))
    assert "says nothing about its step" in text and "--step-ms" in text
