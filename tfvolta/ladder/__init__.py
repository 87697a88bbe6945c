"""What each section of a config gains on a script: the script without any, and with one more after another."""

from __future__ import annotations
