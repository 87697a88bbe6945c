#!/usr/bin/env python3
"""An ordinary Keras script under one line of tfvolta against PyTorch at its best, in turns on one GPU.

    python3 benchmarks/peers/measure.py --output peers.jsonl                  # ResNet-50, BERT-large, two LSTM layers
    python3 benchmarks/peers/measure.py --only 'bert_large/.*' --warm-up serial --profile
    python3 benchmarks/peers/measure.py --tiny --rounds 3 --discard 0         # on a CPU, to try the script
    python3 benchmarks/peers/measure.py --list

See README.md next to it for what is compared and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Any, Iterator, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.peers.workloads import FULL, MODELS  # noqa: E402
from benchmarks.turns import Contender, Result, take_turns  # noqa: E402
from benchmarks.turns_options import add_arguments, options  # noqa: E402
from benchmarks.turns_summary import Lines, place, summaries, table  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# Contenders of a model: the side, whether tf_keras, and what is given besides. "untuned" is the same script alone.
MONITORS = [
    "gradient_monitor.every_steps=100",
    *("alarms.nan_loss=report", "alarms.max_skipped_in_row=100", "alarms.min_loss_scale=2", "alarms.action=report"),
    "alarms.every_steps=1",
]
# Flags that TensorFlow 2.21 takes: who computes products, how the rest is fused, how kernels are launched.
XLA_FLAGS = {
    "cublaslt": "--xla_gpu_enable_cublaslt=true",
    "cublas": "--xla_gpu_enable_cublaslt=true,--xla_gpu_enable_triton_gemm=false",
    "no-triton": "--xla_gpu_enable_triton_gemm=false",
    "triton-any": "--xla_gpu_triton_gemm_any=true",
    "tiling": "--xla_gpu_exhaustive_tiling_search=true",
    "fmha": "--xla_gpu_enable_cudnn_fmha=true",
    "norm": "--xla_gpu_enable_cudnn_layer_norm=true",
    "fusion-tuned": "--xla_gpu_experimental_enable_fusion_autotuner=true",
    "blocks": "--xla_gpu_experimental_enable_fusion_block_level_rewriter=true",
    "heroless": "--xla_gpu_experimental_enable_triton_heroless_priority_fusion=true",
    "multi-output": "--xla_gpu_unsupported_enable_triton_multi_output_fusion=true",
    "no-epilogue": "--xla_gpu_enable_reduction_epilogue_fusion=false",
    "no-graphs": "--xla_gpu_enable_command_buffer=",
}
SIDES: dict[str, dict[str, Any]] = {
    "torch": {"side": "torch"},
    "keras3": {"side": "tfvolta"},
    "tf_keras": {"side": "tfvolta", "legacy": True},
    "keras3+no-ahead": {"side": "tfvolta", "set": ["input.device_prefetch=null"]},
    "tf_keras+no-ahead": {"side": "tfvolta", "legacy": True, "set": ["input.device_prefetch=null"]},
    "keras3+monitors": {"side": "tfvolta", "set": MONITORS},
    "keras3+no-half": {"side": "tfvolta", "set": ["input.half=null"]},
    **{f"keras3+{name}": {"side": "tfvolta", "set": [f"xla.flags=[{flags}]"]} for name, flags in XLA_FLAGS.items()},
    "torch+graphs": {"side": "torch", "arguments": ["--compile", "reduce-overhead"]},
    "torch+tuned": {"side": "torch", "arguments": ["--compile", "max-autotune-no-cudagraphs"]},
    "torch+float": {"side": "torch", "arguments": ["--residual", "float"]},
    "keras3+untuned": {"side": "alone"},
}
# Copies ahead are tried where batches are large.
USUAL = {
    "resnet50": ("torch", "keras3", "tf_keras", "keras3+no-ahead"),
    "bert_large": ("torch", "keras3", "tf_keras"),
    "lstm": ("torch", "keras3", "tf_keras"),
}


def contenders(arguments: argparse.Namespace, folder: pathlib.Path) -> Iterator[Contender]:
    """Every contender that is asked for, model by model."""
    chosen = arguments.only or "|".join(
        f"{model}/{side}".replace("+", r"\+") for model in USUAL for side in USUAL[model]
    )
    for model in MODELS:
        for name, what in SIDES.items():
            full = f"{model}/{name}"
            if re.fullmatch(chosen, full):
                yield Contender(
                    full, model, command(arguments, model, what, folder / full), environ(what), name == "torch"
                )


def command(arguments: argparse.Namespace, model: str, what: dict[str, Any], runs: pathlib.Path) -> list[str]:
    """The command line of a contender."""
    given = [model, *what.get("arguments", ())]
    given += ["--tiny"] if arguments.tiny else []
    given += ["--steps", str(arguments.steps)] if arguments.steps else []
    given += ["--stride-first"] if arguments.stride_first else []
    if what["side"] == "torch":
        return [arguments.torch_python, str(HERE / "torch_script.py"), *given]
    script = [str(HERE / "keras_script.py"), *given]
    if what["side"] == "alone":
        return [sys.executable, *script]
    overrides = [part for each in (*what.get("set", ()), *arguments.set) for part in ("--set", each)]
    config = ["--config", str(arguments.config), "--directory", str(runs), *overrides]
    return [sys.executable, "-m", "tfvolta", "run", *config, *script]


def environ(what: dict[str, Any]) -> dict[str, str]:
    """The environment of a contender: this one's, and which Keras."""
    found = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONUNBUFFERED": "1"}
    found["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [found.get("PYTHONPATH")])])
    found.pop("TF_USE_LEGACY_KERAS", None)
    if what.get("legacy"):
        found["TF_USE_LEGACY_KERAS"] = "1"
    if what["side"] == "torch":
        found["PYTHONPATH"] = str(ROOT)  # its own packages, not those that TensorFlow was brought with
        found.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # others compile beside it
    return found


def outcomes(folder: pathlib.Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """How each setting ended in each run of tfvolta, from the run's evidence."""
    for name in names:
        for path in sorted((folder / name).glob("*/evidence.json")):
            evidence = json.loads(path.read_text(encoding="utf-8"))
            yield {
                "evidence": name,
                "status": evidence.get("status"),
                "outcomes": {knob: [what["status"], what["message"]] for knob, what in evidence["outcomes"].items()},
            }


def report(found: Sequence[dict[str, Any]], result: Result) -> None:
    """Prints profiles first and figures last, since the end of an output is what a terminal keeps."""
    for name, profile in result.profiles.items():
        print(f"profile {name}: {json.dumps(profile)[:900]}")
    for name, facts in result.facts.items():
        print(f"ready {name}: {json.dumps(facts)[:260]}")
    print("\n".join(table(found)))
    if result.interrupted:
        print(f"interrupted by {result.interrupted}")


def main(given: Optional[Sequence[str]] = None) -> int:
    arguments = parser().parse_args(given)
    with tempfile.TemporaryDirectory(prefix="peers_") as made:
        folder = arguments.logs or pathlib.Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        chosen = list(contenders(arguments, folder))
        if arguments.list or not chosen:
            print("\n".join(f"{each.name}: {' '.join(each.command)}" for each in chosen) or "nothing matches --only")
            return 0 if chosen else 2
        asked, lines = options(arguments), Lines(arguments.output)
        sizes = {model: dataclasses.asdict(FULL[model]) for model in MODELS}
        lines({"place": place(asked), "workloads": "tiny" if arguments.tiny else sizes, "command": sys.argv})
        result = take_turns(chosen, asked, folder, lines)
        found = summaries(chosen, result, asked)
        for row in (*found, *outcomes(folder, [each.name for each in chosen]), {"place": place(asked)}):
            lines(row)
        report(found, result)
    return 130 if result.interrupted else int(bool(result.left_out))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--output", type=pathlib.Path, help="file of JSON lines that is written")
    found.add_argument("--only", default="", help="pattern of whole names; by default the usual ones")
    found.add_argument("--list", action="store_true", help="print the contenders and their commands")
    found.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    found.add_argument("--steps", type=int, help="steps of an epoch")
    found.add_argument("--stride-first", action="store_true", help="ResNet-50 v1 instead of v1.5, on both sides")
    found.add_argument("--config", type=pathlib.Path, default=HERE / "config.yaml", help="tfvolta's config")
    found.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for tfvolta's side")
    found.add_argument("--torch-python", default=sys.executable, help="interpreter that has PyTorch")
    found.add_argument("--logs", type=pathlib.Path, help="folder for logs and evidence; a temporary one if left out")
    add_arguments(found, groups="together", rounds=9)
    return found


if __name__ == "__main__":
    sys.exit(main())
