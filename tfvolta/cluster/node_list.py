"""Slurm's compact lists: ``dgx[1-3,7]`` of nodes, ``2(x3),1`` of tasks per node.

Ranges are expanded by ClusterShell. Its node sets sort their members, which ranks do not: every part of a list is
therefore expanded by itself, and the parts keep Slurm's own order.

Source: sbatch(1), SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE; ClusterShell's documentation, ``NodeSet``.
"""

from __future__ import annotations

import re
from typing import Iterator, Union

from tfvolta.errors import Problem

INSTALL = "pip install 'tfvolta[slurm]'"
_ONE_GROUP = re.compile(r"^([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)$")
_REPEATED = re.compile(r"^(\d+)(?:\(x(\d+)\))?$")


def expand_nodes(where: str, text: str) -> Union[tuple[str, ...], Problem]:
    """Names of the nodes of a list, in the list's own order, or what is wrong with it.

    Args:
        where: The variable that holds the list.
        text: Such as ``node[2,10-12],gpu1``.
    """
    if "[" not in text and "]" not in text:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
    except ImportError:
        why = "ClusterShell, which expands Slurm's lists of nodes, is not installed"
        return Problem(where, "a list of nodes without ranges", text, why, fix=f"run {INSTALL} on every node")
    try:
        # A set knows no order and no duplicates; a range of one part has its order from its numbers.
        parts = [NodeSet(part, resolver=RESOLVER_NOGROUP) for part in _parts(text)]
        return tuple(str(node) for part in parts for node in part)
    except NodeSetException as error:
        return Problem(where, "Slurm's form of a list of nodes, such as node[1-3,7]", text, why=str(error))


def _parts(text: str) -> Iterator[str]:
    """The list cut at commas: outside of brackets, and inside where a part has a single pair of them."""
    for part in re.split(r",(?![^\[]*\])", text):
        group = _ONE_GROUP.match(part)
        if group is None:
            yield part
            continue
        before, ranges, after = group.groups()
        for item in ranges.split(","):
            yield f"{before}[{item}]{after}"


def tasks_per_node(where: str, text: str) -> Union[tuple[int, ...], Problem]:
    """Numbers of tasks of each node, or what is wrong with the text.

    Args:
        where: The variable that holds the text.
        text: Such as ``2(x3),1``, which is 2, 2, 2, 1.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _REPEATED.match(part.strip())
        if match is None:
            return Problem(where, "Slurm's form of tasks per node, such as 2(x3),1", text)
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)
