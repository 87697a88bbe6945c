"""What ``strategy.kind: horovod`` does to a process and to a model: its rank and GPU, and its optimiser."""

from __future__ import annotations

import warnings
from typing import Any, Mapping, Optional

from tfvolta.errors import ContradictionWarning, PlanError, Problem
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.knobs.jit_decision import HOROVOD_FAULT
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase
from tfvolta.strategy.horovod import Horovod, live_ranks
from tfvolta.strategy.horovod_verification import distributed_by, verify_reduction, wrapped_by_horovod


def _is_asked(config: Any) -> bool:
    return bool(config.get("strategy.kind") == Horovod.name)


class HorovodRank(Knob):
    """Initialises Horovod and leaves each rank the GPU of its number on its machine.

    Binds: when the GPUs are initialised, which the first tensor, layer or data set does.
    """

    name = "horovod_rank"
    keys = ("strategy.kind",)
    phase = Phase.DEVICES
    closes_at = Moment.NEVER
    techniques = ("C6",)
    undoable = False

    def value(self, config: Any) -> Optional[Any]:
        return Horovod.name if _is_asked(config) else None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        if not facts.gpus:
            return Forecast(Status.APPLIED, "Horovod is initialised; ranks train on the CPU.")
        return Forecast(Status.APPLIED, "Horovod is initialised, and each rank sees the GPU of its number only.")

    def apply(self, value: Any, context: Context) -> None:
        from tfvolta.strategy.horovod_start import gpu_of, start

        ranks = start(context.config)
        devices = context.tensorflow.config
        gpus = devices.get_visible_devices("GPU")
        mine = gpu_of(ranks, gpus)
        context.saved[self.name] = {"gpu": None if mine is None else gpus[mine].name, "seen": len(gpus)}
        if mine is not None and len(gpus) > 1 and context.closed(Moment.CONTEXT_INITIALIZED) is None:
            devices.set_visible_devices(gpus[mine], "GPU")

    def verify(self, value: Any, context: Context) -> Outcome:
        ranks = live_ranks()
        if ranks is None:
            return Outcome(Status.LATE, "Horovod was not initialised: call tfvolta.build_strategy(config) first.")
        observed = {"rank": ranks.rank, "size": ranks.size, "local_rank": ranks.local_rank, "nccl": ranks.nccl}
        said = f"Rank {ranks.rank} of {ranks.size}, number {ranks.local_rank} of {ranks.local_size} on its machine"
        chosen = context.saved.get(self.name, {}).get("gpu")
        visible = [device.name for device in context.tensorflow.config.get_visible_devices("GPU")]
        if chosen is None:
            return Outcome(Status.APPLIED, f"{said}, on the CPU.", observed)
        if visible != [chosen]:
            return Outcome(
                Status.LATE,
                f"{said}; the GPUs were initialised before it could be left {chosen} only. Call "
                "tfvolta.build_strategy(config) before the first tensor, layer or data set.",
                {**observed, "visible": visible},
            )
        slow = "" if ranks.nccl else " This Horovod was built without NCCL: gradients go through the CPU's memory."
        return Outcome(Status.APPLIED, f"{said}, on {chosen}.{slow}", {**observed, "visible": visible})


