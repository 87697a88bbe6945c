"""From the words of ``tfvolta estimate scaling`` to an estimate; everything that is wrong with them is told at once."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from tfvolta.cli.argument_reader import ArgumentReader
from tfvolta.cost.estimate import Estimate, fabric_for, make_estimate, parameters_of_megabytes
from tfvolta.cost.fabric import NETWORKS_OF_MACHINES, Network
from tfvolta.cost.gradients import Gradients, unknown_gradients
from tfvolta.cost.link import NETWORKS
from tfvolta.cost.models import MODELS, gradients_of_model
from tfvolta.cost.reduction import HOROVOD_CYCLE_MS, KINDS, Reduction
from tfvolta.cost.scaling import Workload, pass_ms_of

if TYPE_CHECKING:
    from tfvolta.cli.run_figures import RunFigures
    from tfvolta.facts.schema import Facts

_ALGORITHMS = ("auto", "ring", "tree", "hierarchical")


class Request(NamedTuple):
    """An estimate, and the efficiency that it must reach.

    Attributes:
        estimate: Everything that was predicted.
        least_percent: From ``--at-least``; None where nothing is asked.
    """

    estimate: Estimate
    least_percent: Optional[float]

    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON values."""
        return self.estimate.to_json()


def read_request(arguments: argparse.Namespace) -> Request:
    """Reads a command line.

    Raises:
        ConfigError: Arguments cannot be used.
        FactsError: The machine cannot be read.
        EvidenceError: The run cannot be read.
    """
    reader = ArgumentReader("The scaling cannot be estimated.")
    figures = _figures(arguments)
    facts, name = _machine(arguments, figures)
    counts = reader.counts("--gpus", arguments.gpus)
    per_machine = len(facts.gpus)
    _check_machine(reader, facts, name, counts)
    several = per_machine > 0 and max(counts, default=1) > per_machine
    network = _network(reader, arguments, name if several else None, several)
    reduction = _reduction(reader, arguments, several)
    gradients = _gradients(reader, arguments, figures)
    least_percent = reader.number("--at-least", arguments.at_least, most=100.0)
    step_ms, batch = _step(reader, arguments, figures)
    reader.done()
    assert gradients is not None and step_ms is not None  # otherwise done() has raised
    pass_ms = step_ms / reduction.reduce_every
    if figures is not None and figures.replicas > 1 and not (arguments.step_ms or arguments.images_per_second):
        pass_ms = pass_ms_of(fabric_for(facts, figures.replicas, network), gradients, reduction, step_ms)
    workload = Workload(gradients, pass_ms, batch)
    return Request(make_estimate(facts, name, counts, network, workload, reduction), least_percent)


def _figures(arguments: argparse.Namespace) -> Optional[RunFigures]:
    if arguments.evidence is None:
        return None
    from tfvolta.cli.run_figures import read_figures

    return read_figures(arguments.evidence, arguments.directory)


def _machine(arguments: argparse.Namespace, figures: Optional[RunFigures]) -> tuple[Facts, str]:
    from tfvolta.facts.probe import probe
    from tfvolta.facts.record import load

    if arguments.machine in (None, "live"):
        if arguments.machine is None and figures is not None and figures.facts is not None:
            return figures.facts, f"the machine of run {figures.run_id}"
        return probe(), "this machine"
    return load(arguments.machine), str(arguments.machine)


def _check_machine(reader: ArgumentReader, facts: Facts, name: str, counts: list[int]) -> None:
    """GPUs that there are, of one model, in numbers that fill whole machines."""
    if not facts.gpus:
        why = "; ".join(facts.notes[:2])
        reader.problem("--machine", "a machine with GPUs", f"{name}, which has none", why, "--machine dgx1")
        return
    models = sorted({gpu.name for gpu in facts.gpus})
    if len(models) > 1:
        why = "the slowest GPU sets the pace of all, and one GPU's step says nothing about another model's"
        reader.problem("--machine", "GPUs of one model", ", ".join(models), why, "set devices.visible to those of one")
    inside = len(facts.gpus)
    odd = [count for count in counts if count > inside and count % inside]
    if odd:
        listed = ", ".join(str(count) for count in odd)
        why = "gradients are taken to be reduced between machines that use the same number of GPUs"
        fix = f"--gpus {','.join(str(math.ceil(count / inside) * inside) for count in odd)}"
        reader.problem("--gpus", f"at most {inside}, or a multiple of {inside} ({name})", listed, why, fix)


def _network(
    reader: ArgumentReader, arguments: argparse.Namespace, machine: Optional[str], several: bool
) -> Optional[Network]:
    """What joins machines; the adapters that a machine is sold with where nothing is said."""
    adapters = reader.number("--adapters", arguments.adapters, whole=True)
    known = NETWORKS_OF_MACHINES.get(machine or "")
    if arguments.nodes_link is None:
        if several and known is None:
            why = f"more GPUs are asked for than {machine} has, and the time between machines depends on their link"
            reader.problem("--nodes-link", f"one of {', '.join(NETWORKS)}", "nothing", why, "--nodes-link ib_edr")
        if known is not None and adapters is not None:
            return Network(known.link, int(adapters))
        return known
    link = reader.choice("--nodes-link", arguments.nodes_link, tuple(NETWORKS))
    if link is None:
        return None
    if adapters is None and known is not None and known.link.name == link:
        return known
    return Network(NETWORKS[link], int(adapters or 1))


