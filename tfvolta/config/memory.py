"""The section of the config about memory: what is kept, and what happens when it runs out."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import Field

from tfvolta.config.section import Section


class Memory(Section):
    """What happens when memory runs out."""

    on_oom: Optional[Literal["report", "split", "off"]] = Field(
        None,
        description="report says batch, shapes and remedies and keeps the state of the last good batch; split trains "
        "the batch in parts first.",
    )
