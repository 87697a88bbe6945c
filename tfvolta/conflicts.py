"""What cannot work together, found at plan time: one rule a function, each with the reason and the fix.

A rule looks at the config, the facts and, where a script is known, the Keras layers that its source names.
Rules about how gradients are reduced belong to the strategy kinds (``tfvolta.strategy``).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable, Iterator, Mapping

from tfvolta.config.schema import Config
from tfvolta.errors import Problem
from tfvolta.facts.schema import Facts, Gpu
from tfvolta.knobs.xla_rules import compile_limit, remainder


@dataclasses.dataclass(frozen=True)
class Request:
    """What rules look at."""

    config: Config
    facts: Facts
    environ: Mapping[str, str]
    script_layers: frozenset[str] = frozenset()

    def where(self, key: str) -> str:
        """The place that gave a key its value, for ``Problem.where``."""
        from tfvolta.config.provenance import origin_of

        return f"{origin_of(self.config, key)}: {key}"

    def get(self, key: str) -> Any:
        """The config's value at a dotted key."""
        return self.config.get(key)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the config leaves visible."""
        visible = self.get("devices.visible")
        if visible is None or visible == "all":
            return self.facts.gpus
        return tuple(gpu for gpu in self.facts.gpus if gpu.index in visible)


Rule = Callable[[Request], Iterator[Problem]]


def _growth_with_limit(request: Request) -> Iterator[Problem]:
    if request.get("devices.memory_growth") and request.get("devices.memory_limit_mb"):
        yield Problem(
            where=request.where("devices.memory_growth"),
            expected="memory growth or a hard memory limit",
            received=f"memory_growth: true with memory_limit_mb: {request.get('devices.memory_limit_mb')}",
            why="TensorFlow refuses growth on a GPU that has a logical device with a memory limit; "
            "a limited logical device allocates its whole limit at once",
            fix="remove memory_growth, or set memory_limit_mb: null",
        )


def _growth_with_async_allocator(request: Request) -> Iterator[Problem]:
    if request.get("devices.memory_growth") and request.get("devices.allocator") == "cuda_malloc_async":
        yield Problem(
            where=request.where("devices.memory_growth"),
            expected="memory growth with the default allocator",
            received="memory_growth: true with allocator: cuda_malloc_async",
            why="growth is a setting of the BFC allocator, which cuda_malloc_async replaces; that one always grows",
            fix="remove memory_growth, or set allocator: default",
        )


def _determinism_with_jit(request: Request) -> Iterator[Problem]:
    if not request.get("debug.deterministic") or request.get("xla.jit") != "model":
        return
    if request.facts.keras == "keras3":
        yield Problem(
            where=request.where("xla.jit"),
            expected="xla.jit off, or auto, with debug.deterministic",
            received="xla.jit: model with debug.deterministic: true",
            why="Keras 3 does not compile a model with XLA while operations must be deterministic: its own "
            "jit_compile='auto' resolves to False then, and TensorFlow's switch does not reach XLA's kernels",
            fix="set xla.jit: 'off', or remove debug.deterministic",
        )


def _determinism_with_autotune(request: Request) -> Iterator[Problem]:
    if request.get("debug.deterministic") and request.get("cudnn.autotune"):
        yield Problem(
            where=request.where("cudnn.autotune"),
            expected="autotune off with debug.deterministic",
            received="cudnn.autotune: true with debug.deterministic: true",
            why="deterministic runs must not choose a convolution algorithm by timing it",
            fix="set cudnn.autotune: false",
        )


def _tf32(request: Request) -> Iterator[Problem]:
    if request.get("math.tf32") is not True or not request.gpus:
        return
    for gpu in _distinct(gpu for gpu in request.gpus if not gpu.has_tf32):
        yield Problem(
            where=request.where("math.tf32"),
            expected="a GPU of compute capability 8.0 or later",
            received=f"{gpu.name}, compute capability {_capability(gpu)}",
            why="TF32: not available on this GPU; TensorFloat-32 arithmetic exists from NVIDIA Ampere on, "
            "and TensorFlow's switch reads true on every machine because it is only a permission",
            fix="remove math.tf32; for speed on this GPU set mixed_precision.policy: mixed_float16",
        )


def _bfloat16(request: Request) -> Iterator[Problem]:
    if request.get("mixed_precision.policy") != "mixed_bfloat16" or request.get(
        "mixed_precision.allow_bfloat16_emulation"
    ):
        return
    for gpu in _distinct(gpu for gpu in request.gpus if not gpu.has_bfloat16):
        yield Problem(
            where=request.where("mixed_precision.policy"),
            expected="a GPU of compute capability 8.0 or later, or mixed_float16",
            received=f"mixed_bfloat16 on {gpu.name}, compute capability {_capability(gpu)}",
            why="its Tensor Cores take float16 only; TensorFlow computes bfloat16 convolutions in float32 there",
            fix="set mixed_precision.policy: mixed_float16 (loss scaling comes with it), "
            "or allow_bfloat16_emulation: true to run it all the same",
        )


def _gpu_threads(request: Request) -> Iterator[Problem]:
    mode = request.get("devices.gpu_thread_mode")
    if request.get("devices.gpu_threads") and mode in (None, "global"):
        yield Problem(
            where=request.where("devices.gpu_threads"),
            expected="gpu_thread_mode gpu_private or gpu_shared",
            received=f"gpu_thread_mode: {mode or 'not given (global)'}",
            why="TensorFlow reads the number of GPU threads only in those two modes",
            fix="add gpu_thread_mode: gpu_private, or remove gpu_threads",
        )


def _not_used_under_xla(request: Request) -> Iterator[Problem]:
    if request.get("xla.jit") != "model" or not request.gpus:
        return
    reasons = {
        "cudnn.workspace_limit_mb": "XLA allocates cuDNN's scratch memory itself and does not read the variable",
        "cudnn.autotune": "XLA picks convolution algorithms itself; its switch is --xla_gpu_autotune_level",
        "graph.layout_optimizer": "XLA assigns layouts itself; grappler's layout pass does not see the compiled step",
    }
    for key, why in reasons.items():
        if request.get(key) is not None:
            yield Problem(
                where=request.where(key),
                expected=f"{key} without xla.jit: model",
                received=f"{key}: {request.get(key)} with xla.jit: model",
                why=why,
                fix=f"remove {key}, or set xla.jit: auto to have it where XLA is not chosen",
            )


def _loss_scale(request: Request) -> Iterator[Problem]:
    if request.config.mixed_precision is None:
        return
    given = [key for key in request.config.provenance if key.startswith("mixed_precision.loss_scale.")]
    given = [key for key in given if request.get(key) is not None]
    policy = request.get("mixed_precision.policy")
    # A config that changes the policy of another one inherits its loss scale without having asked for it.
    origin = request.config.provenance.get("mixed_precision.policy")
    inherited = origin is not None and bool(origin.overridden)
    if given and policy != "mixed_float16" and not inherited:
        yield Problem(
            where=request.where(given[0]),
            expected="policy mixed_float16 with loss_scale",
            received=f"policy: {policy}",
            why="only float16 gradients need loss scaling: bfloat16 and float32 have the same exponent range",
            fix="remove loss_scale, or set policy: mixed_float16",
        )
    fixed = [key for key in given if key.endswith(".fixed")]
    dynamic = [key for key in given if not key.endswith(".fixed")]
    if fixed and dynamic:
        yield Problem(
            where=request.where(fixed[0]),
            expected="a fixed loss scale, or a dynamic one",
            received=", ".join(f"{key.rsplit('.', 1)[1]}: {request.get(key)}" for key in sorted(given)),
            why="a fixed scale has no first value and does not grow",
            fix="remove fixed, or remove " + " and ".join(sorted(key.rsplit(".", 1)[1] for key in dynamic)),
        )


def _visible(request: Request) -> Iterator[Problem]:
    visible = request.get("devices.visible")
    if not isinstance(visible, list):
        return
    known = [gpu.index for gpu in request.facts.gpus]
    missing = [index for index in visible if index not in known]
    if missing:
        yield Problem(
            where=request.where("devices.visible"),
            expected=f"indices of GPUs on this machine: {known or 'it has none'}",
            received=str(visible),
            why=f"there is no GPU {', '.join(map(str, missing))} here",
            fix="set visible: all, or list existing GPUs",
        )
    if len(set(visible)) != len(visible):
        yield Problem(
            where=request.where("devices.visible"),
            expected="each GPU once",
            received=str(visible),
            fix=f"set visible: {sorted(set(visible))}",
        )


def _xla_flags(request: Request) -> Iterator[Problem]:
    flags = request.get("xla.flags")
    if flags:
        from tfvolta.knobs.xla_flags import check_flags

        build = request.facts.tensorflow
        for problem in check_flags(flags, build.version if build else None):
            yield dataclasses.replace(problem, where=request.where("xla.flags"))


def _unsupported_gpu(request: Request) -> Iterator[Problem]:
    from tfvolta.facts.support import unsupported_gpus

    if request.gpus:
        yield from unsupported_gpus(request.facts)


def _strategy(request: Request) -> Iterator[Problem]:
    from tfvolta.strategy.registry import problems

    yield from problems(request.config, request.facts, request.environ)


RULES: tuple[Rule, ...] = (
    _unsupported_gpu,
    _visible,
    _growth_with_limit,
    _growth_with_async_allocator,
    _gpu_threads,
    _tf32,
    _bfloat16,
    _loss_scale,
    _determinism_with_jit,
    _determinism_with_autotune,
    _not_used_under_xla,
    compile_limit,
    remainder,
    _xla_flags,
    _strategy,
)


def find_conflicts(request: Request) -> list[Problem]:
    """Every conflict in a request, in the order of ``RULES``."""
    return [problem for rule in RULES for problem in rule(request)]


def _distinct(gpus: Iterable[Gpu]) -> list[Gpu]:
    """One GPU of each model."""
    return list({gpu.name: gpu for gpu in gpus}.values())


def _capability(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.compute_capability))
