"""A context whose TensorFlow, environment and bridge are recordings that keep the real ones' rules.

TensorFlow raises RuntimeError when devices or threads are changed after its start, even for the same value; listing the
logical devices starts it; graphs exist only after a trace. The recordings do the same, so that a knob which forgets a
rule fails here.
"""

from __future__ import annotations

import copy
import types
from typing import Any, Optional

from tfvolta.bridge.base import FitData, GraphSummary, JitState, LossScaleState, RefusedLayer, Retrofit, XlaTrial
from tfvolta.bridge.input_records import InputState
from tfvolta.bridge.kernel_records import KernelChange
from tfvolta.bridge.optimizer_records import LearningRateState, OptimizerChoice, OptimizerState
from tfvolta.bridge.recompute_records import SCOPE, RecomputeState, Repetition, SegmentState
from tfvolta.config.schema import Config
from tfvolta.facts.schema import Cpu, Facts, Gpu, TensorFlowBuild
from tfvolta.phase import Closure, Moment

V100 = Gpu(index=0, name="Tesla V100-SXM2-16GB", memory_mb=16160, compute_capability=(7, 0))
H200 = Gpu(index=0, name="NVIDIA H200", memory_mb=143771, compute_capability=(9, 0))


def machine(gpu: Optional[Gpu] = None, count: int = 1, **changes: Any) -> Facts:
    """Facts of a machine with some GPUs of one model, or with none."""
    gpus = tuple(gpu.model_copy(update={"index": index}) for index in range(count)) if gpu else ()
    fields: dict[str, Any] = {
        "source": "made for a test",
        "gpus": gpus,
        "cpu": Cpu(cores=16, memory_mb=65536),
        "tensorflow": TensorFlowBuild(version="2.21.0"),
        **changes,
    }
    return Facts(**fields)


class Device:
    """A physical or logical device: a name, as knobs print it, and identity, as TensorFlow's maps use it."""

    def __init__(self, name: str):
        self.name = name


class RecordedTensorFlow:
    """The parts of TensorFlow that knobs call, with its guards."""

    def __init__(self, gpus: int):
        self.started = False
        self.writes: list[str] = []
        self.gpus = [Device(f"/physical_device:GPU:{index}") for index in range(gpus)]
        self.cpus = [Device("/physical_device:CPU:0")]
        self.visible = list(self.gpus)
        self.growth: dict[Device, Optional[bool]] = dict.fromkeys(self.gpus)
        self.logical: dict[Device, list[Any]] = {}
        self.threads = {"inter": 0, "intra": 0}
        self.tf32 = True
        self.jit = ""
        self.options: dict[str, bool] = {"disable_meta_optimizer": False}
        self.deterministic = False
        self.seed: Optional[int] = None
        self.config = types.SimpleNamespace(
            list_physical_devices=lambda kind: list(self.gpus if kind == "GPU" else self.cpus),
            get_visible_devices=lambda kind: list(self.visible if kind == "GPU" else self.cpus),
            set_visible_devices=self._set_visible,
            list_logical_devices=self._list_logical,
            get_logical_device_configuration=self.logical.get,
            set_logical_device_configuration=self._set_logical,
            LogicalDeviceConfiguration=lambda memory_limit=None: types.SimpleNamespace(memory_limit=memory_limit),
            threading=types.SimpleNamespace(
                get_inter_op_parallelism_threads=lambda: self.threads["inter"],
                get_intra_op_parallelism_threads=lambda: self.threads["intra"],
                set_inter_op_parallelism_threads=lambda value: self._set_threads("inter", value),
                set_intra_op_parallelism_threads=lambda value: self._set_threads("intra", value),
            ),
            experimental=types.SimpleNamespace(
                get_memory_growth=self.growth.__getitem__,
                set_memory_growth=self._set_growth,
                tensor_float_32_execution_enabled=lambda: self.tf32,
                enable_tensor_float_32_execution=self._set_tf32,
            ),
            optimizer=types.SimpleNamespace(
                get_jit=lambda: self.jit,
                set_jit=self._set_jit,
                get_experimental_options=lambda: dict(self.options),
                set_experimental_options=self._set_options,
            ),
        )
        self.distribute = types.SimpleNamespace(get_strategy=lambda: types.SimpleNamespace(num_replicas_in_sync=1))

    def _write(self, what: str, guarded: bool = False) -> None:
        if guarded and self.started:
            raise RuntimeError(f"{what} cannot be modified after being initialized")
        self.writes.append(what)

    def _set_visible(self, devices: list[Device], kind: str) -> None:
        assert kind == "GPU"
        self._write("Visible devices", guarded=True)
        self.visible = list(devices)

    def _set_growth(self, device: Device, value: bool) -> None:
        if device in self.logical:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        self._write("Physical devices", guarded=True)
        self.growth[device] = value

    def _set_logical(self, device: Device, devices: list[Any]) -> None:
        self._write("Virtual devices", guarded=True)
        self.logical[device] = devices

    def _set_threads(self, pool: str, value: int) -> None:
        self._write("Threads", guarded=True)
        self.threads[pool] = value

    def _set_tf32(self, value: bool) -> None:
        self._write("tf32")
        self.tf32 = value

    def _set_jit(self, value: Any) -> None:
        assert value in (False, True, "autoclustering"), value
        self._write("jit")
        self.jit = "autoclustering" if value else ""

    def _set_options(self, options: dict[str, bool]) -> None:
        self._write("options")
        self.options.update(options)

    def _list_logical(self, kind: str) -> list[Device]:
        self.started = True
        made = self.visible if kind == "GPU" else self.cpus
        return [Device(f"{kind}:{n}") for n, _ in enumerate(part for d in made for part in self.logical.get(d, [None]))]

    def state(self) -> dict[str, Any]:
        """What knobs can change, for comparing before and after."""
        return {
            "visible": [device.name for device in self.visible],
            "growth": {device.name: bool(value) for device, value in self.growth.items()},
            "logical": {d.name: [part.memory_limit for part in parts] for d, parts in self.logical.items()},
            "threads": dict(self.threads),
            "tf32": self.tf32,
            "jit": self.jit,
            "options": {
                name: value for name, value in self.options.items() if (name, value) != ("layout_optimizer", True)
            },
            "deterministic": self.deterministic,
        }


