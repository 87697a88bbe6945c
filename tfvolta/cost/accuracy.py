"""How far predictions were off on published V100 rows; ``benchmarks/scaling/results.json`` holds every one of them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Errors of a group of rows, in percentage points of efficiency, each row left out of what was fitted on it.

    Attributes:
        rows: How many.
        mean_points: Mean of the absolute errors.
        largest_points: The largest absolute error.
    """

    rows: int
    mean_points: float
    largest_points: float


# ResNet-50, BERT and ELECTRA but for one flagged row; and every row with several machines, whatever the model.
ONE_MACHINE = Accuracy(40, 2.0, 5.2)
SEVERAL_MACHINES = Accuracy(24, 5.6, 12.4)
# Largest error of any row: Mask R-CNN, which the host limits.
HOST_LIMITED_POINTS = 57.2


def statement(machines: int) -> str:
    """The error of a prediction, for a reader.

    Args:
        machines: Most machines of the prediction.
    """
    group, where = (ONE_MACHINE, "one machine") if machines == 1 else (SEVERAL_MACHINES, "several machines")
    return (
        f"{group.mean_points:.1f} points of efficiency on average and {group.largest_points:.1f} at most, on "
        f"{group.rows} published V100 rows with {where}. Models that wait for input or for the host scale worse than "
        f"predicted, by up to {HOST_LIMITED_POINTS:.0f} points."
    )
