"""How the GPUs of a machine are joined: the matrix of ``nvidia-smi topo -m``, NVLink groups, and a good ring."""

from __future__ import annotations

import itertools
import re
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from tfvolta.facts.schema import Facts, Link

# Nearest first, as the legend of nvidia-smi explains them; an NVLink is nearer than any.
PCIE_KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
# Names of older drivers: SOC became SYS, and PSB is a switch on the board.
_RENAMED = {"SOC": "SYS", "PSB": "PIX"}
_MEANING = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the interconnect between CPU sockets",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A ring is searched for link width by link width; a machine on which that takes longer gets the next width.
_SEARCH_STEPS = 200_000


class Matrix(NamedTuple):
    """Links read from the text of ``nvidia-smi topo -m``, and what was odd about it."""

    links: tuple[Link, ...]
    notes: tuple[str, ...]


class Ring(NamedTuple):
    """An order in which each GPU sends to the next, and the last to the first.

    Attributes:
        order: GPU indices.
        nvlinks: NVLinks of the narrowest hop; 0 where a hop goes over PCIe.
        slowest: Kind of the slowest hop.
    """

    order: tuple[int, ...]
    nvlinks: int
    slowest: str


def parse_topology(text: str) -> Matrix:
    """Reads the matrix that ``nvidia-smi topo -m`` prints; rows and columns that are no GPU are left out.

    Args:
        text: The whole output; terminal colours and underlines may be in it.
    """
    lines = _ESCAPE.sub("", text).splitlines()
    header = next((index for index, line in enumerate(lines) if re.match(r"\s*GPU\d+(\s|$)", line)), None)
    if header is None:
        return Matrix((), ("topology: no GPU column in the output of nvidia-smi topo -m",))
    columns = list(itertools.takewhile(lambda word: word not in ("CPU", "NUMA"), lines[header].split()))
    cells: dict[tuple[int, int], str] = {}
    notes: list[str] = []
    for line in lines[header + 1 :]:
        name, *row = line.split() or [""]
        if not re.fullmatch(r"GPU\d+", name):
            continue
        for column, kind in zip(columns, row):
            if re.fullmatch(r"GPU\d+", column) and column != name:
                cells[int(name[3:]), int(column[3:])] = _RENAMED.get(kind, kind)
    return Matrix(tuple(_links(cells, notes)), tuple(notes))


def _links(cells: Mapping[tuple[int, int], str], notes: list[str]) -> Iterator[Link]:
    for (a, b), kind in sorted(cells.items()):
        if a > b and (b, a) in cells:
            continue
        if not re.fullmatch(r"NV\d+", kind) and kind not in PCIE_KINDS:
            notes.append(f"topology: GPU{a} to GPU{b} is {kind!r}, which is no known kind of link")
            continue
        other = cells.get((b, a), kind)
        if other != kind:
            notes.append(f"topology: GPU{a} to GPU{b} is {kind}, and back {other}; the first is kept")
        yield Link(a=min(a, b), b=max(a, b), kind=kind)


def nvlink_groups(facts: Facts) -> list[tuple[int, ...]]:
    """Partition of the GPUs into groups in which each pair has an NVLink; the largest first, a lone GPU last.

    A DGX-1 gives (0, 1, 2, 3) and (4, 5, 6, 7), a machine with NVSwitch one group, one without NVLink lone GPUs.
    """
    left = {gpu.index for gpu in facts.gpus}
    neighbours = _neighbours(facts)
    groups = []
    while left:
        cliques = _cliques(frozenset(), frozenset(left), frozenset(), neighbours)
        best = min(cliques, key=lambda clique: (-len(clique), sorted(clique)))
        groups.append(tuple(sorted(best)))
        left -= best
    return sorted(groups, key=lambda group: (-len(group), group))


def _neighbours(facts: Facts) -> dict[int, frozenset[int]]:
    joined: dict[int, set[int]] = {gpu.index: set() for gpu in facts.gpus}
    for link in facts.links:
        if link.nvlinks:
            joined.setdefault(link.a, set()).add(link.b)
            joined.setdefault(link.b, set()).add(link.a)
    return {index: frozenset(others) for index, others in joined.items()}