class RecordedLayer:
    """A layer with a compute dtype; its class is what islands match, so each kind gets a class of its own."""

    def __init__(self, dtype: str = "float32"):
        self.dtype = dtype


def layer(kind: str, dtype: str = "float32") -> RecordedLayer:
    """A layer whose class has the given name."""
    made: RecordedLayer = type(kind, (RecordedLayer,), {})(dtype)
    return made


class RecordedModel:
    """A compiled model: three layers, a plain optimizer, not traced."""

    def __init__(self) -> None:
        self.layers = {"conv": layer("Conv2D"), "norm": layer("BatchNormalization"), "head": layer("Dense")}
        self.optimizer: Any = types.SimpleNamespace(scale=None)
        self.trainable_variables = [types.SimpleNamespace(name="conv/kernel", dtype="float32")]
        self.run_eagerly = False
        self.jit: Any = "auto"
        self.kernels: set[str] = set()
        self.steps = 1
        self.rate = 0.1
        self.optimizer_class = ("Adam", "keras")
        self.traced = False
        self.recomputed: Optional[RecomputeState] = None

    def state(self) -> dict[str, Any]:
        """What knobs can change, for comparing before and after; the automatic jit counts as off without a GPU."""
        return {
            "dtypes": {path: made.dtype for path, made in self.layers.items()},
            "scale": getattr(self.optimizer, "scale", None),
            "kernels": sorted(self.kernels),
            "steps": self.steps,
            "rate": self.rate,
            "optimizer": self.optimizer_class,
            "jit": self.jit is True,
            "recomputed": self.recomputed is not None,
        }


