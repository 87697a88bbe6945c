"""Which all-reduce suits a topology and a size, and the sentence that says why."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Mapping, Optional

from tfvolta.cost.all_reduce import ALGORITHMS, crossover_bytes
from tfvolta.cost.fabric import Fabric, Network, make_fabric

if TYPE_CHECKING:
    from tfvolta.facts.schema import Facts


@dataclasses.dataclass(frozen=True)
class Choice:
    """An all-reduce algorithm for one size.

    Attributes:
        algorithm: ``ring``, ``tree``, ``hierarchical``, ``auto`` where the size decides and is not known, or ``none``.
        reason: Why, in a sentence or two.
        milliseconds: What each algorithm would take; empty where the size or the links are not known.
    """

    algorithm: str
    reason: str
    milliseconds: Mapping[str, float] = dataclasses.field(default_factory=dict)


def choose(
    facts: Facts,
    machines: int,
    gradient_bytes: Optional[float],
    gpus: Optional[int] = None,
    network: Optional[Network] = None,
) -> Choice:
    """The algorithm that reduces gradients fastest.

    Args:
        facts: One of the machines; all are taken to be like it.
        machines: How many train together.
        gradient_bytes: Size of one message; None where it is not known.
        gpus: GPUs used in each machine; all of them when None.
        network: What joins the machines; None where that is not known.
    """
    gpus = len(facts.gpus) if gpus is None else gpus
    if gpus * machines < 2:
        return Choice("none", "One GPU: there is nothing to reduce.")
    if machines > 1 and network is None:
        return Choice(
            "auto",
            f"Between {machines} machines NCCL takes trees for small messages, because they need fewer hops, and rings "
            "for large ones, because they send fewer bytes; what joins the machines is not known here.",
        )
    if gpus > 1 and not facts.links:
        return Choice("auto", "NCCL chooses by itself; how these GPUs are joined is not known here.")
    return choose_in(make_fabric(facts, gpus, machines, network), gradient_bytes, order_sentence(facts, gpus))


def choose_in(fabric: Fabric, gradient_bytes: Optional[float], order: str = "") -> Choice:
    """The same for a fabric that is known.

    Args:
        fabric: GPUs and links; at least two GPUs.
        gradient_bytes: Size of one message; None where it is not known.
        order: Sentence on the order of the GPUs.
    """
    if gradient_bytes is None:
        algorithm = "ring" if fabric.machines == 1 else "auto"
        return Choice(algorithm, " ".join(filter(None, (_of_any_size(fabric), order))))
    times = {name: cost(fabric, gradient_bytes) for name, cost in ALGORITHMS.items()}
    if fabric.machines == 1 or fabric.gpus == 1:
        del times["hierarchical"]
    best = min(times, key=lambda name: times[name])
    return Choice(best, " ".join(filter(None, (_reason(fabric, best, gradient_bytes, times), order))), times)


def _of_any_size(fabric: Fabric) -> str:
    if fabric.machines == 1:
        return f"A ring over {_inside(fabric)}."
    limit = crossover_bytes(fabric)
    if limit in (0.0, float("inf")):
        return f"{'A ring' if limit == 0 else 'A tree'} over {_between(fabric)}, whatever the size."
    return f"Trees up to about {amount(limit)} and rings above it, over {_between(fabric)}."


def _reason(fabric: Fabric, best: str, size: float, times: Mapping[str, float]) -> str:
    others = ", ".join(f"{name} {_time(time)}" for name, time in times.items() if name != best)
    head = f"{best.capitalize()} for messages of {amount(size)}: {_time(times[best])} ({others})"
    hops = 2 * (fabric.ranks - 1)
    if fabric.machines == 1:
        return f"{head} over {_inside(fabric)}; a tree saves hops between machines only."
    if best == "ring":
        return f"{head} over {_between(fabric)}; it sends the fewest bytes, and its {hops} hops do not outweigh that."
    if best == "tree":
        return f"{head} over {_between(fabric)}; at this size the {hops} hops of a ring count more than its bytes."
    return (
        f"{head} over {_between(fabric)}; reducing inside each machine first leaves fewer hops than one ring through "
        "all GPUs. Horovod has it (communication.hierarchical: true), NCCL alone does not."
    )


def _inside(fabric: Fabric) -> str:
    title = fabric.inside.title if fabric.inside is not None else "unknown links"
    return f"{title} between {fabric.gpus} GPUs of one machine (bus bandwidth {fabric.inside_gb_s:.4g} GB/s)"


def _between(fabric: Fabric) -> str:
    network = fabric.network
    words = "unknown links"
    if network is not None:
        words = f"{network.adapters} x {network.link.title}" if network.adapters > 1 else network.link.title
    slower = min(fabric.between_gb_s, fabric.inside_gb_s)
    return f"{words} between {fabric.machines} machines of {fabric.gpus} GPUs (bus bandwidth {slower:.4g} GB/s)"


def amount(size: float) -> str:
    """Bytes for a sentence, in thousands or millions."""
    if size < 1e5:
        return f"{size / 1e3:.3g} kB"
    return f"{size / 1e6:.3g} MB" if size < 1e8 else f"{size / 1e6:,.0f} MB"


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.3g} ms" if milliseconds < 100 else f"{milliseconds:,.0f} ms"


def order_sentence(facts: Facts, gpus: int) -> str:
    """In which order the GPUs of a machine form the best ring; empty where the order makes no difference."""
    from tfvolta.facts.topology import ring_order

    if gpus < 2 or len({link.kind for link in facts.links}) < 2:
        return ""
    members = make_fabric(facts, gpus).members
    ring = ring_order(facts, members)
    listed = " ".join(str(index) for index in ring.order)
    links = "one NVLink" if ring.nvlinks == 1 else f"{ring.nvlinks} NVLinks"
    hops = f"has {links} or more" if ring.nvlinks else f"is {ring.slowest} or nearer"
    sentence = f"In the order GPU {listed} every hop of the ring {hops}"
    if gpus == len(facts.gpus):
        return f"{sentence}."
    return f"{sentence}; of this machine's GPUs these are joined best (devices.visible: {list(members)})."
