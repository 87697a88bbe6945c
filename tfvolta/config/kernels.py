"""Section of the config about kernels that take the place of what Keras composes."""

from __future__ import annotations

from typing import Literal, Optional

from pydantic import Field

from tfvolta.config.section import Section

Choice = Literal["auto", "on", "off"]


class Kernels(Section):
    """Faster kernels for single layers (keras3; the other stacks use them by themselves)."""

    fused_batch_norm: Optional[Choice] = Field(
        None, description="Batch normalisation in one operation; auto on GPUs where XLA does not compile the step."
    )
    cudnn_rnn: Optional[Choice] = Field(
        None, description="LSTM and GRU on cuDNN, time first where there is no mask; auto as above."
    )
    fused_update: Optional[Choice] = Field(
        None, description="The update of all weights in one compiled program; auto as above, under mixed_float16."
    )
