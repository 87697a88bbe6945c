"""The device memory that training takes, estimated from its traced step before it runs.

The peak is what ``tf.config.experimental.get_memory_info`` calls so: variables, and the tensors that are held at the
worst moment of a step. Constants below were fitted to eleven peaks that were measured on an H200, see
docs/estimate_memory.md, which also says by how much each of them was missed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

from tfvolta.footprint.convolution_scratch import ConvolutionScratch, scratch_of
from tfvolta.footprint.fusion import fused
from tfvolta.footprint.layer import BYTES_OF_DTYPE, LayerFigures
from tfvolta.footprint.liveness import Peak, peak_of
from tfvolta.footprint.step import Step

# The largest miss of the calibration, rounded up.
ERROR_PERCENT = 10
# A compiled step's own workspaces.
_COMPILED_SHARE = 0.05
# CUDA's context, kernels and the libraries' own memory, which TensorFlow's allocator does not hold.
FRAMEWORK_BYTES = 600 * 2**20
# Where cuDNN's operation does not stand in the step: what it keeps for the backward pass, with its inputs, outputs and
# workspace, as values of each step, unit and example; fitted. Where it does, see ``footprint.recurrent_kernel``.
_RESERVE_PER_GATE, _RESERVE_BESIDE = 2, 2
# Strategies that concatenate gradients before they reduce them; Horovod has a buffer of 128 MB.
# Source: tensorflow/python/distribute/cross_device_utils.py; HOROVOD_FUSION_THRESHOLD.
_PACKING = ("mirrored", "multi_worker_mirrored", "central_storage")
_HOROVOD_BYTES = 128 * 2**20


@dataclasses.dataclass(frozen=True)
class Variables:
    """Bytes of what lives as long as the training.

    Attributes:
        weights: Weights, trainable or not.
        trainable: Trainable ones, each of which has a gradient of the same size.
        optimizer: Slots and counters.
    """

    weights: int
    trainable: int
    optimizer: int


@dataclasses.dataclass(frozen=True)
class HeavyLayer:
    """A layer that holds much memory at the worst moment.

    Attributes:
        layer: Its path.
        kind: Its class.
        held_bytes: Of its tensors that are held then.
        weight_bytes: Of its weights.
        share_percent: Of the tensors of all layers.
    """

    layer: str
    kind: str
    held_bytes: int
    weight_bytes: int
    share_percent: float


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """An estimate for one replica, in bytes.

    Attributes:
        batch: Examples of one replica's batch.
        compiled: Whether XLA compiles the step.
        weights: Weights as stored.
        optimizer: The optimiser's variables.
        casts: Copies of weights in the type that is computed in.
        activations: Tensors of layers that the backward pass still needs at the worst moment.
        gradients: Loss, gradients and updates at that moment, and constants of the graph.
        recurrent: What cuDNN keeps of recurrent layers.
        workspace: Allowance for the workspaces of a compiled step.
        scratch: Scratch memory of one convolution of a step that is not compiled: a guess.
        scratch_bound: What its limit lets it be at most.
        reduction: Gradients packed for the all-reduce.
        unknown_tensors: Tensors whose size is not known before training; they are not counted.
        layers: The layers that hold most.
    """

    batch: int
    compiled: bool
    weights: int
    optimizer: int
    casts: int
    activations: int
    gradients: int
    recurrent: int
    workspace: int
    reduction: int
    scratch: int = 0
    scratch_bound: int = 0
    unknown_tensors: int = 0
    layers: tuple[HeavyLayer, ...] = ()

    @property
    def peak(self) -> int:
        """What TensorFlow's allocator will have handed out at most."""
        held = self.casts + self.activations + self.gradients + self.recurrent + self.workspace + self.scratch
        return self.weights + self.optimizer + held + self.reduction

    @property
    def peak_bound(self) -> int:
        """The peak where a convolution takes all the scratch memory that it may."""
        return self.peak - self.scratch + self.scratch_bound

    @property
    def device(self) -> int:
        """What the card has to have: the peak, and what CUDA takes beside it."""
        return self.peak + FRAMEWORK_BYTES

    def to_json(self) -> dict[str, Any]:
        """As plain values, with the sums."""
        return {
            **dataclasses.asdict(self),
            "peak": self.peak,
            "peak_bound": self.peak_bound,
            "framework": FRAMEWORK_BYTES,
            "device": self.device,
            "error_percent": ERROR_PERCENT,
        }


