"""Loss scaling and float32 outputs for training loops of your own; one API for Keras 2 and Keras 3.

Example:
    A step that scales the loss, clips the true gradients and skips overflows, eager or in a ``tf.function``::

        optimizer = tfvolta.precision.loss_scale_optimizer(keras.optimizers.SGD(0.1))

        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
            scaled = tfvolta.precision.scale_loss(optimizer, loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        gradients = tfvolta.precision.unscale_gradients(optimizer, gradients)
        gradients, norm = tfvolta.precision.clip_by_global_norm(gradients, 1.0)
        tfvolta.precision.apply_gradients(optimizer, zip(gradients, model.trainable_variables))

    Under a strategy the same lines go into the function given to ``strategy.run``; divide the loss of a replica by the
    size of the global batch, and build the optimizer in ``strategy.scope()`` before the first step.

Importing this module imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

from typing import Any, Iterable, Optional

from tfvolta.bridge.base import LossScaleSettings, StepCounts
from tfvolta.bridge.scale_bounds import KERAS_BOUNDS, ScaleBounds, is_positive
from tfvolta.errors import BridgeError, ConfigError, Problem

CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


def loss_scale_optimizer(
    optimizer: Any,
    initial: float = 32768.0,
    growth_steps: int = 2000,
    fixed: Optional[float] = None,
    bounds: ScaleBounds = KERAS_BOUNDS,
    **clipping: Any,
) -> Any:
    """Puts loss scaling around an optimizer; one that has it gets these settings instead of a second wrapper.

    Args:
        optimizer: Any optimizer of Keras 3, tf_keras or Keras 2.15, legacy ones and TensorFlow Addons' included.
        initial: Loss scale of the first step.
        growth_steps: Finite steps in a row after which the scale doubles. An overflow halves it.
        fixed: A scale that never changes, instead of the others; overflows are skipped all the same.
        bounds: Floor (1 by default), ceiling and hysteresis of a scale that changes.
        clipping: One of ``clipnorm``, ``clipvalue`` and ``global_clipnorm``, set on the optimizer inside, which sees
            gradients in their true size.

    Returns:
        Keras's own ``LossScaleOptimizer``; it saves, loads and serves ``fit`` as such.

    Raises:
        ConfigError: An argument cannot be used; all problems at once.
        PlanError: The optimizer keeps an average of the weights and accumulates gradients, which Keras 3 does wrong.
    """
    problems = [*_scale_problems(initial, growth_steps, fixed), *(bounds.problems(initial) if fixed is None else ())]
    problems += _clipping_problems(clipping)
    try:
        bridge = _bridge(optimizer)
    except ConfigError as error:
        raise ConfigError(_counted(len(problems) + 1), [*error.problems, *problems]) from None
    if clipping and not problems:
        problems = _clash(bridge.inner_optimizer(optimizer), clipping)
    if problems:
        raise ConfigError(_counted(len(problems)), problems)
    _refuse_averaged_accumulation(optimizer)
    settings = LossScaleSettings(float(initial), int(growth_steps), None if fixed is None else float(fixed), bounds)
    return bridge.loop_optimizer(optimizer, settings, clipping)


def scale_loss(optimizer: Any, loss: Any) -> Any:
    """The loss times the current loss scale, to be computed inside the tape.

    Args:
        optimizer: From ``loss_scale_optimizer``, Keras's own ``LossScaleOptimizer``, or one without loss scaling, for
            which the loss stays as it is.
        loss: A tensor of any shape, or a structure of tensors; float16 and bfloat16 become float32 first.
    """
    return _bridge(optimizer).scale_loss(optimizer, loss)


def unscale_gradients(optimizer: Any, gradients: Any) -> Any:
    """Gradients of a scaled loss in their true size.

    Args:
        optimizer: The one that scaled the loss.
        gradients: What ``tape.gradient`` returned, in any structure.

    Returns:
        The same structure; None stays None and ``tf.IndexedSlices`` stay so.
    """
    return _bridge(optimizer).unscale_gradients(optimizer, gradients)


def clip_by_global_norm(gradients: Any, norm: float) -> tuple[Any, Any]:
    """Makes true-sized gradients shorter together, so that their common Euclidean norm is at most ``norm``.

    Unlike ``tf.clip_by_global_norm`` it adds up the rows that a sparse gradient names twice, and inside a replica of
    several it takes the norm of the sum over replicas, at the cost of one more all-reduce.

    Args:
        gradients: From ``unscale_gradients``, in any structure.
        norm: Largest norm.

    Returns:
        The gradients in the same structure, and their norm before clipping, a scalar tensor. A norm that is not finite
        makes the gradients NaN, so that ``apply_gradients`` skips the step.

    Raises:
        ConfigError: ``norm`` is a number that is not positive.
    """
    if isinstance(norm, (int, float)) and not norm > 0:
        raise ConfigError(_counted(1), [Problem("norm", "a positive number", repr(norm))])
    from tfvolta.bridge.gradients import clip_by_global_norm

    return clip_by_global_norm(gradients, norm)


def apply_gradients(optimizer: Any, grads_and_vars: Iterable[tuple[Any, Any]]) -> None:
    """Takes one step with gradients of true size.

    With loss scaling, a step whose gradients are not finite, on any replica, is skipped and halves a dynamic scale.
    Without, the optimizer does what it always does.

    Args:
        optimizer: The one that scaled the loss.
        grads_and_vars: Pairs of a gradient, or None, and its variable.

    Raises:
        BridgeError: The loop cannot work: no gradients, a call outside ``strategy.run`` under a strategy, or an
            optimizer that Keras 3 cannot use there as it is.
        PlanError: The optimizer keeps an average of the weights and accumulates gradients, which Keras 3 does wrong.
    """
    bridge = _bridge(optimizer)
    _refuse_averaged_accumulation(optimizer)
    bridge.apply_true_gradients(optimizer, grads_and_vars)


def current_scale(optimizer: Any) -> Any:
    """The factor that ``scale_loss`` multiplies by: a float, or a scalar tensor inside a ``tf.function``.

    It is the initial scale before the optimizer's first step, and 1.0 for an optimizer without loss scaling.
    """
    return _bridge(optimizer).current_scale(optimizer)


def step_counts(optimizer: Any) -> StepCounts:
    """Steps ``attempted``, ``applied`` and ``skipped``; the same on every Keras, unlike ``optimizer.iterations``.

    Returns:
        Counts since the optimizer was made; ``skipped`` is None where nothing counted, which is a
        ``LossScaleOptimizer`` that tfvolta has not seen before.
    """
    counts: StepCounts = _bridge(optimizer).optimizer_step_counts(optimizer)
    return counts


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside a loss-scale wrapper; any other one itself."""
    return _bridge(optimizer).inner_optimizer(optimizer)


