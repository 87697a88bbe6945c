"""Arguments that a script gives to ``compile`` and ``fit``, as the plan needs them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tfvolta.data.arguments import without_remainder
from tfvolta.data.padded_arguments import with_filled_remainder
from tfvolta.data.rebatching import batch_of, in_batches_of
from tfvolta.data.sharded_arguments import divided_between_ranks, divided_by_strategy
from tfvolta.errors import ContradictionWarning
from tfvolta.knobs.batch_size import BatchSize
from tfvolta.knobs.drop_remainder import DropRemainder
from tfvolta.knobs.pad_remainder import PadRemainder
from tfvolta.knobs.sharding import BETWEEN_RANKS, BY_STRATEGY, DataSharding
from tfvolta.peers import peers_of
from tfvolta.script.input_arguments import with_input, with_sequences

if TYPE_CHECKING:
    from tfvolta.session import Session

SCRIPT_BATCH = "batch size of the script"  # in ``Context.saved``, where the config has another


def compile_arguments(session: Session, stack: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Takes care that Keras 2 is never given a string for ``jit_compile``, which it takes for true.

    Args:
        session: The session of the run.
        stack: The Keras whose ``compile`` is called.
        arguments: Its arguments by name.
    """
    asked = arguments.get("jit_compile")
    if stack == "keras3" or not isinstance(asked, str):
        return arguments
    decided = session.config.get("xla.jit")
    value = decided is None  # what Keras 2 takes the string for, where the config leaves XLA alone
    then = f"xla.jit: {decided} decides when fit starts" if decided else "the step is compiled as Keras 2 would have"
    text = f"compile(jit_compile={asked!r}): Keras 2 takes every string for True and knows no 'auto'; {then}"
    session.recorder.warned(text)
    warnings.warn(text, ContradictionWarning, stacklevel=4)
    return {**arguments, "jit_compile": value}


def fit_arguments(session: Session, bridge: Any, model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Changes the data of a ``fit`` as the config asks: the last, smaller batch, and for each worker its part.

    Args:
        session: The session of the run.
        bridge: The bridge of the model's Keras.
        model: The model to be trained.
        arguments: Arguments of ``fit`` by name, but ``callbacks``.

    Raises:
        ConfigError: The data cannot be divided as asked.
    """
    config, saved = session.config, session.context.saved
    floatx = bridge.keras.backend.floatx()
    size = config.get("fit.batch_size")
    if size is not None:
        saved[SCRIPT_BATCH] = batch_of(arguments)
        arguments, saved[BatchSize.name] = in_batches_of(arguments, size)
    arguments = with_sequences(session, model, arguments, floatx)
    if DropRemainder().value(config):
        arguments, saved[DropRemainder.name] = without_remainder(arguments, floatx)
    policy = config.get("data.sharding")
    peers = peers_of(model)
    if peers.size > 1 and config.get("strategy.kind") in BY_STRATEGY:
        arguments, saved[DataSharding.name] = divided_by_strategy(arguments, peers.size, policy or "auto")
    elif peers.size > 1 and config.get("strategy.kind") in BETWEEN_RANKS and policy in ("auto", "data"):
        seed = config.get("run.seed") or 0
        arguments, saved[DataSharding.name] = divided_between_ranks(arguments, peers.rank, peers.size, floatx, seed)
    if config.get("xla.remainder") == "pad":  # of what this process is given
        arguments, saved[PadRemainder.name] = with_filled_remainder(arguments, model, floatx, config.run.seed)
    return with_input(session, bridge, model, arguments)
