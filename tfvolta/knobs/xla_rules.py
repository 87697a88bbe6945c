"""Settings of XLA that exclude each other, found at plan time, and what a script's layers may make of one."""

from __future__ import annotations

from typing import Any, Iterator, Protocol

from tfvolta.errors import Problem


class _Request(Protocol):
    """What the rules look at; see ``tfvolta.conflicts.Request``."""

    def where(self, key: str) -> str:
        """The place that gave a key its value."""

    def get(self, key: str) -> Any:
        """The config's value at a dotted key."""

    @property
    def facts(self) -> Any:
        """The machine and stack."""

    @property
    def gpus(self) -> Any:
        """The GPUs that the config leaves visible."""

    @property
    def script_layers(self) -> frozenset[str]:
        """Names of layers that the script's source constructs."""


def compile_limit(request: _Request) -> Iterator[Problem]:
    """A limit for compilations where no step is compiled as a whole."""
    limit, jit = request.get("xla.compile_limit_seconds"), request.get("xla.jit")
    if limit is not None and jit not in ("auto", "model"):
        yield Problem(
            where=request.where("xla.compile_limit_seconds"),
            expected="xla.jit auto or model with compile_limit_seconds",
            received=f"xla.jit: {jit or 'not given'}",
            why="only a step that is compiled as a whole can be tried beforehand; clusters are compiled as they come",
            fix="set xla.jit: auto, or remove compile_limit_seconds",
        )


def remainder(request: _Request) -> Iterator[Problem]:
    """Two keys for the last batch that disagree."""
    drop, asked = request.get("xla.drop_remainder"), request.get("xla.remainder")
    if drop is not None and asked is not None and drop != (asked == "drop"):
        yield Problem(
            where=request.where("xla.remainder"),
            expected="one of xla.remainder and xla.drop_remainder, or two that agree",
            received=f"remainder: {asked} with drop_remainder: {str(drop).lower()}",
            why="drop_remainder: true is the same as remainder: drop, and false the same as keep",
            fix="remove xla.drop_remainder",
        )


def recurrent_layers(request: _Request) -> str:
    """What to know of ``xla.jit: model`` where the script's source names recurrent layers; empty elsewhere.

    No conflict: a source may hold several models, and which of them is trained is known when ``fit`` begins. The
    knob looks at that model's layers before it compiles anything.
    """
    found = sorted(request.script_layers & {"LSTM", "GRU", "CuDNNLSTM", "CuDNNGRU"})
    if not found or request.get("xla.jit") != "model" or not request.gpus:
        return ""
    why = (
        "Keras 3 uses cuDNN's recurrent kernel and switches jit off for such a model, whatever is asked"
        if request.facts.keras == "keras3"
        else "XLA cannot use cuDNN's recurrent kernel and unrolls the loop instead: "
        "compiling a two-layer LSTM did not finish in 110 seconds on an NVIDIA H200, so it is not begun"
    )
    return (
        f"The script names {', '.join(found)}: if the model that is trained has such a layer on cuDNN, {why}; the "
        "setting then ends NO_EFFECT, an error under run.strict. xla.jit: auto decides by the model."
    )