def keeps_ema(optimizer: Any) -> bool:
    """Whether an optimizer, or the one inside its wrapper, keeps an average of the weights.

    Keras 3's wrapper says ``use_ema=False`` whatever the optimizer inside does.
    """
    return bool(_bridge(optimizer).keeps_ema(optimizer))


def float32_outputs(model: Any) -> tuple[str, ...]:
    """Makes the layers whose results are a model's outputs compute in float32; the other layers stay as they are.

    Weights, optimizer and losses stay; the train step is traced anew.

    Args:
        model: Any Keras model that is built or was called.

    Returns:
        Paths of the layers that made a float16 or bfloat16 output before; empty where there was none.

    Raises:
        BridgeError: The outputs cannot be known before the model is called, or a layer cannot compute in float32.
    """
    from tfvolta.bridge import bridge_for

    bridge = bridge_for(model)
    halves = bridge.half_outputs(model)
    if halves is None:
        raise BridgeError(
            "The outputs of this model are not known yet.",
            [
                Problem(
                    where=f"model {model.name}",
                    expected="a model that is built or was called",
                    received="a subclassed model before its first call",
                    fix="call the model with one batch before",
                )
            ],
        )
    if halves:
        bridge.float32_outputs(model)
    left = bridge.half_outputs(model) if halves else ()
    if left:
        raise BridgeError(
            "An output cannot be made float32.",
            [
                Problem(
                    where=f"layer {path}",
                    expected="a float32 output",
                    received="a half-precision output",
                    why="the layer, or the code of the model after it, casts its result itself",
                    fix="cast the result to float32 in that code",
                )
                for path in left
            ],
        )
    return tuple(halves)


def _bridge(optimizer: Any) -> Any:
    """The bridge of an optimizer's Keras."""
    from tfvolta.bridge import bridge_for

    try:
        if not hasattr(optimizer, "apply_gradients"):
            raise BridgeError("Not an optimizer.")
        return bridge_for(optimizer)
    except BridgeError:
        problem = Problem(
            where="optimizer",
            expected="an optimizer object of keras or tf_keras",
            received=repr(optimizer) if isinstance(optimizer, str) else f"{type(optimizer).__qualname__}",
            fix="optimizer = keras.optimizers.Adam(...)",
        )
        raise ConfigError(_counted(1), [problem]) from None


def _refuse_averaged_accumulation(optimizer: Any) -> None:
    from tfvolta.audit import refuse
    from tfvolta.audit.averaging import averaged_accumulation

    refuse(averaged_accumulation(optimizer))


def _counted(number: int) -> str:
    return f"This cannot be used: {number} problem{'s' * (number != 1)}."


def _scale_problems(initial: Any, growth_steps: Any, fixed: Any) -> list[Problem]:
    problems = [
        Problem(name, "a positive number", repr(value), fix=f"{name}=32768.0")
        for name, value in (("initial", initial), ("fixed", fixed))
        if not is_positive(value) and not (name == "fixed" and value is None)
    ]
    if not is_positive(growth_steps) or growth_steps != int(growth_steps):
        problems.append(Problem("growth_steps", "a positive integer", repr(growth_steps), fix="growth_steps=2000"))
    return problems


def _clipping_problems(clipping: dict[str, Any]) -> list[Problem]:
    problems = [
        Problem(name, f"one of {', '.join(CLIPPING)}", f"{name}={value!r}", "no other argument is passed on")
        for name, value in clipping.items()
        if name not in CLIPPING
    ]
    problems += [
        Problem(name, "a positive number", repr(value), fix=f"{name}=1.0")
        for name, value in clipping.items()
        if name in CLIPPING and not is_positive(value)
    ]
    if len([name for name in clipping if name in CLIPPING]) > 1:
        names = ", ".join(sorted(clipping))
        problems.append(Problem(names, "one kind of clipping", names, "Keras uses one of them and drops the others"))
    return problems


def _clash(inner: Any, clipping: dict[str, Any]) -> list[Problem]:
    """Clipping that the optimizer has of another kind."""
    return [
        Problem(
            where=", ".join([*clipping, present]),
            expected="one kind of clipping",
            received=f"{next(iter(clipping))} for an optimizer made with {present}={getattr(inner, present)!r}",
            why="Keras uses one of them and drops the others",
            fix="give the clipping in one place",
        )
        for present in CLIPPING
        if getattr(inner, present, None) and present not in clipping
    ]