def _cliques(
    chosen: frozenset[int], open_to: frozenset[int], done: frozenset[int], neighbours: Mapping[int, frozenset[int]]
) -> Iterator[frozenset[int]]:
    """Maximal cliques, by the method of Bron and Kerbosch with a pivot (Communications of the ACM 16, 1973)."""
    if not open_to and not done:
        yield chosen
        return
    pivot = max(open_to | done, key=lambda index: len(neighbours[index] & open_to))
    for index in sorted(open_to - neighbours[pivot]):
        yield from _cliques(chosen | {index}, open_to & neighbours[index], done & neighbours[index], neighbours)
        open_to, done = open_to - {index}, done | {index}


def ring_order(facts: Facts, gpus: Optional[Iterable[int]] = None) -> Ring:
    """The ring whose slowest hop is the fastest possible; among equals, the first that a nearest-first search meets.

    A DGX-1 gives 0 3 2 1 5 6 7 4 with two NVLinks on every hop.

    Args:
        facts: The machine.
        gpus: GPU indices to join, all of them when None.
    """
    members = sorted({gpu.index for gpu in facts.gpus} if gpus is None else set(gpus))
    if len(members) < 2:
        return Ring(tuple(members), 0, "")
    speeds = {pair: _speed(link.kind) for link in facts.links for pair in ((link.a, link.b), (link.b, link.a))}
    kinds = {pair: link.kind for link in facts.links for pair in ((link.a, link.b), (link.b, link.a))}
    wanted = sorted({speeds.get(pair, 0) for pair in itertools.permutations(members, 2)}, reverse=True)
    for least in wanted:
        order = _cycle(members, speeds, least)
        if order is not None:
            hops = [kinds.get(pair, "unknown") for pair in zip(order, order[1:] + order[:1])]
            slowest = min(hops, key=_speed)
            return Ring(order, Link(a=0, b=1, kind=slowest).nvlinks, slowest)
    return Ring(tuple(members), 0, "unknown")


def _speed(kind: str) -> int:
    """Rank of a kind of link; higher is faster, 0 is unknown."""
    if kind in PCIE_KINDS:
        return len(PCIE_KINDS) - PCIE_KINDS.index(kind)
    return 100 + int(kind[2:]) if re.fullmatch(r"NV\d+", kind) else 0


def _cycle(members: Sequence[int], speeds: Mapping[tuple[int, int], int], least: int) -> Optional[tuple[int, ...]]:
    """A cycle through all members over links of at least one speed, by depth-first search; None where there is none."""
    path, budget = [members[0]], [_SEARCH_STEPS]

    def extend() -> bool:
        budget[0] -= 1
        last = path[-1]
        if len(path) == len(members):
            return speeds.get((last, members[0]), 0) >= least
        choices = [index for index in members if index not in path and speeds.get((last, index), 0) >= least]
        for index in sorted(choices, key=lambda index: (-speeds.get((last, index), 0), index)):
            path.append(index)
            if budget[0] > 0 and extend():
                return True
            path.pop()
        return False

    return tuple(path) if extend() else None


def describe(facts: Facts) -> list[str]:
    """The GPUs' links in lines for a terminal: groups, the links between them, and a ring; empty below two GPUs."""
    if len(facts.gpus) < 2:
        return []
    if not facts.links:
        return ["links    unknown"]
    groups = nvlink_groups(facts)
    lines = []
    for group in groups:
        if len(group) > 1:
            kinds = {link.kind for link in facts.links if link.a in group and link.b in group}
            lines.append(f"NVLink   GPU {_join(group)} each with each ({', '.join(sorted(kinds))})")
    of_group = {index: number for number, group in enumerate(groups) for index in group}
    kinds = {link.kind for link in facts.links if of_group.get(link.a) != of_group.get(link.b)}
    between = sorted(kinds, key=_speed, reverse=True)
    if between:
        words = [f"{kind} ({_MEANING[kind]})" if kind in _MEANING else kind for kind in between]
        lines.append(f"between  {', '.join(words)}")
    ring = ring_order(facts)
    lines.append(f"ring     {_join(ring.order)} (slowest hop {ring.slowest})")
    return lines


def _join(indices: Iterable[int]) -> str:
    return " ".join(str(index) for index in indices)
