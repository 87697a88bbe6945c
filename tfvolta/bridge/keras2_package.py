"""The Keras 2 design in its two packages, ``keras`` 2.15 and ``tf_keras``, and the private modules that are used.

``tests/tensorflow/test_bridge_keras2_privates.py`` looks at each name, so that a changed Keras is noticed there first.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

from tfvolta.errors import BridgeError, Problem

ROOTS = {"keras2": "keras", "tf_keras": "tf_keras"}


@dataclasses.dataclass(frozen=True)
class Package:
    """One Keras 2 package and the private parts of it that the bridge needs.

    Attributes:
        stack: ``keras2`` or ``tf_keras``.
        root: Name of the package, ``keras`` or ``tf_keras``.
        keras: The package.
        layer: ``Layer``, the base of every layer and model.
        model: ``Model``.
        functional: ``Functional``, what ``keras.Model(inputs, outputs)`` makes.
        sequential: ``Sequential``.
        optimizer: Base of the optimisers of Keras 2.11 on.
        legacy_optimizer: Base of the older ones, and of TensorFlow Addons' ones.
        scaler: ``BaseLossScaleOptimizer``; calling it picks the wrapper that fits the optimiser.
        autocast: The module of ``AutoCastVariable``.
        loss_scale: The module of the loss-scale wrappers.
        training: The module of ``Model``.
        callbacks: The module of ``CallbackList``.
        tf_utils: The module with ``sync_to_numpy_or_python_type``.
        backend: The module with the seed generator.
    """

    stack: str
    root: str
    keras: Any
    layer: Any
    model: Any
    functional: Any
    sequential: Any
    optimizer: Any
    legacy_optimizer: Any
    scaler: Any
    autocast: Any
    loss_scale: Any
    training: Any
    callbacks: Any
    tf_utils: Any
    backend: Any

    def is_own(self, item: Any) -> bool:
        """Whether an object's class is Keras's own, and not a script's or another package's."""
        return bool(type(item).__module__.startswith(f"{self.root}."))

    def private(self, name: str) -> Any:
        """A private module, such as ``engine.base_layer``."""
        return importlib.import_module(f"{self.root}.src.{name}")


@functools.cache
def load_package(stack: str) -> Package:
    """Imports the Keras of a stack.

    Raises:
        BridgeError: The installed package is not of the Keras 2 design.
    """
    root = ROOTS[stack]
    keras = importlib.import_module(root)
    if not keras.__version__.startswith("2."):
        raise BridgeError(
            f"{root} is not Keras 2.",
            [
                Problem(
                    where=f"import {root}",
                    expected="version 2.x",
                    received=f"version {keras.__version__}",
                    fix="pip install 'tensorflow==2.15.1' for the keras2 stack, or use the keras3 stack",
                )
            ],
        )

    def private(name: str) -> Any:
        return importlib.import_module(f"{root}.src.{name}")

    return Package(
        stack=stack,
        root=root,
        keras=keras,
        layer=private("engine.base_layer").Layer,
        model=private("engine.training").Model,
        functional=private("engine.functional").Functional,
        sequential=private("engine.sequential").Sequential,
        optimizer=private("optimizers.optimizer").Optimizer,
        legacy_optimizer=private("optimizers.legacy.optimizer_v2").OptimizerV2,
        scaler=private("mixed_precision.loss_scale_optimizer").BaseLossScaleOptimizer,
        autocast=private("mixed_precision.autocast_variable"),
        loss_scale=private("mixed_precision.loss_scale_optimizer"),
        training=private("engine.training"),
        callbacks=private("callbacks"),
        tf_utils=private("utils.tf_utils"),
        backend=private("backend"),
    )
