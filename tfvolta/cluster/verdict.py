"""What the meeting before training came to: the same for every worker."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from tfvolta.errors import ClusterError, Problem


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the workers can train together.

    Attributes:
        headline: The first line of the error; empty where there is none.
        problems: Why they cannot; empty where they can.
        warnings: What is unwise, in sentences.
        workers: What each told, in the order of ranks; without the configs.
        seconds: How long the chief waited for the others.
    """

    headline: str = ""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    workers: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Verdict:
        """The verdict that the chief sent.

        Raises:
            ValueError: It is none.
        """
        try:
            return cls(
                headline=str(content["headline"]),
                problems=tuple(Problem(**problem) for problem in content["problems"]),
                warnings=tuple(str(text) for text in content["warnings"]),
                workers=tuple(dict(worker) for worker in content["workers"]),
                seconds=float(content["seconds"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no verdict: {error}") from error

    def check(self) -> None:
        """Refuses training where the workers cannot train together.

        Raises:
            ClusterError: With every problem, the same on every worker.
        """
        if self.problems:
            raise ClusterError(self.headline, self.problems)
