"""Config files back to what they were in an earlier run: what changes, whether that loses anything, and the writing."""

from __future__ import annotations

import dataclasses
import difflib
import os
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from tfvolta.errors import EvidenceError, HistoryError, Problem
from tfvolta.evidence.clock import stamp
from tfvolta.history.applied import Applied, read_applied
from tfvolta.history.durable import write_beside, write_durably
from tfvolta.history.entries import Entry, History, place_of, text_of


@dataclasses.dataclass(frozen=True)
class Change:
    """One file that going back changes.

    Attributes:
        path: The file.
        now: Its text; None where it is gone, or is no text.
        then: The text that it gets.
        is_known: Whether the present text is that of some run, so that nothing is lost.
    """

    path: Path
    now: Optional[str]
    then: str
    is_known: bool

    def lines(self) -> list[str]:
        """The change as a unified diff."""
        before, after = (self.now or "").splitlines(), self.then.splitlines()
        name = os.fspath(self.path)
        return list(difflib.unified_diff(before, after, f"{name} (now)", f"{name} (then)", lineterm=""))


@dataclasses.dataclass(frozen=True)
class Done:
    """What was written.

    Attributes:
        path: The file.
        backup: Where its text of before is; None where there was no file.
    """

    path: Path
    backup: Optional[Path]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"path": str(self.path), "backup": None if self.backup is None else str(self.backup)}


def applied_of(run: str, directory: Union[str, os.PathLike[str]]) -> Applied:
    """What a run applied; its evidence need not be readable.

    Raises:
        EvidenceError: There is no such run, it kept nothing, or what it kept cannot be read.
    """
    runs = Path(directory).expanduser()
    folders = [folder for folder in (Path(run).expanduser(), runs / run) if folder.is_dir()]
    if not folders:
        known = sorted(path.parent.name for path in runs.glob("*/applied.json"))
        near = difflib.get_close_matches(run, known, n=1, cutoff=0.6)
        fix = f"did you mean {near[0]}?" if near else f"tfvolta configs list --runs {runs}"
        raise EvidenceError("No such run.", [Problem(f"run {run}", f"a run in {runs}", "none of that name", fix=fix)])
    found = read_applied(folders[-1])
    if isinstance(found, Problem):
        raise EvidenceError(f"What {run} applied cannot be read.", [found])
    if found is None:
        why = "an older tfvolta wrote it, or its disk was full"
        fix = "choose another run: tfvolta configs list"
        raise EvidenceError(f"{run} kept no config.", [Problem(run, "a run with its config's text", "none", why, fix)])
    return found


def former(history: History) -> Entry:
    """The run to go back to where none is named: the latest good one under the last run's config file as it was before.

    Raises:
        EvidenceError: There is no such run.
    """
    own = [entry for entry in history.entries if entry.applied is not None and entry.applied.main_file is not None]
    for entry in own:
        same = _main(entry) == _main(own[0])
        if same and entry.is_good and not entry.is_on_disk:
            return entry
    what = f"with another text of {_main(own[0])}" if own else "with a config file"
    received = f"none among {len(history.entries)}"
    problem = Problem("runs", f"a completed run {what}", received, fix="name one: tfvolta configs rollback RUN")
    raise EvidenceError("There is nothing to go back to.", [problem])


def _main(entry: Entry) -> str:
    main = entry.applied.main_file if entry.applied else None
    return main.path if main else ""


def changes_to(applied: Applied, history: History) -> tuple[Change, ...]:
    """What differs between the config files on disk and those of a run.

    Args:
        applied: What the run applied.
        history: Knows which texts are kept.

    Raises:
        EvidenceError: The run had no config file of the user's.
    """
    if not applied.own_files:
        received = applied.reference or "a config made in Python"
        problem = Problem(applied.run_id, "a run with a config file", received, "there is no file to write back")
        raise EvidenceError("There is nothing to go back to.", [problem])
    known = {(os.path.realpath(path), text) for path, text in history.texts()}
    found = []
    for file in applied.own_files:
        path = place_of(file)
        now = text_of(path)
        if now != file.text:
            is_known = not path.exists() or (os.path.realpath(path), now or "") in known
            found.append(Change(path, now, file.text, is_known))
    return tuple(found)


def check_known(changes: Sequence[Change]) -> None:
    """Refuses to write over what no run has.

    Raises:
        HistoryError: A file was changed since it was last run.
    """
    unknown = [change for change in changes if not change.is_known]
    if not unknown:
        return
    problems = [
        Problem(
            where=str(change.path),
            expected="the text of some run",
            received="another one",
            why="it was changed since a run last used it, and that text is kept nowhere",
            fix="tfvolta configs rollback RUN --force writes over it, with a backup beside it",
        )
        for change in unknown
    ]
    raise HistoryError("A config file was changed by hand; nothing was written.", problems)


def carry_out(changes: Sequence[Change]) -> tuple[Done, ...]:
    """Writes the files, each with the present one as a backup beside it: all of them, or none.

    Raises:
        HistoryError: One cannot be written; the others are as they were.
    """
    ending = stamp()
    done: list[Done] = []
    for change in changes:
        try:
            backup = None
            if change.path.exists():
                backup = write_beside(change.path, change.path.read_bytes(), ending)
            else:
                change.path.parent.mkdir(parents=True, exist_ok=True)
            done.append(Done(change.path, backup))
            write_durably(change.path, change.then.encode())
        except OSError as error:
            _take_back(done)
            problem = Problem(str(change.path), "a file that can be written", error.strerror or str(error))
            raise HistoryError("The config cannot be written back; all files are as they were.", [problem]) from error
    return tuple(done)


def _take_back(done: Sequence[Done]) -> None:
    for each in done:
        try:
            if each.backup is not None:
                os.replace(each.backup, each.path)
            else:
                each.path.unlink(missing_ok=True)
        except OSError:  # the backup is there, and its name says what it is
            continue


def changes_for(own: Applied, earlier: Applied, history: History) -> tuple[Change, ...]:
    """What makes the next start of a run one of an earlier run's config.

    Args:
        own: What the run applies whose next start it is.
        earlier: What the earlier one applied.
        history: Knows which texts are kept.

    Raises:
        EvidenceError: That takes another command, not another file.
    """
    mine, theirs = own.main_file, earlier.main_file
    if mine is None or theirs is None or os.path.dirname(mine.path) != os.path.dirname(theirs.path):
        received = f"{mine.path if mine else own.reference} now, {theirs.path if theirs else earlier.reference} then"
        fix = f"start with --config {theirs.path if theirs else earlier.reference or 'tfvolta:default'}"
        problem = Problem("config", "files of one folder", received, "what they extend lies beside them", fix)
        raise EvidenceError("The config file cannot be written back.", [problem])
    if mine.path == theirs.path:
        return changes_to(earlier, history)
    under_my_name = theirs.model_copy(update={"name": mine.name, "path": mine.path})
    rest = tuple(file for file in earlier.files if file.path not in (mine.path, theirs.path))
    return changes_to(earlier.model_copy(update={"files": (under_my_name, *rest)}), history)
