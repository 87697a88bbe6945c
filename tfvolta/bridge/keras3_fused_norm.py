"""Keras 3: BatchNormalization through TensorFlow's fused operation.

Keras 3 composes it of single operations in float32: two casts, two reductions and four element-wise passes over the
activations. ``FusedBatchNormV3`` reads float16 and computes in float32 inside one kernel, forward and backward.

Statistics are Keras's: the operation returns the variance with Bessel's correction, Keras 3 keeps the biased one in
its moving average, so the correction is taken back.

Source: keras/src/layers/normalization/batch_normalization.py, ``call``; tensorflow/core/kernels/fused_batch_norm_op.cc.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import keras
import tensorflow as tf
from keras.src import ops

from tfvolta.bridge.keras3_patch import Patch, patch_of
from tfvolta.bridge.kernel_records import BATCH_NORM
from tfvolta.bridge.tensorflow_private import in_xla_context, op_determinism

SMALLEST_EPSILON = 1.001e-5  # what tf.compat.v1.nn.fused_batch_norm raises a smaller one to, for cuDNN
_Layer = keras.layers.BatchNormalization
_DTYPES = ("float16", "bfloat16", "float32")


def concerns(layer: Any) -> bool:
    """Whether a layer is a BatchNormalization."""
    return isinstance(layer, _Layer)


def reason(layer: Any) -> str:
    """Why a BatchNormalization stays as Keras runs it; empty where it is served."""
    kind = type(layer)
    if kind.call is not _Layer.call or kind._moments is not _Layer._moments:
        return f"{kind.__name__} has code of its own in call or _moments"
    if layer.synchronized:
        return "synchronized=True: its statistics come from all replicas, which the fused operation cannot ask"
    if layer.renorm:
        return "renorm=True: batch renormalisation has no fused operation"
    if layer.variable_dtype != "float32":
        return f"its variables are {layer.variable_dtype}; the fused operation takes float32"
    if layer.epsilon < SMALLEST_EPSILON:
        return f"epsilon {layer.epsilon:g} is below cuDNN's smallest, {SMALLEST_EPSILON:g}"
    if layer.built and layer.input_spec is not None:
        return _shape_reason(layer, layer.input_spec.ndim)
    return ""


def _shape_reason(layer: Any, rank: int) -> str:
    data_format = _data_format(layer.axis, rank)
    if data_format is None:
        return f"axis {layer.axis} of {rank}: the fused operation takes the first after the batch, or the last"
    if data_format == "NCHW" and not tf.config.list_logical_devices("GPU"):
        return "channels first: TensorFlow has that kernel for GPUs only"
    return ""


def _data_format(axis: int, rank: int) -> Optional[str]:
    if rank < 2 or axis % rank not in (1, rank - 1):
        return None
    return "NHWC" if axis % rank == rank - 1 else "NCHW"


def call(self: Any, inputs: Any, training: Optional[bool] = None, mask: Any = None) -> Any:
    """Replaces ``BatchNormalization.call``; same arguments, results and updates."""
    patch = patch_of(self, BATCH_NORM) or Patch()
    why = _not_here(self, inputs, bool(training and self.trainable), mask, patch.always)
    if why:
        patch.fallbacks.add(why)
        return _Layer.call(self, inputs, training=training, mask=mask)
    patch.used()
    return _fused(self, inputs, bool(training and self.trainable))


def _not_here(layer: Any, inputs: Any, learns: bool, mask: Any, always: bool) -> str:
    """Why this call runs Keras's own code; empty where it is fused."""
    if not always and in_xla_context():
        return Patch.compiled
    if mask is not None and learns:
        return "a mask chooses what its statistics are of"
    if keras.backend.standardize_dtype(inputs.dtype) not in _DTYPES:
        return f"its inputs are {keras.backend.standardize_dtype(inputs.dtype)}"
    if not learns and op_determinism():
        return "with deterministic operations TensorFlow has no fused gradient of fixed statistics"
    return _shape_reason(layer, len(inputs.shape))


def _fused(layer: Any, inputs: Any, learns: bool) -> Any:
    image, data_format = _as_image(inputs, layer.axis)
    channels = int(image.shape[3 if data_format == "NHWC" else 1])
    empty = tf.zeros((0,), tf.float32)
    result = tf.raw_ops.FusedBatchNormV3(
        x=image,
        scale=ops.convert_to_tensor(layer.gamma) if layer.scale else tf.ones((channels,), tf.float32),
        offset=ops.convert_to_tensor(layer.beta) if layer.center else tf.zeros((channels,), tf.float32),
        mean=empty if learns else ops.convert_to_tensor(layer.moving_mean),
        variance=empty if learns else ops.convert_to_tensor(layer.moving_variance),
        epsilon=layer.epsilon,
        data_format=data_format,
        is_training=learns,
    )
    if learns:
        _move(layer, result.batch_mean, _biased(result.batch_variance, image, channels))
    outputs = result.y if result.y.shape.rank == len(inputs.shape) else tf.reshape(result.y, tf.shape(inputs))
    outputs.set_shape(inputs.shape)
    return ops.cast(outputs, layer.compute_dtype)


def _as_image(inputs: Any, axis: int) -> tuple[Any, str]:
    """The inputs with four axes, as the operation wants them: rows and columns are all that is no channel."""
    rank = len(inputs.shape)
    data_format = _data_format(axis, rank) or ""
    if rank == 4:
        return tf.convert_to_tensor(inputs), data_format
    channels = int(inputs.shape[axis])
    if data_format == "NHWC":
        return tf.reshape(inputs, (1, -1, 1, channels)), data_format
    return tf.reshape(inputs, (tf.shape(inputs)[0], channels, -1, 1)), data_format


def _biased(variance: Any, image: Any, channels: int) -> Any:
    """Takes Bessel's correction, n / (n - 1), back; nothing varies in one value, where that is no number."""
    if image.shape.is_fully_defined():
        values = math.prod(image.shape) // channels
        return tf.math.multiply_no_nan(variance, (values - 1) / max(values, 1))
    values = tf.cast(tf.size(image, out_type=tf.int64) // channels, tf.float32)
    return tf.math.multiply_no_nan(variance, (values - 1.0) / values)


def _move(layer: Any, mean: Any, variance: Any) -> None:
    """The moving averages, as in Keras."""
    rest = 1.0 - layer.momentum
    layer.moving_mean.assign(ops.cast(layer.moving_mean, "float32") * layer.momentum + mean * rest)
    layer.moving_variance.assign(ops.cast(layer.moving_variance, "float32") * layer.momentum + variance * rest)
