"""Transforms of the data that ``fit`` is given; each can be used without a config."""

from __future__ import annotations

from tfvolta.data.static import static_batches

__all__ = ["static_batches"]
