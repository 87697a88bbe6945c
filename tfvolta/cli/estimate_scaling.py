"""``tfvolta estimate scaling``: step time and efficiency on more GPUs, from one GPU's step and the gradients' size.

The model behind it, its constants with their sources, and its errors on published tables: docs/estimate_scaling.md.
"""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Adds the subject."""
    parser = subparsers.add_parser("scaling", help="step time and efficiency on more GPUs", description=__doc__)
    _add_workload(parser)
    _add_hardware(parser)
    _add_settings(parser)
    parser.add_argument("--at-least", metavar="PERCENT", help="exit with 1 where the last efficiency is lower")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is trained")
    group.add_argument("--model", metavar="NAME", help="a known architecture, such as resnet50 or bert_large")
    group.add_argument("--parameters", metavar="N", help="trainable parameters, of a model that is not known")
    group.add_argument("--gradients-mb", metavar="MB", help="or its gradients as float32, in millions of bytes")
    group.add_argument(
        "--run", dest="evidence", metavar="RUN", help="take step, batch and machine from a run's evidence"
    )
    group.add_argument("--directory", metavar="DIR", default="runs", help="folder of runs (default: runs)")
    group.add_argument("--step-ms", metavar="MS", help="step of one GPU: forward and backward pass and update")
    group.add_argument("--images-per-second", metavar="RATE", help="or examples a second of one GPU, with --batch")
    group.add_argument("--batch", metavar="N", help="examples of one GPU's step")


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--gpus", metavar="N,N,...", default="1,2,4,8", help="numbers of GPUs (default: 1,2,4,8)")
    group.add_argument("--machine", metavar="NAME|FILE|live", help="recorded machine or facts file (default: live)")
    group.add_argument("--nodes-link", metavar="LINK", help="between machines, such as ib_edr or ethernet_25")
    group.add_argument("--adapters", metavar="N", help="network adapters of each machine")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how gradients are reduced")
    kinds = "mirrored (default on one machine), multi_worker_mirrored (default on several) or horovod"
    group.add_argument("--kind", metavar="KIND", help=kinds)
    group.add_argument("--pack-mb", metavar="MB", help="communication.pack_mb")
    group.add_argument("--num-packs", metavar="N", help="communication.num_packs (mirrored)")
    group.add_argument(
        "--compression", metavar="FORMAT", default="none", help="communication.compression: none or fp16"
    )
    group.add_argument("--reduce-every", metavar="K", default="1", help="communication.reduce_every")
    group.add_argument("--cycle-time-ms", metavar="MS", help="communication.cycle_time_ms (horovod)")
    group.add_argument("--xla", action="store_true", help="the step is compiled: gradients come out at its end")
    group.add_argument("--algorithm", metavar="NAME", default="auto", help="auto, ring, tree or hierarchical (horovod)")


def run(arguments: argparse.Namespace) -> int:
    """Prints the estimate; 1 where the efficiency is below ``--at-least``.

    Raises:
        ConfigError: Arguments cannot be used; all problems at once.
        FactsError: The machine cannot be read.
        EvidenceError: The run cannot be read.
    """
    from tfvolta.cli.scaling_request import read_request
    from tfvolta.report.scaling import print_scaling

    request = read_request(arguments)
    content = request.to_json()
    if arguments.json:
        print(json.dumps(content, indent=2))
    else:
        print_scaling(content)
    last = content["points"][-1]["efficiency_percent"]
    return 1 if request.least_percent is not None and last < request.least_percent else 0
