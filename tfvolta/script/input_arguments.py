"""The data that a script gives to ``fit``, batched by length and fetched as the plan needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfvolta.data.fetching import MEMORY, Fetching
from tfvolta.data.half import with_half
from tfvolta.data.input_arguments import gpu_of, with_fetching
from tfvolta.data.sequence_arguments import in_sequence_batches
from tfvolta.data.sequences import SequenceSettings
from tfvolta.knobs.half_input import HalfInput
from tfvolta.knobs.input import NOTE, OPTIONS, DevicePrefetch
from tfvolta.knobs.sequences import SequenceBatches
from tfvolta.knobs.sharding import BETWEEN_RANKS
from tfvolta.peers import peers_of

if TYPE_CHECKING:
    from tfvolta.session import Session


def with_sequences(session: Session, model: Any, arguments: dict[str, Any], floatx: str) -> dict[str, Any]:
    """Batches sequences by their lengths, where the config has the section ``sequences``.

    Raises:
        ConfigError: The data are sequences that the settings do not fit.
    """
    section = session.config.get("sequences")
    if section is None:
        return arguments
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if session.config.get("strategy.kind") in BETWEEN_RANKS:
        replicas *= peers_of(model).size  # each rank may get its share of every batch
    settings = SequenceSettings(**section.model_dump(), replicas=replicas)
    seed = session.config.get("run.seed") or 0
    arguments, change = in_sequence_batches(arguments, settings, floatx, seed)
    session.context.saved[SequenceBatches.name] = change
    return arguments


def with_input(session: Session, bridge: Any, model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Puts what the section ``input`` asks for around the data set; it comes last.

    Raises:
        ConfigError: The batches cannot be kept.
    """
    config, saved = session.config, session.context.saved
    if config.get("input") is None:
        return arguments
    if config.get("input.half"):
        arguments, saved[HalfInput.name] = with_half(arguments, bridge.half_inputs(model))
    options = {name: config.get(f"input.{name}") for name in OPTIONS}
    device, why = gpu_of(model) if config.get("input.device_prefetch") else ("", "")
    asked = Fetching(
        cache=_own_file(config.get("input.cache"), peers_of(model)),
        prefetch=config.get("input.prefetch"),
        device_prefetch=config.get("input.device_prefetch"),
        options={name: value for name, value in options.items() if value is not None},
    )
    saved[DevicePrefetch.name] = why
    arguments, saved[NOTE] = with_fetching(arguments, asked, device)
    return arguments


def _own_file(place: Any, peers: Any) -> Any:
    """The file of this process: several cannot write one."""
    return f"{place}.{peers.rank}" if place not in (None, MEMORY) and peers.size > 1 else place
