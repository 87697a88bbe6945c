"""``tfvolta estimate``: what training will take, before it is tried."""

from __future__ import annotations

import importlib
from typing import Any

# One file each beside this one, tfvolta/cli/estimate_NAME.py, with add_parser(subparsers).
SUBJECTS = ("scaling", "memory", "tensor-cores")


def add_parser(subparsers: Any) -> None:
    """Adds the command and what it can estimate."""
    parser = subparsers.add_parser(
        "estimate",
        help="predict scaling, memory and Tensor Core use before training",
        description=__doc__,
        epilog="Each subject has --help of its own, and prints JSON with --json.",
    )
    subjects = parser.add_subparsers(title="subjects", metavar="SUBJECT", required=True)
    for name in SUBJECTS:
        importlib.import_module(f"tfvolta.cli.estimate_{name.replace('-', '_')}").add_parser(subjects)
        subject = subjects.choices[name]
        subject.description = (subject.description or "").replace("`", "")
