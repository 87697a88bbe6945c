"""What was measured before, and the study in which Optuna keeps this search."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import optuna
from optuna.trial import TrialState

from tfvolta.checkpoint.lock import hold, release
from tfvolta.errors import Problem, TuneError
from tfvolta.tune.candidates import Words
from tfvolta.tune.journal import FILE_NAME, open_journal
from tfvolta.tune.space import Axis, Space
from tfvolta.tune.speed_trial import SpeedTrial
from tfvolta.tune.write_fault import cannot_write

RECORD, POINT, WHY, EXPECTED = "record", "words", "why", "expected"
_REPEAT = "repeat "


class History:
    """The folder of searches, held by this process until it is closed.

    Attributes:
        directory: The folder.
        study: Optuna's, once ``open`` was called.
    """

    def __init__(self, directory: Path):
        """Takes the folder.

        Raises:
            TuneError: Another search has it, or it cannot be made or read.
        """
        self.directory = directory.expanduser().absolute()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            holder = hold(self.directory)
        except OSError as error:
            raise cannot_write(self.directory, error) from error
        if holder is not None:
            raise _taken(self.directory, holder)
        try:
            self._storage = open_journal(self.directory / FILE_NAME)
        except BaseException:
            release(self.directory)
            raise
        self.study: Any = None
        self._fingerprint = ""

    @classmethod
    def in_memory(cls) -> History:
        """A history that nothing is kept of, for a replay."""
        made = cls.__new__(cls)
        made.directory, made.study = Path(), None
        made._storage, made._fingerprint = optuna.storages.InMemoryStorage(), ""
        return made

    def open(self, fingerprint: str, axes: Sequence[Axis], sampler: Any, pruner: Any) -> None:
        """Opens the study of a search, or makes it; trials that an interruption cut off are marked as such.

        Args:
            fingerprint: What trials have to share.
            axes: What is searched.
            sampler: Optuna's.
            pruner: Optuna's.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        space = json.dumps([[axis.key, axis.labels] for axis in axes])
        name = f"{fingerprint} {hashlib.sha256(space.encode()).hexdigest()[:8]}"
        self._fingerprint = fingerprint
        self.study = optuna.create_study(
            study_name=name,
            storage=self._storage,
            sampler=sampler,
            pruner=pruner,
            direction="maximize",
            load_if_exists=True,
        )
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)

    def trials(self) -> list[Any]:
        """Trials of this search that came to an end of their own, in their order."""
        return [each for each in self.study.get_trials(deepcopy=False) if RECORD in each.user_attrs]

    def find(self, words: Words) -> Optional[SpeedTrial]:
        """A trial of an earlier search with the same fingerprint and settings, measured to its end."""
        for trial in self._earlier():
            attributes = trial.user_attrs
            if RECORD in attributes and tuple(attributes.get(POINT, ())) == words:
                found = SpeedTrial.of(attributes[RECORD])
                if found.ending == "measured":
                    return found
        return None

    def _earlier(self) -> list[Any]:
        found = []
        for study in self._storage.get_all_studies():
            if study.study_name.startswith(f"{self._fingerprint} ") and study.study_name != self.study.study_name:
                found += self._storage.get_all_trials(study._study_id, deepcopy=False)
        return found

    def repeat(self, words: Words, seed: int) -> Optional[SpeedTrial]:
        """A repeat that was measured before an interruption."""
        content = self.study.user_attrs.get(_name(words, seed))
        return None if content is None else SpeedTrial.of(content)

    def keep_repeat(self, words: Words, seed: int, trial: SpeedTrial) -> None:
        """Keeps one, at once."""
        self.study.set_user_attr(_name(words, seed), trial.to_json())

    def forget_repeats(self) -> None:
        """Lets repeats be measured again."""
        for name in [each for each in self.study.user_attrs if each.startswith(_REPEAT)]:
            self.study.set_user_attr(name, None)

    def close(self) -> None:
        """Gives the folder to others."""
        release(self.directory)


def distributions(space: Space) -> dict[str, Any]:
    """Optuna's name for the axes."""
    return {axis.key: optuna.distributions.CategoricalDistribution(axis.labels) for axis in space.axes}


def settings_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Values by key of a trial's words."""
    return dict(word.partition("=")[::2] for word in content.get(POINT, ()))


def _name(words: Words, seed: int) -> str:
    return f"{_REPEAT}{seed} {' '.join(words)}"


def _taken(directory: Path, holder: str) -> TuneError:
    problem = Problem(
        where=str(directory),
        expected="one search at a time in a folder",
        received=f"{holder} searches there",
        why="two searches on one machine would slow down each other's trials, and neither's figures would hold",
        fix="wait for it to end, or, on another machine, choose another folder: --directory DIR",
    )
    return TuneError("Another search is running in this folder.", [problem])
