"""Figures of the gradients as scalars for TensorBoard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Mapping, Optional

FIGURES = ("norm", "largest", "zero_share", "underflow_share", "subnormal_share", "overflow", "non_finite")


class GradientScalars:
    """Writes rows of the gradient monitor to an event file, such as ``gradients/head/norm``.

    What the disk refuses is kept in ``fault``, and training goes on.

    Args:
        directory: Folder of the event file; ``~`` is the home folder.

    Attributes:
        directory: The same, as an absolute path.
        written: Scalars so far.
        fault: Why nothing more is written; empty while all is well.
    """

    def __init__(self, directory: str):
        self.directory = str(Path(directory).expanduser().absolute())
        self.written = 0
        self.fault = ""
        self._writer: Optional[Any] = None

    def write(self, row: Mapping[str, Any], step: int) -> None:
        """Writes a row, and makes sure that it is on disk.

        Args:
            row: Of the gradient monitor.
            step: Number on the axis: steps that the optimizer was asked for.
        """
        if self.fault:
            return
        tf = sys.modules["tensorflow"]  # a model is being trained, so it is there
        try:
            if self._writer is None:
                os.makedirs(self.directory, exist_ok=True)
                self._writer = tf.summary.create_file_writer(self.directory, filename_suffix=".gradients")
            with self._writer.as_default(step=step):
                for name, value in _scalars(row):
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=_metadata(tf))
            self._writer.flush()
        except (OSError, tf.errors.OpError) as error:
            self.fault = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return
        if not any(file.stat().st_size for file in Path(self.directory).glob("events.out.tfevents.*.gradients")):
            self.fault = "TensorFlow wrote an empty file, or none"
            return
        self.written += len(_scalars(row))

    def close(self) -> None:
        """Ends the event file; a later row begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _metadata(tf: Any) -> Any:
    """What makes a value a scalar to TensorBoard.

    ``tf.summary.scalar`` writes the same, but needs TensorBoard, which TensorFlow 2.21 does not bring; reading the file
    is what needs it. Source: tensorboard/plugins/scalar/metadata.py and tensorflow/core/framework/summary.proto.
    """
    metadata = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_SCALAR")
    metadata.plugin_data.plugin_name = "scalars"
    return metadata


def _scalars(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Tags and values of a row: each group, all together, and the loss scale where there is one."""
    groups = {**row["groups"], "all": row["all"]}
    found = [(f"gradients/{group}/{name}", float(groups[group][name])) for group in groups for name in FIGURES]
    scale = row["loss_scale"]
    return found if scale is None else [*found, ("gradients/loss_scale", float(scale))]
