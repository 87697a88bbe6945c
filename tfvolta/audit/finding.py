"""What an audit found."""

from __future__ import annotations

import dataclasses

from tfvolta.errors import Problem


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing about a model that makes training wrong or slow and that nothing else reports.

    Attributes:
        rule: Name of the rule, such as ``float16_outputs``.
        what: What was found, in a sentence.
        layers: Paths of the layers concerned; empty where it is the optimizer.
        why: What it does to the training.
        fix: The line to write.
        refuses: Whether training is refused, because its result would be wrong.
    """

    rule: str
    what: str
    layers: tuple[str, ...]
    why: str
    fix: str
    refuses: bool = False

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.what}", f"  why: {self.why}", f"  fix: {self.fix}"]
        if self.layers:
            lines.insert(1, f"  layers: {', '.join(self.layers)}")
        return "\n".join(lines)

    def problem(self, expected: str) -> Problem:
        """The finding as a problem of an error."""
        return Problem(where=self.rule, expected=expected, received=self.what, why=self.why, fix=self.fix)