def _reduction(reader: ArgumentReader, arguments: argparse.Namespace, several: bool) -> Reduction:
    kind = reader.choice("--kind", arguments.kind or ("multi_worker_mirrored" if several else "mirrored"), KINDS)
    if several and kind == "mirrored":
        why = "MirroredStrategy is one process on one machine, and more GPUs are asked for than it has"
        reader.problem("--kind", "multi_worker_mirrored or horovod", "mirrored", why, "--kind multi_worker_mirrored")
    algorithm = reader.choice("--algorithm", arguments.algorithm, _ALGORITHMS)
    pack_mb = reader.number("--pack-mb", arguments.pack_mb)
    num_packs = reader.number("--num-packs", arguments.num_packs, whole=True, least=0.0)
    cycle_time_ms = reader.number("--cycle-time-ms", arguments.cycle_time_ms)
    if num_packs is not None and (kind != "mirrored" or pack_mb is not None):
        why = "only MirroredStrategy counts its packs, and it takes either their number or their size"
        received = f"{arguments.num_packs} with --kind {kind}" + (" and --pack-mb" if pack_mb is not None else "")
        reader.problem("--num-packs", "--kind mirrored without --pack-mb", received, why, "--pack-mb 32 instead")
    if kind != "horovod":
        if cycle_time_ms is not None:
            why = "TensorFlow's collectives start when a pack is there; only Horovod looks in cycles"
            reader.problem("--cycle-time-ms", "--kind horovod", f"--kind {kind}", why, "leave it out")
        if algorithm == "hierarchical":
            why = "NCCL chooses between rings and trees; reducing inside each machine first is Horovod's"
            reader.problem("--algorithm", "auto, ring or tree", "hierarchical", why, "--kind horovod")
    return Reduction(
        kind=kind or KINDS[0],
        pack_mb=pack_mb,
        num_packs=None if num_packs is None else int(num_packs),
        compression=reader.choice("--compression", arguments.compression, ("none", "fp16")) or "none",
        reduce_every=int(reader.number("--reduce-every", arguments.reduce_every, whole=True) or 1),
        xla=arguments.xla,
        algorithm=algorithm or "auto",
        cycle_time_ms=cycle_time_ms or HOROVOD_CYCLE_MS,
    )


def _gradients(
    reader: ArgumentReader, arguments: argparse.Namespace, figures: Optional[RunFigures]
) -> Optional[Gradients]:
    """The gradients from exactly one of the ways to give them."""
    ways = ("--model", "--parameters", "--gradients-mb")
    values = (arguments.model, arguments.parameters, arguments.gradients_mb)
    given = [way for way, value in zip(ways, values) if value is not None]
    if len(given) > 1:
        reader.problem("gradients", f"one of {', '.join(ways)}", " and ".join(given), fix=f"keep {given[0]}")
        return None
    if arguments.model is not None:
        name = reader.choice("--model", arguments.model, MODELS, "--parameters N for any other model")
        return None if name is None else gradients_of_model(name)
    if arguments.parameters is not None:
        count = reader.number("--parameters", arguments.parameters, whole=True)
        return None if count is None else unknown_gradients(int(count))
    megabytes = reader.number("--gradients-mb", arguments.gradients_mb)
    if megabytes is not None:
        return unknown_gradients(parameters_of_megabytes(megabytes))
    if figures is not None and figures.gradient_bytes:
        return unknown_gradients(max(1, figures.gradient_bytes // 4))
    if arguments.gradients_mb is None:
        why = "the time of an all-reduce depends on the bytes" + ("; the run did not record them" if figures else "")
        reader.problem("gradients", f"one of {', '.join(ways)}", "nothing", why, "--model resnet50")
    return None


def _step(
    reader: ArgumentReader, arguments: argparse.Namespace, figures: Optional[RunFigures]
) -> tuple[Optional[float], Optional[float]]:
    """One optimiser step in milliseconds, and the examples of one GPU's pass."""
    batch = reader.number("--batch", arguments.batch)
    step_ms = reader.number("--step-ms", arguments.step_ms)
    rate = reader.number("--images-per-second", arguments.images_per_second)
    passes = int(float(arguments.reduce_every)) if arguments.reduce_every.isdigit() else 1
    if arguments.step_ms is not None and arguments.images_per_second is not None:
        received = "--step-ms and --images-per-second"
        reader.problem("one GPU's step", "one of them", received, fix="keep --step-ms")
    elif rate is not None and arguments.batch is None:
        why = "a rate is a time only with the number of examples in a step"
        reader.problem("--batch", "the examples of one GPU's step", "nothing", why, "--batch 128")
    elif arguments.step_ms is None and arguments.images_per_second is None:
        if figures is not None:
            return figures.step_ms, batch or figures.batch
        why = "scaling is predicted from what one GPU does alone"
        fix = "measure one with tfvolta run, then --run RUN; or --step-ms 100"
        reader.problem("one GPU's step", "--step-ms, --images-per-second or --run", "nothing", why, fix)
    if rate is not None and batch is not None:
        return 1e3 * batch / rate * passes, batch
    return None if step_ms is None else step_ms * passes, batch
