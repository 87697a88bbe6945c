"""What a reader should know of a plan before it is applied, though nothing in it is wrong."""

from __future__ import annotations

from tfvolta.config.provenance import origin_of
from tfvolta.plan import Plan


def cautions(plan: Plan) -> tuple[str, ...]:
    """Sentences for the start of a run and for its report, each with the line that helps.

    Args:
        plan: What will be done, and where.
    """
    key = "mixed_precision.policy"
    if plan.facts.gpus or plan.config.get(key) != "mixed_float16":
        return ()
    return (
        f"This machine shows no GPU, and {key} is mixed_float16 ({origin_of(plan.config, key)}): processors compute "
        f"float16 much slower than float32, as a rule. For speed here: --set {key}=float32",
    )
