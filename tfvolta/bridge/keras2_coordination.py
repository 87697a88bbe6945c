"""Keras 2: ``fit`` and ``evaluate`` under a parameter server strategy, with the data that people have.

Keras 2 trains there itself, and asks for a data set without end and for ``steps_per_epoch``. Given arrays it trains
until the first worker has none left, and given a data set of known size likewise; here both become a data set without
end and the number of steps of one pass. Where each worker reads a validation set for itself, some batches are seen
twice and others never; here workers evaluate a share each.

Source: keras/src/engine/training.py and data_adapter.py, Keras 2.15 and tf_keras 2.21.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Optional

import tensorflow as tf

from tfvolta.bridge import keras2_whole_layers, served_variables
from tfvolta.bridge.base import ServedPart
from tfvolta.bridge.coordinated_data import why_not_remote
from tfvolta.bridge.coordinator import explaining
from tfvolta.bridge.keras2_package import Package
from tfvolta.errors import PlanError, Problem

_MARK = "_tfvolta_coordinates"
_SHARES = "_tfvolta_chooses_shares"
_DEFAULT_BATCH = 32


class CoordinationPart:
    """The part of the bridge that concerns parameter servers.

    Attributes:
        package: The Keras that it serves.
    """

    package: Package

    def coordinate_fit(self) -> bool:
        """Wraps ``fit`` and ``evaluate``; False where it was done already."""
        model = self.package.model
        if getattr(model, _MARK, False):
            return False
        setattr(model, _MARK, True)
        model.fit = explaining(_fit(self.package, model.fit))
        model.evaluate = explaining(_evaluate(self.package, model.evaluate))
        model.predict = explaining(model.predict)
        keras2_whole_layers.install(self.package)
        return True

    def served_parts(self, model: Any) -> dict[str, list[ServedPart]]:
        """Where each weight of a model lives, shard by shard, by name."""
        return served_variables.served_parts(model.weights)

    def served_slots(self, model: Any) -> dict[str, list[ServedPart]]:
        """Likewise for the variables of its optimiser."""
        own = getattr(getattr(model, "optimizer", None), "variables", ())
        return served_variables.served_parts(own() if callable(own) else own)


def coordinated(model: Any) -> bool:
    """Whether a model trains under a parameter server strategy."""
    return isinstance(model.distribute_strategy, tf.distribute.ParameterServerStrategy)


def _fit(package: Package, own: Any) -> Any:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not coordinated(self):
            return own(self, *arguments, **keywords)
        bound = signature.bind(self, *arguments, **keywords)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.pop("self")
        _take_validation_out(package, given)
        _with_endless_data(package, given)
        if given["validation_data"] is not None and not given["validation_steps"]:
            _evaluate_exactly(self, given["validation_data"])
        return own(self, **given)

    return fit


def _evaluate(package: Package, own: Any) -> Any:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def evaluate(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not coordinated(self):
            return own(self, *arguments, **keywords)
        bound = signature.bind(self, *arguments, **keywords)
        bound.apply_defaults()
        given = bound.arguments
        if not given["steps"]:
            # Keras leaves out the labels of arrays where workers evaluate a share each.
            made = _dataset_of_arrays(package, {**given, "shuffle": False})
            if made is not None:
                given.update(x=made, y=None, sample_weight=None, batch_size=None)
            _evaluate_exactly(self, given["x"])
        return package.tf_utils.sync_to_numpy_or_python_type(own(*bound.args, **bound.kwargs))

    return evaluate


def _evaluate_exactly(model: Any, data: Any) -> None:
    """Lets each worker evaluate a share of the data, so that every batch is seen once.

    There are no more shares than batches: TensorFlow refuses a share without any. A number that the script gave to
    ``compile`` stays.
    """
    if model._pss_evaluation_shards and not getattr(model, _SHARES, False):
        return
    setattr(model, _SHARES, True)
    shards = int(model._infer_exact_eval_shards("auto"))
    batches = int(data.cardinality()) if isinstance(data, tf.data.Dataset) else tf.data.UNKNOWN_CARDINALITY
    model._pss_evaluation_shards = min(shards, batches) if batches > 0 else shards


def _take_validation_out(package: Package, given: dict[str, Any]) -> None:
    """Validation data as a data set, wherever they come from."""
    adapters = package.private("engine.data_adapter")
    if given["validation_split"] and given["validation_data"] is None:
        arrays = (given["x"], given["y"], given["sample_weight"])
        kept, given["validation_data"] = adapters.train_validation_split(arrays, given["validation_split"])
        given["x"], given["y"], given["sample_weight"] = kept
        given["validation_split"] = 0.0
    if given["validation_data"] is None or isinstance(given["validation_data"], tf.data.Dataset):
        return
    x, y, weights = adapters.unpack_x_y_sample_weight(given["validation_data"])
    data = {"x": x, "y": y, "sample_weight": weights, "shuffle": False}
    data["batch_size"] = given["validation_batch_size"] or given["batch_size"]
    made = _dataset_of_arrays(package, data)
    given["validation_data"] = given["validation_data"] if made is None else made


def _dataset_of_arrays(package: Package, given: dict[str, Any]) -> Optional[Any]:
    """One pass over arrays, batched and shuffled as Keras does it; None where they are no arrays."""
    adapters = package.private("engine.data_adapter")
    try:
        kind = adapters.select_data_adapter(given["x"], given["y"])
    except ValueError:
        return None
    if not issubclass(kind, adapters.TensorLikeDataAdapter):
        return None
    adapter = kind(
        given["x"],
        given["y"],
        sample_weights=given["sample_weight"],
        batch_size=given["batch_size"] or _DEFAULT_BATCH,
        epochs=1,
        shuffle=given["shuffle"],
    )
    return adapter.get_dataset().apply(tf.data.experimental.assert_cardinality(adapter.get_size()))


def _with_endless_data(package: Package, given: dict[str, Any]) -> None:
    """Arrays and data sets of known size become one without end, with the steps of one pass.

    Raises:
        PlanError: The data cannot be read by workers, or nothing says how many steps an epoch has.
    """
    made = _dataset_of_arrays(package, given)
    if made is not None:
        given.update(x=made, y=None, sample_weight=None, batch_size=None)
    data = given["x"]
    if isinstance(data, package.keras.utils.experimental.DatasetCreator):
        if not given["steps_per_epoch"]:
            raise _refused(
                "steps_per_epoch", "a DatasetCreator without steps_per_epoch", "a function cannot be counted"
            )
        return
    if not isinstance(data, tf.data.Dataset):
        why = "each worker reads the data for itself, and this object exists in the chief's process only"
        raise _refused("x", f"a {type(data).__name__}", why)
    reason = why_not_remote(data)
    if reason is not None:
        raise _refused("x", "a tf.data.Dataset that workers cannot read", reason)
    size = int(data.cardinality())
    if not given["steps_per_epoch"]:
        if size < 0:
            endless = size == tf.data.INFINITE_CARDINALITY
            why = "the data have no end" if endless else "the data do not say how many batches they have"
            raise _refused("steps_per_epoch", "no steps_per_epoch", why)
        given["steps_per_epoch"] = size
    if size != tf.data.INFINITE_CARDINALITY:
        given["x"] = data.repeat()


def _refused(argument: str, received: str, why: str) -> PlanError:
    needs_steps = argument == "steps_per_epoch"
    problem = Problem(
        where=f"fit: {argument}",
        expected="the number of batches of an epoch" if needs_steps else "arrays, or a tf.data.Dataset without Python",
        received=received,
        why=why,
        fix="give steps_per_epoch"
        if needs_steps
        else "make the data set of files or tensors (tf.data.TFRecordDataset, from_tensor_slices), or give arrays",
    )
    return PlanError("fit cannot train on these data with parameter servers.", [problem])
