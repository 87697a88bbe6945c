"""``tfvolta cluster``: which processes train together with this one, what said so, and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Optional

from tfvolta.cli.config_arguments import add_config_arguments, load_from


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("cluster", help="show which processes train together, and why", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument("--write-tf-config", action="store_true", help="print the value for TF_CONFIG, nothing else")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the cluster; 2 where it cannot be used.

    Raises:
        ConfigError: The config cannot be used.
        ClusterError: The cluster cannot be used, or has no addresses to write.
    """
    from tfvolta.cluster import resolve
    from tfvolta.cluster.checks import gpu_problems, gpu_warnings, network_problems
    from tfvolta.errors import ClusterError
    from tfvolta.facts.probe import probe

    config, facts = load_from(arguments), probe()
    cluster = resolve(os.environ, config, facts)
    if arguments.write_tf_config:
        return _write(cluster)
    problems, warnings = [], []
    if cluster is not None:
        visible = config.get("devices.visible")
        warnings = gpu_warnings(cluster, facts, os.environ, str(config.get("strategy.kind") or ""))
        problems = gpu_problems(cluster, facts, os.environ, visible if isinstance(visible, list) else None)
        problems += network_problems(cluster, os.environ)
    if problems and not arguments.json:
        _print(cluster, warnings)
        sys.stdout.flush()
    if problems:
        count = len(problems)
        raise ClusterError(f"This process cannot take its place: {count} problem{'s' * (count > 1)}.", problems)
    if arguments.json:
        print(json.dumps(_content(cluster, warnings), indent=2))
    else:
        _print(cluster, warnings)
    return 0


def _write(cluster: Optional[Any]) -> int:
    from tfvolta.errors import ClusterError, Problem
    from tfvolta.knobs.cluster import ALONE

    if cluster is None:
        fix = "start it with tfvolta launch, srun, mpirun or a Kubernetes job; a run of one process needs no TF_CONFIG"
        problem = Problem("environment", "variables of a launcher", "none", ALONE, fix)
        raise ClusterError("There is nothing to write into TF_CONFIG.", [problem])
    print(cluster.tf_config_text())
    return 0


def _content(cluster: Optional[Any], warnings: list[str]) -> dict[str, Any]:
    if cluster is None:
        return {"resolver": "local", "world_size": 1, "warnings": warnings}
    return {
        "resolver": cluster.resolver,
        "task": {"type": cluster.task_type, "index": cluster.task_index},
        "address": cluster.address,
        "rank": cluster.rank,
        "world_size": cluster.world_size,
        "num_workers": cluster.num_workers,
        "local_rank": cluster.local_rank,
        "local_size": cluster.local_size,
        "is_chief": cluster.is_chief,
        "addresses": {job: list(tasks) for job, tasks in cluster.addresses.items()},
        "explanation": list(cluster.explain()),
        "warnings": warnings,
    }


def _print(cluster: Optional[Any], warnings: list[str]) -> None:
    from rich.text import Text

    from tfvolta.knobs.cluster import ALONE
    from tfvolta.report.style import make_console, new_table

    console = make_console()
    if cluster is None:
        console.print(Text(ALONE))
        return
    for sentence in cluster.explain():
        console.print(Text(sentence))
    if cluster.addresses:
        table = new_table("process", "address", "")
        for job, tasks in cluster.addresses.items():
            for index, address in enumerate(tasks):
                own = (job, index) == (cluster.task_type, cluster.task_index)
                table.add_row(Text(f"{job} {index}"), Text(address), Text("this process" if own else ""))
        console.print(table)
    for text in warnings:
        console.print(Text(f"warning: {text}"))
