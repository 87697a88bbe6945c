"""One worker of the check before training, as a process of its own: applies the two knobs and prints how they ended.

Usage: python -m tests.processes.preflight_worker CONFIG_JSON [gate]. With a gate it first reads a line from its input.
"""

from __future__ import annotations

import json
import os
import sys
import types
import warnings

from tfvolta.config.schema import Config
from tfvolta.errors import TfvoltaError
from tfvolta.facts.probe import probe
from tfvolta.knobs.cluster import ClusterResolution
from tfvolta.knobs.preflight import Preflight


def main() -> None:
    """Prints one line of JSON."""
    config = Config.model_validate_json(sys.argv[1])
    # What the two knobs touch of a session's context; the rest of it would load the whole package.
    context = types.SimpleNamespace(
        config=config, facts=probe(), environ=dict(os.environ), saved={}, model=None, strategy=None
    )
    if "gate" in sys.argv[2:]:
        print("ready", flush=True)
        sys.stdin.readline()
    said: dict[str, object] = {}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for knob in (ClusterResolution(), Preflight()):
                value = knob.value(config)
                knob.apply(value, context)
                said[knob.name] = knob.verify(value, context).to_json()
        said["warnings"] = [str(warning.message) for warning in caught]
    except TfvoltaError as error:
        said["error"] = {"type": type(error).__name__, "text": str(error), "summary": error.summary}
    said["tensorflow"] = "tensorflow" in sys.modules
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
