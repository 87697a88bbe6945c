"""What a workload is: a model, its sizes, its data and how it is trained."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a workload is; what a workload does not have is None.

    Attributes:
        batch: Examples of a step, of all replicas together.
        image_size: Height and width of images, in pixels.
        tokens: Length of sequences.
        layers: Blocks, encoder layers or dense layers.
        width: Units, hidden size or channels of the first stage.
        vocabulary: Different tokens, or rows of each embedding table.
        classes: Different labels.
    """

    batch: int
    image_size: Optional[int] = None
    tokens: Optional[int] = None
    layers: Optional[int] = None
    width: Optional[int] = None
    vocabulary: Optional[int] = None
    classes: Optional[int] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The sizes that this workload has."""
        return tuple(name for name, value in dataclasses.asdict(self).items() if value is not None)

    def to_json(self) -> dict[str, int]:
        """The sizes that this workload has, as JSON values."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


# (keras, sizes) -> an unbuilt or built model, not compiled.
Builder = Callable[[Any, Sizes], Any]
# (sizes, rows, seed) -> features and labels, each an array of so many rows or a tuple or dictionary of such arrays.
Maker = Callable[[Sizes, int, int], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One model with all that training it takes.

    Attributes:
        name: On the command line.
        description: One sentence, with the source of the architecture.
        sizes: As published.
        tiny: For a CPU and for tests.
        build: Makes the model.
        data: Makes data from which the model can learn.
        optimizer: ``sgd`` or ``adam``.
        learning_rate: Of the optimiser; without a schedule.
        loss: ``sparse`` for classes, ``binary`` for yes or no; both on logits.
        unit: What an example is: ``images``, ``sequences`` or ``examples``.
    """

    name: str
    description: str
    sizes: Sizes
    tiny: Sizes
    build: Builder
    data: Maker
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    loss: str = "sparse"
    unit: str = "examples"

    def sized(self, changes: Mapping[str, int], tiny: bool = False) -> Sizes:
        """Its sizes with some replaced.

        Args:
            changes: Sizes by name; each one that this workload has.
            tiny: Whether to start from the tiny ones.
        """
        return dataclasses.replace(self.tiny if tiny else self.sizes, **changes)

    def compile_arguments(self, keras: Any) -> dict[str, Any]:
        """What ``model.compile`` is given: optimiser and loss, nothing that speeds up training."""
        if self.optimizer == "adam":
            optimizer = keras.optimizers.Adam(self.learning_rate)
        else:
            optimizer = keras.optimizers.SGD(self.learning_rate, momentum=0.9)
        if self.loss == "binary":
            return {"optimizer": optimizer, "loss": keras.losses.BinaryCrossentropy(from_logits=True)}
        return {"optimizer": optimizer, "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