class HorovodOptimizer(Knob):
    """Reduces the gradients over Horovod's ranks before the optimiser, or its loss scale, sees them.

    Binds: when the train step is traced. The change sits on the optimiser that the model has: its state, class, config
    and saved form stay Keras's own, so that what is saved loads without Horovod, and is distributed again by the next
    fit under this config.
    """

    name = "horovod_optimizer"
    keys = ("communication.groups", "horovod.sparse_as_dense", "horovod.predivide_factor")
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("C6",)
    changes_results = True

    def value(self, config: Any) -> Optional[Any]:
        if not _is_asked(config):
            return None
        section = config.horovod
        return {
            "groups": config.get("communication.groups"),
            "sparse_as_dense": "auto" if section is None else section.sparse_as_dense,
            "predivide_factor": None if section is None else section.predivide_factor,
        }

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        groups = "one by one" if value["groups"] is None else f"in {value['groups']} groups"
        sparse = {"auto": "made dense where that is smaller", "always": "made dense", "never": "gathered"}
        return Forecast(
            Status.APPLIED,
            f"Gradients are averaged over the ranks {groups}; sparse ones are {sparse[value['sparse_as_dense']]}.",
        )

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del facts, environ
        factor = value["predivide_factor"]
        if factor is None or factor >= 1.0:
            return []
        return [
            Problem(
                where="horovod.predivide_factor",
                expected="1 (divide after the sum) up to the number of ranks (divide before it)",
                received=f"{factor:g}",
                why="a smaller divisor makes the summands larger than the gradients are, which overflows sooner",
                fix="remove predivide_factor: gradients are divided before the sum",
            )
        ]

    def apply(self, value: Any, context: Context) -> None:
        from tfvolta.bridge import horovod_ranks
        from tfvolta.bridge.horovod_reduction import HorovodReduction, HorovodSettings

        ranks, bridge = live_ranks(), context.bridge
        model: Any = context.model
        if context.stack == "tf_keras":
            horovod_ranks.mend_callbacks(bridge.keras)
        if ranks is None or ranks.size < 2:
            return
        own = wrapped_by_horovod(model)
        if own is not None:
            _check_own(horovod_ranks.local_passes(own), bridge.loss_scale(model.optimizer))
        elif distributed_by(model) != "tfvolta":
            reduction = HorovodReduction(HorovodSettings(**value), ranks.size)
            bridge.set_reduction(model, all_reduce=reduction.all_reduce())
        self._without_xla(context)

    def _without_xla(self, context: Context) -> None:
        """A step that is compiled, by Keras 3's 'auto' or by the script, would fail when it runs first."""
        state = context.bridge.jit(context.model)
        if not state.effective or context.config.get("xla.jit") in ("model", "auto"):
            return  # the setting of XLA says so itself
        context.bridge.set_jit(context.model, False)
        text = f"The train step is not compiled by XLA (jit_compile={state.requested!r}): {HOROVOD_FAULT}"
        warnings.warn(text, ContradictionWarning, stacklevel=5)

    def verify(self, value: Any, context: Context) -> Outcome:
        ranks = live_ranks()
        if ranks is None:
            return Outcome(Status.LATE, "Horovod was not initialised: call tfvolta.build_strategy(config) first.")
        if ranks.size < 2:
            return Outcome(Status.NOT_APPLICABLE, "Horovod has one rank: there is nothing to reduce.")
        if context.model is None:
            return Outcome(Status.PENDING, "The first fit brings the model.")
        if not distributed_by(context.model):
            return Outcome(Status.NO_EFFECT, "The model's optimizer does not reduce its gradients over the ranks.")
        return verify_reduction(context.model, context.config)

    def undo(self, context: Context) -> bool:
        """The former way of the gradients, on the model of the context."""
        model = context.model
        if model is None or distributed_by(model) != "tfvolta":
            return False
        return bool(context.bridge.set_reduction(model, all_reduce=None))


def _check_own(passes: Optional[int], scale: Any) -> None:
    """Refuses Horovod's own wrapper where it makes ranks diverge.

    Args:
        passes: Batches whose gradients it adds up on each rank.
        scale: ``tfvolta.bridge.base.LossScaleState`` or None.

    Raises:
        PlanError: It adds up gradients on each rank under a dynamic loss scale.
    """
    if passes is None or passes < 2 or scale is None or not scale.dynamic:
        return
    problem = Problem(
        where=f"hvd.DistributedOptimizer(backward_passes_per_step={passes})",
        expected="a fixed loss scale, or no addition of gradients in Horovod's own wrapper",
        received="a dynamic loss scale",
        why="each rank looks for infinities in its own sum of gradients: after an overflow on one of them loss scales "
        "and weights differ between ranks for the rest of the training, without a word",
        fix=f"compile with the plain optimizer and set communication.reduce_every: {passes}, which is right on all "
        "ranks; or set mixed_precision.loss_scale.fixed",
    )
    raise PlanError("Training like this makes ranks diverge.", [problem])


HOROVOD_KNOBS: tuple[Knob, ...] = (HorovodRank(), HorovodOptimizer())
