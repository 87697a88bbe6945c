"""Transforms of the data that ``fit`` is given; each can be used without a config."""

from __future__ import annotations

from tfvolta.data.fetching import cached
from tfvolta.data.padding import padded_batches
from tfvolta.data.sequences import SequenceSettings, sequence_batches
from tfvolta.data.sharding import shard
from tfvolta.data.share import share_of_batches
from tfvolta.data.static import static_batches

__all__ = [
    "SequenceSettings",
    "cached",
    "padded_batches",
    "sequence_batches",
    "shard",
    "share_of_batches",
    "static_batches",
]
