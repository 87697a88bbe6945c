"""All callbacks of a session, in the order in which they belong in the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from tfvolta.callbacks.addons import addon_callbacks
from tfvolta.callbacks.alarms import Alarms
from tfvolta.callbacks.apply_plan import ApplyPlan
from tfvolta.callbacks.averaged_weights import AveragedWeights
from tfvolta.callbacks.base import Callback
from tfvolta.callbacks.compile_ledger import CompileLedger
from tfvolta.callbacks.device_memory import DeviceMemory
from tfvolta.callbacks.gradient_monitor import GradientMonitor
from tfvolta.callbacks.guard import Guard
from tfvolta.callbacks.horovod import rank_callbacks
from tfvolta.callbacks.input_share import InputShare
from tfvolta.callbacks.learning_rate_warmup import LearningRateWarmup
from tfvolta.callbacks.loss_scale_monitor import LossScaleMonitor
from tfvolta.callbacks.oom_handler import OomHandler
from tfvolta.callbacks.progress import Progress
from tfvolta.callbacks.rank_check import RankCheck
from tfvolta.callbacks.saver import Saver
from tfvolta.callbacks.step_memory import StepMemory
from tfvolta.callbacks.tensor_cores import TensorCores
from tfvolta.callbacks.throughput import Throughput
from tfvolta.callbacks.validation_memory import ValidationMemory
from tfvolta.knobs.addons import Addons
from tfvolta.knobs.watchdog import Watchdog

if TYPE_CHECKING:
    from tfvolta.session import Session


def session_callbacks(session: Session, batch_size: Optional[int] = None, fits_before: int = 0) -> list[Callback]:
    """The callbacks that carry a session into ``model.fit``: its plan first, then the monitors that are turned on.

    Callbacks of your own go after them, so that what they save has the settings in it, and the time that they take at
    the end of an epoch is not counted as training.

    Args:
        session: The open session of the config.
        batch_size: Examples in a global batch where the caller knows it; otherwise Keras's loss tracker says how many
            examples there were.
        fits_before: Fits of this run that had callbacks of their own.
    """
    monitor = session.config.monitor
    callbacks: list[Callback] = [ApplyPlan(session), *rank_callbacks(session)]
    if session.config.get("strategy.kind") == "multi_worker_mirrored":
        # TensorFlow keeps weights equal itself; only the numbers of batches can part the workers.
        callbacks.append(RankCheck(session.config.get("data.uneven") or "error", weights=False, session=session))
    if session.config.checkpoint is not None:
        callbacks.append(Saver(session))  # restores before the others look
    if session.config.get("memory.on_oom") not in (None, "off"):
        callbacks.append(OomHandler(session))
    if session.config.get("learning_rate.warmup_epochs"):
        callbacks.append(LearningRateWarmup(session))
    callbacks += _average_and_addons(session)
    throughput: Optional[Throughput] = None
    if monitor.throughput:
        throughput = Throughput(monitor.warmup_steps, examples_per_step=batch_size, session=session)
        throughput.fit = fits_before
        callbacks.append(throughput)
    if monitor.compilations and session.config.get("xla.jit") is not None:
        callbacks.append(CompileLedger(monitor.compilations_limit, session, throughput))
    if monitor.input:
        callbacks.append(InputShare(monitor.warmup_steps, session=session))
    if monitor.loss_scale:
        callbacks.append(LossScaleMonitor(session=session))
    watched = session.config.gradient_monitor
    if watched is not None and session.config.get("strategy.kind") != "parameter_server":
        callbacks.append(GradientMonitor(session=session, **watched.model_dump()))
    if monitor.tensor_cores:
        callbacks.append(TensorCores(session))
    asked = session.config.alarms
    if asked is not None and session.config.get("strategy.kind") != "parameter_server":
        callbacks.append(Alarms(**asked.model_dump(), session=session))
    if session.config.guard is not None and session.config.get("strategy.kind") != "parameter_server":
        callbacks.append(Guard(session, fits_before))
    if monitor.memory:
        memory = DeviceMemory(session=session)
        callbacks += [memory, StepMemory(memory, session), ValidationMemory(session, memory)]
    if session.place.heartbeats is not None or any(step.knob.name == Watchdog.name for step in session.plan.steps):
        callbacks.append(Progress(session))
    return callbacks


def _average_and_addons(session: Session) -> list[Any]:
    """What an average of the weights needs at the end, and the callbacks of TensorFlow Addons that are asked for."""
    made: list[Any] = []
    if session.config.get("optimizer.average_weights"):
        made.append(AveragedWeights())
    asked = session.config.addons
    if asked is not None:
        made += session.context.saved.setdefault(Addons.name, addon_callbacks(asked.model_dump(exclude_none=True)))
    return made
