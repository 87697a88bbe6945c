"""What a search for a batch size has found: its sizes, the advice, agreement between workers, and a config."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

from tfvolta.config.scalars import write_flow
from tfvolta.errors import ConfigError, Problem
from tfvolta.tune.batch_advice import BatchAdvice
from tfvolta.tune.batch_search import BatchSearch
from tfvolta.tune.trial import Ending, Trial


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """What was found.

    Attributes:
        largest: Largest batch that fits; None where none does.
        fastest: Batch with most examples a second.
        rates: Examples a second by batch.
        limit: What limits the batch, in words.
        advice: What belongs to the chosen batch.
        trials: Every trial.
    """

    largest: Optional[int]
    fastest: Optional[int]
    rates: Mapping[int, float]
    limit: str
    advice: Optional[BatchAdvice] = None
    trials: tuple[Trial, ...] = ()

    @classmethod
    def of(cls, search: BatchSearch, stopped: str = "") -> BatchResult:
        """From a search that is over.

        Args:
            search: The search.
            stopped: Why it was ended before its end; empty where it was not.
        """
        largest, fastest = search.largest, search.fastest
        limit = _limit(search)
        return cls(
            largest.batch if largest is not None else None,
            fastest.batch if fastest is not None else None,
            {each.batch: each.examples_per_second for each in search.trials if each.examples_per_second},
            "; ".join(filter(None, (limit, stopped))) or "nothing: the largest size that was allowed fits",
            trials=tuple(search.trials),
        )

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; ``agree`` reads them back."""
        return {
            "largest": self.largest,
            "fastest": self.fastest,
            "rates": {str(batch): rate for batch, rate in self.rates.items()},
            "limit": self.limit,
            "advice": None if self.advice is None else dataclasses.asdict(self.advice),
            "trials": [each.to_json() for each in self.trials],
        }


def _limit(search: BatchSearch) -> str:
    """What keeps the batch from being larger, or from being tried at all; empty where nothing was found to."""
    bound = search.bound
    last = search.trials[-1] if search.trials else None
    if bound is None and last is not None and last.ending is Ending.REFUSED:
        return f"{last.batch} was not tried: {last.reason}"
    if bound is None:
        return ""
    if bound.rows is not None:
        return f"the data: fit is given {bound.rows} rows"
    return f"{bound.batch}: {bound.ending.value}, {bound.reason}"


def agree(contents: Sequence[Mapping[str, Any]]) -> BatchResult:
    """One result for workers that train in step: the smallest of what fits, and a speed that all have.

    Args:
        contents: Results of the workers as JSON values.

    Raises:
        ConfigError: One of them is no result, or nothing fits on one of them.
    """
    try:
        largest = [content["largest"] for content in contents]
        rates = [{int(batch): float(rate) for batch, rate in content["rates"].items()} for content in contents]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError("These are no results of tfvolta batch-size.", [_no_result(error)]) from error
    if not contents or any(size is None for size in largest):
        raise ConfigError("The workers cannot agree on a batch.", [_nothing_fits(largest)])
    smallest = min(largest)
    common = {b: min(own[b] for own in rates) for b in rates[0] if b <= smallest and all(b in own for own in rates)}
    fastest = max(common, key=lambda batch: common[batch]) if common else smallest
    where = ", ".join(f"worker {number}" for number, size in enumerate(largest) if size == smallest)
    return BatchResult(smallest, fastest, common, f"{where}: {smallest} rows are the most that fit there")


def config_text(advice: BatchAdvice, config: Optional[str], measured: str) -> str:
    """A config with what was found, on top of the one that it was found with.

    Args:
        advice: What to set.
        config: The config of the trials; None for the embedded default.
        measured: What was measured, in a line.
    """
    lines = [f"# {_plain(measured)}", *(f"# {_plain(reason)}" for reason in advice.reasons), ""]
    lines += [f"extends: {write_flow(config or 'tfvolta:default')}", "", "fit:", f"  batch_size: {advice.batch}"]
    if advice.reduce_every > 1:
        lines += ["", "communication:", f"  reduce_every: {advice.reduce_every}"]
    if advice.learning_rate is not None:
        lines += [
            "",
            "learning_rate:",
            f"  target: {advice.learning_rate!r}",
            f"  warmup_epochs: {advice.warmup_epochs}",
        ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split())


def _no_result(error: Exception) -> Problem:
    return Problem(
        where="--agree",
        expected="files that tfvolta batch-size --json has printed",
        received=f"{type(error).__name__}: {error}",
        fix="on each worker: tfvolta batch-size --json train.py > worker-0.json",
    )


def _nothing_fits(largest: Sequence[Any]) -> Problem:
    blind = [str(number) for number, size in enumerate(largest) if size is None]
    return Problem(
        where="--agree",
        expected="a batch that fits on every worker",
        received=f"none on worker {', '.join(blind)}" if blind else "no results",
        why="workers that train in step have batches of one size",
        fix="look at the trials of that worker",
    )
