"""Running out of memory: what TensorFlow says of it, what would fit, and the record that is left. No TensorFlow."""

from __future__ import annotations
