"""Keys of the schema that no knob carries yet."""

WAITING = (
    "strategy.shard_above_mb",
    "communication.hierarchical",
    "communication.cycle_time_ms",
    "communication.groups",
    "horovod.",
    "data.",
)