class RecordedBridge:
    """A bridge to ``RecordedModel``."""

    def __init__(self, stack: str, tensorflow: RecordedTensorFlow):
        self.stack = stack
        self.policy = "float32"
        self.obstacles: list[str] = []
        self.trial = XlaTrial()
        self.data = FitData("arrays", 16, 40, 8)
        self.refused: tuple[RefusedLayer, ...] = ()
        self.keras = types.SimpleNamespace(utils=types.SimpleNamespace(set_random_seed=self._seed))
        self._tensorflow = tensorflow

    def _seed(self, seed: int) -> None:
        import random

        import numpy

        random.seed(seed)
        numpy.random.seed(seed)
        self._tensorflow.seed = seed

    def layers(self, model: RecordedModel) -> list[tuple[str, Any]]:
        return list(model.layers.items())

    def compute_dtypes(self, model: RecordedModel) -> dict[str, str]:
        return {path: made.dtype for path, made in model.layers.items()}

    def output_layers(self, model: RecordedModel) -> list[str]:
        return ["head"]

    def global_policy(self) -> str:
        return self.policy

    def set_global_policy(self, policy: str) -> None:
        self.policy = policy

    def retrofit(self, model: Any, policy: str, float32_layers: Any = (), float32_output: bool = True) -> Retrofit:
        from tfvolta.bridge.layer_patterns import matches
        from tfvolta.knobs.precision_groups import COMPUTE_DTYPES

        former = {path: made.dtype for path, made in model.layers.items()}
        refused = {each.name for each in self.refused}
        islands = [
            path
            for path, made in model.layers.items()
            if matches(path, made, float32_layers) or (float32_output and path == "head")
        ]
        for path, made in model.layers.items():
            if path not in refused:
                made.dtype = "float32" if path in islands else COMPUTE_DTYPES[policy]
        model.traced = False
        converted = tuple(path for path in model.layers if path not in islands and path not in refused)
        return Retrofit(policy, converted, tuple(islands), self.refused, former)

    def undo_retrofit(self, model: RecordedModel, retrofit: Retrofit) -> None:
        for path, dtype in retrofit.undo_token.items():
            model.layers[path].dtype = dtype
        model.traced = False

    def install_loss_scale(self, model: RecordedModel, settings: Any) -> bool:
        was = model.optimizer.scale is not None
        model.optimizer = types.SimpleNamespace(
            scale=settings.fixed if settings.fixed is not None else settings.initial, dynamic=settings.fixed is None
        )
        model.traced = False
        return not was

    def limit_loss_scale(self, model: RecordedModel) -> bool:
        return False

    def keep_batches(self, model: RecordedModel, number: Optional[int]) -> bool:
        was, model.kept = getattr(model, "kept", None), number
        return bool(was != number)

    def count_steps(self, model: RecordedModel) -> bool:
        return False

    def float32_constructed(self) -> tuple[str, ...]:
        return getattr(self, "constructed", ())

    def keep_float32_constructed(self, patterns: Any) -> Any:
        self.constructed = tuple(patterns)

        def undo() -> None:
            self.constructed = ()

        return undo

    def watch_gradients(self, model: RecordedModel, every: Optional[int]) -> bool:
        was, model.watched = getattr(model, "watched", None), every
        return bool(was != every)

    def remove_loss_scale(self, model: RecordedModel) -> bool:
        was = model.optimizer.scale is not None
        model.optimizer = types.SimpleNamespace(scale=None)
        return was

    def loss_scale(self, optimizer: Any) -> Optional[LossScaleState]:
        if optimizer.scale is None:
            return None
        return LossScaleState(optimizer.scale, optimizer.dynamic, 0 if optimizer.dynamic else None)

    def train_graph(self, model: RecordedModel) -> Optional[GraphSummary]:
        if not model.traced:
            return None
        operations: dict[str, int] = {"IsFinite[float32]": 2} if model.optimizer.scale is not None else {}
        for made in model.layers.values():
            operation = {"Conv2D": "Conv2D", "Dense": "MatMul"}.get(type(made).__name__, "Mul")
            operations[f"{operation}[{made.dtype}]"] = operations.get(f"{operation}[{made.dtype}]", 0) + 3
        kernels = {"fused_batch_norm": "FusedBatchNormV3[float32]", "cudnn_rnn": "CudnnRNNV3:time_major[float32]"}
        operations.update({kernels[kind]: 1 for kind in model.kernels if kind in kernels})
        again = {"float32": (f"{SCOPE}/conv",)} if model.recomputed is not None else {}
        compiled = tuple(name for name in model.kernels if name == "fused_update")
        return GraphSummary(
            operations, 1, model.jit is True and not self.obstacles, {}, products=again, compiled_functions=compiled
        )

    def compile_update(self, model: RecordedModel, wanted: bool) -> str:
        (model.kernels.add if wanted else model.kernels.discard)("fused_update")
        model.traced = False
        return ""

    def install_kernel(self, model: RecordedModel, kind: str, always: bool = False) -> KernelChange:
        model.kernels.add(kind)
        model.traced = False
        return KernelChange(kind, ("norm" if kind == "fused_batch_norm" else "loop",), undo_token=True)

    def undo_kernel(self, model: RecordedModel, change: KernelChange) -> None:
        model.kernels.discard(change.kind)
        model.traced = False

    def kernel_fallbacks(self, model: RecordedModel, kind: str) -> dict[str, str]:
        return {}

    def recompute(self, model: RecordedModel, request: Any) -> None:
        call = Repetition(again=True, products=(1, 1), kept=(((None, 4), "float32"),))
        model.recomputed = RecomputeState((SegmentState("conv", ("conv",), [call]),), {}, "3 blocks in segments of 1")
        model.traced = False

    def recompute_state(self, model: RecordedModel) -> Optional[RecomputeState]:
        return model.recomputed

    def undo_recompute(self, model: RecordedModel) -> None:
        model.recomputed = None

    def set_jit(self, model: RecordedModel, value: bool) -> None:
        assert isinstance(value, bool)
        model.jit = value
        model.traced = False

    def jit(self, model: RecordedModel) -> JitState:
        effective = model.jit is True and not self.obstacles
        return JitState(model.jit, effective, "; ".join(self.obstacles) if model.jit is True else "")

    def xla_obstacles(self, model: RecordedModel) -> list[str]:
        return list(self.obstacles)

    def before_first_step(self, model: RecordedModel, action: Any) -> None:
        action(iter(()))

    def try_xla(self, model: RecordedModel, iterator: Any) -> XlaTrial:
        return self.trial

    def sequence_report(self, model: RecordedModel) -> None:
        return None

    def input_state(self, model: RecordedModel) -> InputState:
        return InputState("dataset")

    def fit_data(self, model: RecordedModel) -> Optional[FitData]:
        return self.data

    def is_traced(self, model: RecordedModel) -> bool:
        return model.traced

    def optimizer_state(self, model: RecordedModel) -> OptimizerState:
        cls, package = model.optimizer_class
        return OptimizerState(cls, package, "new", 1 if model.traced else 0, 4 if model.traced else 0, None)

    def choose_optimizer(self, model: RecordedModel, choice: OptimizerChoice) -> None:
        from tfvolta.knobs.optimizer import CLASSES

        model.optimizer_class = CLASSES[self.stack][str(choice.name)]
        model.traced = False

    def prepare_optimizer(self, model: RecordedModel) -> None:
        """Nothing to be made."""

    def learning_rate(self, model: RecordedModel) -> LearningRateState:
        return LearningRateState(model.rate)

    def set_learning_rate(self, model: RecordedModel, value: float) -> None:
        model.rate = value

    def data_policy(self, model: RecordedModel) -> str:
        return "auto"

    def set_steps_per_execution(self, model: RecordedModel, steps: int) -> None:
        model.steps = steps

    def steps_per_execution(self, model: RecordedModel) -> int:
        return model.steps


