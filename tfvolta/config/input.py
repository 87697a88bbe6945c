"""Sections of the config about the data that fit is given: how sequences are batched, and how data are fetched."""

from __future__ import annotations

from typing import Annotated, Literal, Optional, Union

from pydantic import Field

from tfvolta.config.section import Section

Tokens = Annotated[int, Field(gt=0)]


class Sequences(Section):
    """Sequences in batches of few shapes."""

    max_tokens: Optional[int] = Field(None, gt=0, description="Split sequences that are longer.")
    buckets: Union[Tokens, Annotated[list[Tokens], Field(min_length=1)]] = Field(
        4, description="Padded lengths, or how many are chosen from the lengths of the data."
    )
    multiple: int = Field(8, gt=0, description="Padded lengths that are chosen are multiples of it.")
    tokens_per_batch: Optional[int] = Field(
        None, gt=0, description="Tokens of a batch; by default those of a batch as given at the longest padded length."
    )
    labels: Literal["auto", "token", "sequence"] = Field(
        "auto", description="What has a label: each token, or a whole sequence; auto tells by their shape."
    )
    padding_value: int = Field(0, description="What padded tokens are.")
    sample: int = Field(20000, gt=0, description="Most sequences that are looked at for their lengths.")


class Input(Section):
    """How data are prepared and fetched."""

    prefetch: Optional[Union[Literal["auto"], Tokens]] = Field(
        None, description="Batches that are fetched ahead, or auto."
    )
    device_prefetch: Optional[int] = Field(
        None, gt=0, description="Batches that are copied to the GPU ahead of their step."
    )
    half: Optional[Union[bool, Literal["auto"]]] = Field(
        None,
        description="Cast features to float16 on the host where every layer that takes them would do so; auto does"
        " without a word where none would.",
    )
    cache: Optional[str] = Field(
        None, min_length=1, description="Keep batches after the first epoch: memory, or the name of a file."
    )
    private_threads: Optional[int] = Field(None, gt=0, description="Threads that prepare data and do nothing else.")
    max_intra_op_threads: Optional[int] = Field(
        None, gt=0, description="Threads inside one operation of the data's preparation."
    )
    autotune: Optional[bool] = Field(None, description="Let TensorFlow choose parallelism and buffers.")
    ram_budget_mb: Optional[int] = Field(None, gt=0, description="Most memory for buffers that are chosen, MiB.")
    map_parallelization: Optional[bool] = Field(
        None, description="Let TensorFlow call functions without state for several elements at once."
    )
    deterministic: Optional[bool] = Field(
        None, description="false lets elements come in the order in which they are ready, which changes results."
    )
    slack: Optional[bool] = Field(None, description="Delay the fetching ahead while a step starts.")
    host_memory_limit_mb: Optional[int] = Field(
        None, gt=0, description="Most pinned memory of the host for copies to GPUs, MiB."
    )
