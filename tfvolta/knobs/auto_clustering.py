"""XLA auto-clustering: TensorFlow looks for parts of the graph to compile."""

from __future__ import annotations

from typing import Any, Optional

from tfvolta.bridge.runtime import own_devices
from tfvolta.knobs.base import Context, Forecast, Knob
from tfvolta.outcome import Outcome, Status
from tfvolta.phase import Moment, Phase

CPU_FLAG = "TF_XLA_FLAGS=--tf_xla_cpu_global_jit"


class AutoClustering(Knob):
    """Compiles the parts of every graph that XLA can compile and leaves the rest to TensorFlow's kernels.

    Binds: at the next call of a function, traced or not.
    """

    name = "auto_clustering"
    keys = ("xla.jit",)
    phase = Phase.FIT
    closes_at = Moment.NEVER
    techniques = ("K5", "M9")

    def value(self, config: Any) -> Optional[Any]:
        asked = config.get("xla.jit")
        return asked if asked == "clustering" else None

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        del value, config
        if not facts.gpus:
            return Forecast(
                Status.NOT_APPLICABLE,
                f"Without a GPU TensorFlow clusters only where {CPU_FLAG} was set before it started.",
            )
        return Forecast(
            Status.APPLIED,
            "TensorFlow compiles clusters of the graph; per-model compilation is turned off, as it would leave nothing"
            " to cluster.",
        )

    def apply(self, value: Any, context: Context) -> None:
        del value
        optimizer = context.tensorflow.config.optimizer
        if self.name not in context.saved:
            model = context.model
            jit = None if model is None else context.bridge.jit(model).effective
            context.saved[self.name] = {"former": optimizer.get_jit(), "model": model, "jit": jit}
        if context.model is not None:
            context.bridge.set_jit(context.model, False)
        optimizer.set_jit("autoclustering")

    def verify(self, value: Any, context: Context) -> Outcome:
        del value
        setting = context.tensorflow.config.optimizer.get_jit()
        observed: dict[str, Any] = {"setting": setting}
        if setting != "autoclustering":
            return Outcome(
                Status.NO_EFFECT,
                "tf.config.optimizer has auto-clustering off: something set it after tfvolta.",
                observed,
            )
        from tfvolta.bridge.tensorflow_private import clusters_in_probe

        device = "GPU:0" if own_devices(context.tensorflow.config.list_logical_devices("GPU")) else "CPU:0"
        observed.update(device=device, clusters=clusters_in_probe(device))
        if observed["clusters"]:
            return Outcome(
                Status.APPLIED, f"A probe on {device} was compiled as {observed['clusters']} cluster(s).", observed
            )
        if device == "CPU:0":
            return Outcome(
                Status.NO_EFFECT,
                f"A probe on the CPU was not clustered: that takes {CPU_FLAG} before TensorFlow starts.",
                observed,
            )
        return Outcome(Status.NO_EFFECT, f"A probe on {device} was not clustered.", observed)

    def undo(self, context: Context) -> bool:
        saved = context.saved.pop(self.name, None)
        if saved is None:
            return False
        # TensorFlow returns '' for off and does not take it back; False is its word for that.
        context.tensorflow.config.optimizer.set_jit(saved["former"] or False)
        if saved["model"] is not None:
            context.bridge.set_jit(saved["model"], saved["jit"])
        return True
