"""Every workload by its name."""

from __future__ import annotations

import difflib
from typing import Mapping

from tfvolta.bench.workloads import attention, mobile, residual, segmentation, sequences, tabular
from tfvolta.bench.workloads.workload import Workload
from tfvolta.errors import ConfigError, Problem

_MODULES = (residual, mobile, segmentation, attention, sequences, tabular)
WORKLOADS: Mapping[str, Workload] = {each.name: each for module in _MODULES for each in module.WORKLOADS}
# Names that people type.
_ALSO = {"efficientnet": "efficientnet_b0", "bert": "bert_large", "dlrm": "dlrm_small", "resnet": "resnet50"}


def find(name: str) -> Workload:
    """A workload by its name, in any spelling of it.

    Raises:
        ConfigError: There is none of that name.
    """
    key = name.lower().replace("-", "_").replace(" ", "_")
    key = _ALSO.get(key, key)
    if key in WORKLOADS:
        return WORKLOADS[key]
    near = difflib.get_close_matches(key, WORKLOADS, n=1, cutoff=0.5)
    fix = f"did you mean: tfvolta bench {near[0]}" if near else "tfvolta bench --list says what each is"
    problem = Problem("model", f"one of {', '.join(WORKLOADS)}", name or "nothing", fix=fix)
    raise ConfigError(f"Unknown model {name}.", [problem])
