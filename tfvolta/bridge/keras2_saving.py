"""What plain Keras 2 can restore of a model trained with loss scaling, and what helps it.

Seen with models built and compiled under mixed_float16 in plain Keras, so none of it is particular to a retrofit:

============================  ============================================  ===================================
saved as                      restored by plain Keras                       not restored
============================  ============================================  ===================================
``.keras``                    wrapper, iterations, slots, loss scale        good steps since the scale's last
                                                                            change; a legacy optimiser's state
``.h5``, legacy optimiser     wrapper, iterations, slots, loss scale        good steps
``.h5``, other optimisers     wrapper, loss scale                           iterations, slots (they are in it)
SavedModel                    wrapper, loss scale                           iterations, slots (they are in it)
``save_weights``, checkpoint  everything, into a model of the same shape    nothing
============================  ============================================  ===================================

Three repairs make the first column true: the wrapper's config reports the current scale as the initial one, the compile
config names the wrapper, and ``restore_optimizer`` reads the state that plain Keras leaves in the file.
"""

from __future__ import annotations

import os
import warnings
import weakref
from typing import Any

from tfvolta.errors import BridgeError, Problem, TfvoltaWarning

_MODEL = "tfvolta_model"
_WARNED = "tfvolta_warned_of_hdf5"
_SAVED_MODEL_VARIABLES = os.path.join("variables", "variables")


def remember_optimizer(model: Any) -> None:
    """Makes a ``.keras`` file name the optimiser that the model has now instead of the one given to ``compile``."""
    config = getattr(model, "_compile_config", None)
    if config is not None:
        config.config["optimizer"] = model.optimizer
    vars(model.optimizer)[_MODEL] = weakref.ref(model)


def warn_of_hdf5(optimizer: Any) -> None:
    """Warns, once for each optimiser, when an ``.h5`` file is written whose state plain Keras will not restore."""
    model = vars(optimizer).get(_MODEL, lambda: None)()
    if model is None or not getattr(model, "use_legacy_config", False) or vars(optimizer).get(_WARNED):
        return
    vars(optimizer)[_WARNED] = True
    warnings.warn(str(_hdf5(model)), TfvoltaWarning, stacklevel=2)


def restore_optimizer(model: Any, path: str) -> None:
    """Restores iterations and slots that a loaded ``.h5`` file or SavedModel holds and plain Keras does not read.

    In plain Keras the same is done, for a SavedModel, by ``model.load_weights(path + "/variables/variables")``, and for
    an ``.h5`` file by building the inner optimiser and giving its ``set_weights`` the group ``optimizer_weights``.

    Args:
        model: The model that ``load_model(path)`` returned.
        path: The file or folder.

    Raises:
        BridgeError: The file holds no optimiser state, or that of another optimiser.
    """
    if os.path.isdir(path):
        model.load_weights(os.path.join(path, _SAVED_MODEL_VARIABLES)).expect_partial()
        return
    import h5py

    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    with h5py.File(path, "r") as file:
        group = file.get("optimizer_weights")
        names = [] if group is None else list(group.attrs["weight_names"])
        values = [group[name][()] for name in names]
    build = getattr(optimizer, "build", None) or optimizer._create_all_weights
    build(model.trainable_variables)
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    if [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
        raise BridgeError("The optimiser's state cannot be restored.", [_mismatch(path, len(values), len(variables))])
    for variable, value in zip(variables, values):
        variable.assign(value)


def _hdf5(model: Any) -> Problem:
    return Problem(
        where=f"{model.name}.save: .h5",
        expected="a format whose optimiser state plain Keras restores together with loss scaling",
        received="HDF5 with an optimiser of Keras 2.11 or later",
        why="load_model gives the saved state to the loss-scale wrapper, whose set_weights refuses it; "
        "the weights and the loss scale are restored, the iterations and slots stay in the file",
        fix="save to a name that ends in .keras; for files that exist: "
        "tfvolta.bridge.keras2_saving.restore_optimizer(model, path) after load_model(path)",
    )


def _mismatch(path: str, found: int, wanted: int) -> Problem:
    return Problem(
        where=f"{path}: optimizer_weights",
        expected=f"{wanted} arrays with the shapes of this optimiser's variables",
        received=f"{found} arrays" if found != wanted else "other shapes",
        why="the file was saved without its optimiser, or with another one",
        fix="save with include_optimizer=True, or load the weights only and start with a fresh optimiser",
    )
