"""Memory of GPUs by name, and what is left of it for a training."""

from __future__ import annotations

import difflib

from tfvolta.errors import ConfigError, Problem

GIB = 2**30
# What `nvidia-smi` shows of cards that are sold with so many GB, in MiB.
# Source: memory.total of nvidia-smi on such cards, as published in reports of many users; rounded down.
CARDS_MIB = {
    "p100_16gb": 16_280,
    "v100_16gb": 16_160,
    "v100_32gb": 32_510,
    "t4_16gb": 15_360,
    "rtx_2080ti": 11_019,
    "rtx_3090": 24_576,
    "rtx_4090": 24_564,
    "a10_24gb": 23_028,
    "a100_40gb": 40_960,
    "a100_80gb": 81_920,
    "l4_24gb": 23_034,
    "l40s_48gb": 46_068,
    "h100_80gb": 81_559,
    "h200_141gb": 143_771,
}


def card_bytes(name: str) -> int:
    """Memory of a card by its name, or of so many GiB as a number says.

    Raises:
        ConfigError: It is neither.
    """
    key = name.lower().replace("-", "_").replace(" ", "_")
    if key in CARDS_MIB:
        return CARDS_MIB[key] * 2**20
    try:
        size = float(name.strip().lower().removesuffix("gib").removesuffix("gb"))
    except ValueError:
        size = 0.0
    if 0.0 < size < 10_000.0:
        return int(size * GIB)
    near = difflib.get_close_matches(key, CARDS_MIB, n=1, cutoff=0.4)
    fix = f"--card {near[0]}" if near else "--card 32 for a card of 32 GiB"
    known = f"one of {', '.join(CARDS_MIB)}, or GiB as a number"
    raise ConfigError("There is no such card.", [Problem("--card", known, name or "nothing", fix=fix)])