class RecordedContext:
    """``tfvolta.knobs.base.Context`` made of recordings.

    Attributes:
        passed: Moments that the test declares over.
    """

    def __init__(self, config: Config, facts: Facts, environ: Optional[dict[str, str]] = None):
        self.config = config
        self.facts = facts
        self.stack: str = facts.stack
        self.environ: dict[str, str] = dict(environ or {})
        self.model: Any = None
        self.saved: dict[str, Any] = {}
        self.strategy: Any = None
        self.passed: set[Moment] = set()
        self.tensorflow = RecordedTensorFlow(len(facts.gpus))
        self.bridge = RecordedBridge(facts.stack, self.tensorflow)

    def closed(self, moment: Moment) -> Optional[Closure]:
        started = moment is Moment.CONTEXT_INITIALIZED and self.tensorflow.started
        return Closure(moment, "recorded") if started or moment in self.passed else None

    def state(self) -> dict[str, Any]:
        """Everything that knobs can change."""
        return copy.deepcopy(
            {
                "environ": self.environ,
                "tensorflow": self.tensorflow.state(),
                "policy": self.bridge.policy,
                "model": self.model.state() if self.model is not None else None,
            }
        )


def connect_privates(monkeypatch: Any, context: RecordedContext) -> None:
    """Lets ``tfvolta.bridge.tensorflow_private`` and the thread list answer from the recording."""
    from tfvolta.bridge import runtime, tensorflow_private

    recorded = context.tensorflow

    def limits() -> dict[str, int]:
        return {
            f"GPU:{index}": int((recorded.logical[gpu][0].memory_limit or 2**14) * 2**20)
            for index, gpu in enumerate(recorded.visible)
            if gpu in recorded.logical
        }

    def threads() -> list[str]:
        mode = context.environ.get("TF_GPU_THREAD_MODE", "global")
        count = int(context.environ.get("TF_GPU_THREAD_COUNT", "2"))
        names = {"gpu_private": "tf_gpu_private_", "gpu_shared": "tf_gpu_shared"}
        gpus = len(recorded.visible) if mode == "gpu_private" else 1
        return ["python"] + ([names[mode]] * count * gpus if mode in names and recorded.started else [])

    monkeypatch.setattr(runtime, "thread_names", threads)
    monkeypatch.setattr(tensorflow_private, "device_memory_limits", limits)
    monkeypatch.setattr(tensorflow_private, "forget_logical_devices", lambda device: recorded.logical.pop(device, None))
    monkeypatch.setattr(tensorflow_private, "global_seed", lambda: recorded.seed)
    monkeypatch.setattr(tensorflow_private, "op_determinism", lambda: recorded.deterministic)
    monkeypatch.setattr(tensorflow_private, "set_op_determinism", lambda on: setattr(recorded, "deterministic", on))
    monkeypatch.setattr(
        tensorflow_private,
        "clusters_in_probe",
        lambda device: int(recorded.jit == "autoclustering" and device.startswith("GPU")),
    )
    monkeypatch.setattr(
        tensorflow_private, "layout_changes_in_probe", lambda device: 4 * recorded.options.get("layout_optimizer", True)
    )
    capable = bool(context.facts.gpus) and context.facts.gpus[0].has_tf32
    monkeypatch.setattr(tensorflow_private, "tf32_rounds", lambda device: capable and recorded.tf32)
