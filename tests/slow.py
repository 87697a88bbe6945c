"""What takes minutes runs once for each bridge."""

from __future__ import annotations

import pytest

from tests.stack import STACK

# tf_keras runs the same bridge as keras2, and what differs between the two is tested in shorter files.
once_a_bridge = pytest.mark.skipif(STACK == "tf_keras", reason="slow, and keras2 runs the same bridge")
