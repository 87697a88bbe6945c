"""Why filled rows of a batch would change what a model learns, for every Keras."""

from __future__ import annotations

import inspect
from typing import Any, Iterator, Sequence

import tensorflow as tf

from tfvolta.bridge import own_step

# Losses with one value for each row.
_ROW_LOSSES = frozenset(
    {
        "mean_squared_error",
        "mean_absolute_error",
        "mean_absolute_percentage_error",
        "mean_squared_logarithmic_error",
        "cosine_similarity",
        "huber",
        "log_cosh",
        "hinge",
        "squared_hinge",
        "categorical_hinge",
        "binary_crossentropy",
        "binary_focal_crossentropy",
        "categorical_crossentropy",
        "categorical_focal_crossentropy",
        "sparse_categorical_crossentropy",
        "kl_divergence",
        "poisson",
        "ctc",
    }
)
_BATCH_METRICS = frozenset({"PearsonCorrelation", "ConcordanceCorrelation"})
_MEANS = ("sum_over_batch_size", "auto", "mean")


def refusals(model: Any, keras: Any, layers: Sequence[tuple[str, Any]]) -> list[str]:
    """What of a compiled model sees filled rows, or cannot leave them out, each with the reason; empty where nothing.

    Args:
        model: The compiled model.
        keras: Its Keras.
        layers: Its layers by path.
    """
    return [*_of_steps(model), *_of_layers(layers), *_of_losses(model, keras), *_of_metrics(model)]


def scales(model: Any, keras: Any) -> bool:
    """Whether the losses are means over the rows of a batch, and not sums."""
    return any(_reduction(loss) != "sum" for loss in _losses(model, keras))


def _of_steps(model: Any) -> Iterator[str]:
    if own_step.has_own_step(model):
        yield "its train_step is not Keras's, and need not know what the rows' weights say"
    for name in ("compute_loss", "compute_metrics"):
        if not _is_library(getattr(type(model), name, None)):
            yield f"its {name} is not Keras's, and need not know what the rows' weights say"


def _of_layers(layers: Sequence[tuple[str, Any]]) -> Iterator[str]:
    for path, layer in layers:
        name = type(layer).__name__
        kinds = {cls.__name__ for cls in type(layer).__mro__}
        if kinds & {"BatchNormalization", "SyncBatchNormalization"} and layer.trainable:
            yield f"{path} ({name}) takes its statistics over all rows of a batch"
        elif getattr(layer, "mask_zero", False) or name == "Masking":
            yield f"{path} ({name}) makes a mask, and Keras divides the loss by the unmasked steps of all rows"
        elif getattr(layer, "activity_regularizer", None) is not None:
            yield f"{path} ({name}) has an activity regularizer, which adds up over all rows"
        elif _adds_loss(layer):
            yield f"{path} ({name}) calls add_loss, whose value may hold all rows"


def _adds_loss(layer: Any) -> bool:
    """Whether a layer's own ``call`` adds a loss."""
    call = getattr(type(layer), "call", None)
    code = getattr(inspect.unwrap(call), "__code__", None) if call is not None else None
    return not _is_library(call) and code is not None and "add_loss" in code.co_names


def _of_losses(model: Any, keras: Any) -> Iterator[str]:
    losses = _losses(model, keras)
    if not losses:
        yield "it is compiled without a loss"
    for loss in losses:
        name, function = _name(loss), getattr(loss, "fn", loss)
        if not _is_library(function) or _function_name(function) not in _ROW_LOSSES:
            yield f"loss {name} is not known to have one value for each row"
    reductions = {_reduction(loss) for loss in losses}
    if reductions == {"mean_with_sample_weight"} and model.distribute_strategy.num_replicas_in_sync == 1:
        return
    if not (reductions <= set(_MEANS) or reductions == {"sum"}):
        yield f"the losses are reduced by {', '.join(sorted(reductions))}, and not by a mean over the batch or a sum"


def _of_metrics(model: Any) -> Iterator[str]:
    for metric in _asked_metrics(model):
        function = getattr(metric, "_fn", None) or getattr(metric, "fn", None)
        unknown = not isinstance(metric, str) and not _is_library(function or type(metric))
        if unknown or _name(metric) in _BATCH_METRICS or type(metric).__name__ in _BATCH_METRICS:
            yield f"metric {_name(metric)} is not known to go by the rows' weights"


def _asked_metrics(model: Any) -> list[Any]:
    """Metrics as ``compile`` was given them."""
    held = getattr(model, "_compile_metrics", None)
    if held is not None:
        return [each for each in tf.nest.flatten([held._user_metrics or []]) if each is not None]
    held = getattr(model, "compiled_metrics", None)
    return [each for each in tf.nest.flatten([getattr(held, "_user_metrics", None) or []]) if each is not None]


def _losses(model: Any, keras: Any) -> list[Any]:
    """The losses as objects or functions."""
    return [keras.losses.get(each) for each in tf.nest.flatten(model.loss) if each is not None]


def _reduction(loss: Any) -> str:
    reduction = getattr(loss, "reduction", "sum_over_batch_size")
    return str(getattr(reduction, "value", reduction))


def _function_name(function: Any) -> str:
    return str(getattr(inspect.unwrap(function), "__name__", ""))


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(getattr(item, "name", None) or getattr(item, "__name__", item))


def _is_library(item: Any) -> bool:
    module = getattr(inspect.unwrap(item) if callable(item) else item, "__module__", None) or ""
    return module.split(".")[0] in ("keras", "tf_keras", "tfvolta")
