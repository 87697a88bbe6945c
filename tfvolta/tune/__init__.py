"""Trying settings in processes of their own, and choosing among what was measured."""

from __future__ import annotations
