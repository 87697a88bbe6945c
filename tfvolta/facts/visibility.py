"""Which GPUs CUDA_VISIBLE_DEVICES leaves to CUDA programs; facts list all, for a plan may choose others.

Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from tfvolta.facts.schema import Gpu


def visible_gpus(gpus: Sequence[Gpu], value: Optional[str]) -> tuple[int, ...]:
    """Indices that a value of CUDA_VISIBLE_DEVICES leaves visible, in its order.

    CUDA reads entries up to the first that is no GPU, and drops the rest; an index given twice hides all.

    Args:
        gpus: The GPUs of the machine.
        value: The variable's value; None where it is not set.
    """
    if value is None:
        return tuple(gpu.index for gpu in gpus)
    visible: list[int] = []
    for entry in value.split(","):
        index = _index(gpus, entry.strip())
        if index is None:
            break
        visible.append(index)
    return tuple(visible) if len(set(visible)) == len(visible) else ()


def _index(gpus: Sequence[Gpu], entry: str) -> Optional[int]:
    if entry.isdigit():
        return int(entry) if any(gpu.index == int(entry) for gpu in gpus) else None
    # A UUID may be cut short as long as it stays unique.
    matches = [gpu.index for gpu in gpus if entry.startswith("GPU-") and (gpu.uuid or "").startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def visibility_notes(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> list[str]:
    """What the environment hides or renumbers, in words."""
    notes = []
    value = environ.get("CUDA_VISIBLE_DEVICES")
    visible = visible_gpus(gpus, value)
    hidden = [str(gpu.index) for gpu in gpus if gpu.index not in visible]
    if hidden:
        notes.append(f"CUDA_VISIBLE_DEVICES={value} hides GPU {', '.join(hidden)} from CUDA; facts list all GPUs")
    if len({gpu.name for gpu in gpus}) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(
            "the GPUs are of different models, and CUDA numbers the fastest first; "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID gives them the numbers listed here"
        )
    return notes
