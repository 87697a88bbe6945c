"""How NCCL will send gradients over the links of a machine, as a sentence of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfvolta.cost.choice import choose

if TYPE_CHECKING:
    from tfvolta.config.schema import Config
    from tfvolta.facts.schema import Facts


def sentence(config: Config, facts: Facts, gpus: int, workers: int) -> str:
    """Ring or tree, over which links, and in which order of the GPUs; empty where there is nothing to say.

    The size of the gradients is not known when a plan is made, so that the topology alone decides.

    Args:
        config: Which GPUs are visible.
        facts: The machine; other workers are taken to be on machines like it.
        gpus: GPUs of this process that are replicas.
        workers: Processes that train in step.
    """
    visible = config.get("devices.visible")
    if isinstance(visible, list):
        facts = facts.model_copy(update={"gpus": tuple(gpu for gpu in facts.gpus if gpu.index in visible)})
    if gpus * workers < 2 or not 0 < gpus <= len(facts.gpus):
        return ""
    return choose(facts, workers, None, gpus).reason