def estimate_memory(
    step: Step,
    variables: Variables,
    layers: Sequence[LayerFigures],
    batch: int,
    compiled: bool,
    strategy: Optional[str] = None,
    scratch_limit: Optional[int] = None,
) -> MemoryEstimate:
    """Estimates one replica's peak.

    Args:
        step: The traced step.
        variables: Bytes of the model's and the optimiser's variables.
        layers: ``bridge.layer_figures``, for recurrent layers and names of classes.
        batch: Examples of the traced batch.
        compiled: Whether to estimate the step as compiled by XLA.
        strategy: ``strategy.kind`` that it will be trained with.
        scratch_limit: Bytes of scratch memory that a convolution may take; None where nothing limits it.
    """
    seen = fused(dataclasses.replace(step, compiled=frozenset(range(len(step.operations))))) if compiled else step
    peak = peak_of(seen)
    held = {number: size for number, size in peak.by_layer.items() if number is not None}
    casts = min(_casts(step), sum(held.values()))
    gradients = peak.by_layer.get(None, 0) + (0 if compiled else step.constants)
    recurrent = 0 if _has_cudnn(step) else sum(reserve_of(layer) for layer in layers)
    reduction = variables.trainable if strategy in _PACKING else _HOROVOD_BYTES if strategy == "horovod" else 0
    scratch = ConvolutionScratch() if compiled else scratch_of(step, peak.size, scratch_limit)
    return MemoryEstimate(
        batch=batch,
        compiled=compiled,
        weights=variables.weights,
        optimizer=variables.optimizer,
        casts=casts,
        activations=sum(held.values()) - casts,
        gradients=gradients,
        recurrent=recurrent,
        workspace=int(peak.size * _COMPILED_SHARE) if compiled else 0,
        reduction=reduction,
        scratch=scratch.guess,
        scratch_bound=scratch.bound,
        unknown_tensors=step.unknown,
        layers=_heavy(step, peak, layers),
    )


def _has_cudnn(step: Step) -> bool:
    """Whether cuDNN's recurrent kernels stand in the step, as they do where a GPU is: their reserve is then in it."""
    return any(operation.kind.startswith("CudnnRNN") for operation in step.operations)


def _casts(step: Step) -> int:
    """Bytes of casts of variables: they are made when the step begins and kept for the backward pass."""
    read = {
        tensor for operation in step.operations if operation.kind == "ReadVariableOp" for tensor in operation.outputs
    }
    cast = [each for each in step.operations if each.kind == "Cast" and each.inputs and each.inputs[0] in read]
    return sum(step.sizes[operation.outputs[0]] for operation in cast if operation.layer is not None)


def reserve_of(layer: LayerFigures) -> int:
    """Bytes that cuDNN holds of a recurrent layer, with its inputs and outputs; 0 for any other layer.

    The step is traced where no GPU is, so that cuDNN's kernel does not stand in it.
    """
    square = [weight.shape for weight in layer.weights if len(weight.shape) == 2 and _gates(weight.shape)]
    if not layer.kind.endswith(("LSTM", "GRU", "RNN")) or not square or not layer.input_shapes:
        return 0
    steps_and_batch = layer.input_shapes[0][0] * layer.input_shapes[0][1]
    units, gates = square[-1][0], _gates(square[-1])  # the recurrent kernel follows that of the input
    values = _cudnn_held(steps_and_batch, units, gates)
    return values * BYTES_OF_DTYPE.get(layer.compute_dtype, 4) * max(1, layer.calls)


def _cudnn_held(steps_and_batch: int, units: int, gates: int) -> int:
    """Values that cuDNN holds of a recurrent layer whose operation is not in the step, inputs and outputs among them.

    Args:
        steps_and_batch: Steps of a sequence times sequences.
        units: Of the layer.
        gates: 4 of an LSTM, 3 of a GRU.
    """
    return steps_and_batch * units * (_RESERVE_PER_GATE * gates + _RESERVE_BESIDE)


def _gates(shape: Sequence[int]) -> int:
    """Gates of a recurrent kernel by its shape (units, gates times units); 0 for any other."""
    gates, rest = divmod(shape[1], shape[0]) if shape[0] else (0, 1)
    return gates if not rest and gates in (1, 3, 4) else 0


def _heavy(step: Step, peak: Peak, layers: Sequence[LayerFigures]) -> tuple[HeavyLayer, ...]:
    """Layers by what they hold, most first."""
    figures: Mapping[str, LayerFigures] = {layer.name: layer for layer in layers}
    held = {step.layers[number]: size for number, size in peak.by_layer.items() if number is not None}
    for layer in layers:
        if reserve_of(layer) and not _has_cudnn(step):
            held[layer.name] = held.get(layer.name, 0) + reserve_of(layer)
    total = sum(held.values()) or 1
    rows = [
        HeavyLayer(
            name,
            figures[name].kind if name in figures else "",
            size,
            figures[name].weight_bytes if name in figures else 0,
            100.0 * size / total,
        )
        for name, size in held.items()
        if size
    ]
    return tuple(sorted(rows, key=lambda row: -row.held_bytes))
