"""The next start of a run under the config of an earlier one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tfvolta.errors import EvidenceError, Problem
from tfvolta.history.applied import Applied, read_applied
from tfvolta.history.entries import read_history
from tfvolta.history.rollback import Done, carry_out, changes_for, check_known


@dataclasses.dataclass(frozen=True)
class Return:
    """What was written for the next start.

    Attributes:
        run_id: The earlier run.
        files: Files that were written; none where they were so already.
        sentence: For a person.
    """

    run_id: str
    files: tuple[Done, ...]
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"to": self.run_id, "files": [file.to_json() for file in self.files], "sentence": self.sentence}


def go_back(own_folder: Path, earlier_folder: Path) -> Return:
    """Writes the config files of an earlier run over those of this one.

    Args:
        own_folder: Folder of the run that is given up.
        earlier_folder: Folder of the run whose config the next start has.

    Raises:
        EvidenceError: One of them kept no config, or their files lie in different folders.
        HistoryError: A file was changed by hand since it was read, or cannot be written.
    """
    own, earlier = _applied(own_folder), _applied(earlier_folder)
    changes = changes_for(own, earlier, read_history(own_folder.parent))
    check_known(changes)
    done = carry_out(changes)
    words = [f"{each.path} is back to what it was in {earlier.run_id} (before: {each.backup})" for each in done]
    sentence = f"{'; '.join(words) or f'The config files are those of {earlier.run_id} already'}."
    if own.overrides != earlier.overrides:
        here, there = (" ".join(each.overrides) or "none" for each in (own, earlier))
        sentence += f" Overrides are not in a file: {here} here, {there} there."
    return Return(earlier.run_id, done, sentence)


def _applied(folder: Path) -> Applied:
    found = read_applied(folder)
    if isinstance(found, Applied):
        return found
    problem = found or Problem(folder.name, "a run with its config's text", "none", "its disk was full, or it is older")
    raise EvidenceError(f"{folder.name} kept no config.", [problem])
