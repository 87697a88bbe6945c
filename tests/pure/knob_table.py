"""One row a knob: a config that asks for it, the value it must read, and how it must end where everything is there.

A new knob adds a row; the conformance tests do the rest.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from tfvolta.outcome import Status


@dataclasses.dataclass(frozen=True)
class Row:
    """What the conformance tests need to know about a knob.

    Attributes:
        config: Sections that ask for it.
        value: What ``Knob.value`` must read from them.
        ends: How it ends on two H200 when everything has happened: TensorFlow started, step traced.
        at_once: How it ends right after ``apply``.
        gpu_only: Whether it is NOT_APPLICABLE on a machine without a GPU.
        environ: Variables that its process was started with.
    """

    config: dict[str, Any]
    value: Any
    ends: Status = Status.APPLIED
    at_once: Status = Status.APPLIED
    gpu_only: bool = False
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


_PRECISION = {"mixed_precision": {"policy": "mixed_float16", "float32_layers": ["BatchNormalization"]}}
_UNVERIFIABLE = {"ends": Status.UNVERIFIABLE, "at_once": Status.UNVERIFIABLE}
# The recorded fit was given data as they are, which a callback cannot change.
_GIVEN_PLAIN = {"ends": Status.NO_EFFECT, "at_once": Status.NO_EFFECT}
_NCCL = {"algorithm": "Ring", "debug": "INFO"}
_HOROVOD = {"strategy": {"kind": "horovod"}}
_SCALE = {"initial": 1024.0, "growth_steps": 10, "floor": 16.0, "ceiling": 4096.0, "hysteresis": 2}

_WORKERS: dict[str, Any] = {"strategy": {"kind": "multi_worker_mirrored"}, "cluster": {}}
_CLUSTER = {"kind": "multi_worker_mirrored", "resolver": "auto", "port": None, "parameter_servers": 1, "visible": None}
# The second of two tasks that srun started.
_SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}

ROWS: dict[str, Row] = {
    "cluster": Row(
        _WORKERS,
        _CLUSTER,
        ends=Status.PENDING,  # the recorded run builds no strategy
        at_once=Status.PENDING,
        environ=_SRUN,
    ),
    "preflight": Row(
        _WORKERS, {**_CLUSTER, "timeout_seconds": 120.0}, ends=Status.NOT_APPLICABLE, at_once=Status.NOT_APPLICABLE
    ),
    "first_all_reduce": Row(
        _WORKERS,
        {**_CLUSTER, "kibibytes": 1024, "repeats": 7, "timeout_seconds": 120.0},
        ends=Status.NOT_APPLICABLE,
        at_once=Status.NOT_APPLICABLE,
    ),
    "allocator": Row(
        {"devices": {"allocator": "cuda_malloc_async"}}, "cuda_malloc_async", gpu_only=True, **_UNVERIFIABLE
    ),
    "gpu_thread_mode": Row(
        {"devices": {"gpu_thread_mode": "gpu_private"}}, "gpu_private", at_once=Status.PENDING, gpu_only=True
    ),
    "gpu_threads": Row(
        {"devices": {"gpu_thread_mode": "gpu_private", "gpu_threads": 2}},
        2,
        ends=Status.UNVERIFIABLE,  # the mode is a knob of its own, which this test leaves out
        at_once=Status.PENDING,
        gpu_only=True,
    ),
    "cudnn_workspace": Row({"cudnn": {"workspace_limit_mb": 128}}, 128, gpu_only=True, **_UNVERIFIABLE),
    "cudnn_autotune": Row({"cudnn": {"autotune": False}}, False, gpu_only=True, **_UNVERIFIABLE),
    "xla_flags": Row(
        {"xla": {"flags": ["--xla_gpu_autotune_level=3"]}}, ["--xla_gpu_autotune_level=3"], **_UNVERIFIABLE
    ),
    "xla_cache": Row(
        {"xla": {"cache_directory": "compiled"}},
        "compiled",
        ends=Status.PENDING,  # nothing is compiled in the recorded run
        at_once=Status.PENDING,
    ),
    "nccl": Row({"nccl": _NCCL, "strategy": {"kind": "mirrored"}}, _NCCL, gpu_only=True, **_UNVERIFIABLE),
    "horovod_fusion": Row({**_HOROVOD, "communication": {"pack_mb": 32}}, 32, **_UNVERIFIABLE),
    "horovod_cycle": Row({**_HOROVOD, "communication": {"cycle_time_ms": 2.5}}, 2.5, **_UNVERIFIABLE),
    "horovod_hierarchy": Row(
        {**_HOROVOD, "communication": {"hierarchical": True}}, True, gpu_only=True, **_UNVERIFIABLE
    ),
    "horovod_timeline": Row(
        {**_HOROVOD, "horovod": {"timeline": "timeline.json"}},
        "timeline.json",
        ends=Status.UNVERIFIABLE,  # no Horovod writes one here
        at_once=Status.PENDING,
    ),
    "horovod_autotune": Row(
        {**_HOROVOD, "horovod": {"autotune": True, "autotune_log": "tuned.csv"}},
        {"on": True, "log": "tuned.csv"},
        ends=Status.UNVERIFIABLE,  # likewise
        at_once=Status.PENDING,
    ),
    "launch_blocking": Row({"debug": {"launch_blocking": True}}, True, gpu_only=True, **_UNVERIFIABLE),
    "visible_devices": Row({"devices": {"visible": [1]}}, [1], gpu_only=True),
    "memory_growth": Row({"devices": {"memory_growth": True}}, True, gpu_only=True),
    "memory_limit": Row({"devices": {"memory_limit_mb": 4096}}, 4096, gpu_only=True),
    "inter_op_threads": Row({"devices": {"inter_op_threads": 3}}, 3),
    "intra_op_threads": Row({"devices": {"intra_op_threads": 3}}, 3),
    "logical_cpus": Row({"strategy": {"kind": "mirrored", "logical_cpus": 2}}, 2),
    "tf32": Row({"math": {"tf32": False}}, False, gpu_only=True),
    "determinism": Row({"debug": {"deterministic": True}, "run": {"seed": 1}}, True),
    "seed": Row({"run": {"seed": 7}}, 7),
    "policy": Row(
        _PRECISION,
        "mixed_float16",
        ends=Status.NO_EFFECT,  # the recorded model's layers were constructed before the policy
        at_once=Status.PENDING,
    ),
    "built_islands": Row(
        _PRECISION,
        ["BatchNormalization"],
        at_once=Status.PENDING,
    ),
    "retrofit": Row(_PRECISION, "mixed_float16", at_once=Status.PENDING),
    "float32_islands": Row(_PRECISION, {"layers": ["BatchNormalization"], "output": True}),
    "loss_scale": Row(
        {"mixed_precision": {"policy": "mixed_float16", "loss_scale": _SCALE}},
        {**_SCALE, "fixed": None},
        at_once=Status.PENDING,
    ),
    "drop_remainder": Row(
        {"xla": {"drop_remainder": True}},
        True,
        ends=Status.NO_EFFECT,  # the recorded fit was given data with a remainder, which a callback cannot change
        at_once=Status.NO_EFFECT,
    ),
    "pad_remainder": Row({"xla": {"remainder": "pad"}}, True, ends=Status.NO_EFFECT, at_once=Status.NO_EFFECT),
    "sequences": Row(
        {"sequences": {"max_tokens": 128}},
        {
            "max_tokens": 128,
            "buckets": 4,
            "multiple": 8,
            "tokens_per_batch": None,
            "labels": "auto",
            "padding_value": 0,
            "sample": 20000,
            "kind": "default",
            "remainder": "",
        },
        **_GIVEN_PLAIN,
    ),
    "input_options": Row({"input": {"private_threads": 2}}, {"private_threads": 2}, **_GIVEN_PLAIN),
    "input_prefetch": Row({"input": {"prefetch": "auto"}}, "auto", **_GIVEN_PLAIN),
    "input_cache": Row({"input": {"cache": "memory"}}, "memory", **_GIVEN_PLAIN),
    "half_input": Row({"input": {"half": True}}, True, **_GIVEN_PLAIN),
    "device_prefetch": Row({"input": {"device_prefetch": 2}}, 2, gpu_only=True, **_GIVEN_PLAIN),
    "host_memory_limit": Row({"input": {"host_memory_limit_mb": 1024}}, 1024, gpu_only=True, **_UNVERIFIABLE),
    "jit": Row({"xla": {"jit": "model"}}, "model", at_once=Status.PENDING),
    "auto_clustering": Row({"xla": {"jit": "clustering"}}, "clustering", gpu_only=True),
    "optimizer": Row({"optimizer": {"name": "adamw"}}, {"name": "adamw"}, at_once=Status.PENDING),
    "addons": Row(
        {"addons": {"time_limit_seconds": 60}},
        {"time_limit_seconds": 60},
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "learning_rate": Row(
        {"learning_rate": {"target": 0.4}},
        {"target": 0.4, "scaling": "none", "warmup_epochs": 0.0},
    ),
    "steps_per_execution": Row({"fit": {"steps_per_execution": 4}}, 4),
    "alarms": Row(
        {"alarms": {"nan_loss": "stop"}},
        {
            "nan_loss": "stop",
            "min_loss_scale": None,
            "max_skipped_in_row": None,
            "action": "stop",
            "every_steps": 1,
            "floor": None,
        },
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "guard": Row(
        {"guard": {"loss_band": 0.1}},
        {
            "baseline": "auto",
            "throughput_floor": 0.9,
            "loss_band": 0.1,
            "action": "report",
            "every_steps": 50,
            "directory": "runs",
        },
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "gradient_monitor": Row(
        {"gradient_monitor": {"every_steps": 50}},
        {"every_steps": 50, "groups": [], "tensorboard": None},
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "checkpoint": Row(
        {"checkpoint": {"every_steps": 100}},
        {
            "directory": "checkpoints",
            "every_steps": 100,
            "every_epochs": None,
            "keep": 3,
            "resume": True,
            "on_preemption": True,
        },
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "sharding": Row(
        {"strategy": {"kind": "multi_worker_mirrored"}, "data": {"sharding": "data"}},
        {"policy": "data", "kind": "multi_worker_mirrored"},
        ends=Status.NO_EFFECT,  # the recorded fit was given data that ask for auto
        at_once=Status.NO_EFFECT,
    ),
    "uneven": Row(
        {"strategy": {"kind": "multi_worker_mirrored"}, "data": {"uneven": "cut"}},
        {"asked": "cut", "kind": "multi_worker_mirrored"},
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "batch_size": Row(
        {"fit": {"batch_size": 48}},
        48,
        ends=Status.NO_EFFECT,  # the recorded fit was given batches of another size
        at_once=Status.NO_EFFECT,
    ),
    "on_oom": Row(
        {"memory": {"on_oom": "report"}},
        {"on_oom": "report", "kind": "default", "steps_per_execution": 1, "reduce_every": 1},
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "watchdog": Row(
        {"watchdog": {"stall_seconds": 60.0}},
        {"stall_seconds": 60.0, "first_step_seconds": 180.0, "end": True},
        ends=Status.NO_EFFECT,  # the recorded fit was given no callbacks
        at_once=Status.PENDING,
    ),
    "fused_batch_norm": Row({"kernels": {"fused_batch_norm": "on"}}, "on", at_once=Status.PENDING),
    "cudnn_rnn": Row({"kernels": {"cudnn_rnn": "on"}}, "on", at_once=Status.PENDING, gpu_only=True),
    "fused_update": Row(
        {"kernels": {"fused_update": "on"}, "mixed_precision": {"policy": "mixed_float16"}},
        "on",
        at_once=Status.PENDING,
    ),
    "recompute": Row(
        {"memory": {"recompute": {"every": 1}}},
        {"layers": None, "every": 1, "budget_mb": None},
        at_once=Status.PENDING,
    ),
    "layout_optimizer": Row({"graph": {"layout_optimizer": False}}, False, gpu_only=True),
}
