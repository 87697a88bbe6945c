"""The folder of one fit's checkpoints; each is a folder that is complete from the moment it has its name."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Optional

from pydantic import ValidationError

from tfvolta.checkpoint import disk
from tfvolta.checkpoint.manifest import FILE_NAME, Manifest
from tfvolta.evidence.clock import stamp

_NAME = re.compile(r"^step-(\d{9,})(?:-(\d+))?$")
_UNFINISHED = "unfinished-"
_DAMAGED = "damaged-"
BOARD = ".workers-"  # where workers tell each other when to stop
STATE = "state"  # prefix of TensorFlow's files


class DamagedError(Exception):
    """A checkpoint that cannot be used; the text says why."""


class Store:
    """The checkpoints of one fit.

    Attributes:
        directory: Their folder.
        keep: How many are kept.
    """

    def __init__(self, directory: Path, keep: int):
        self.directory = directory
        self.keep = keep

    def checkpoints(self) -> list[Path]:
        """Every complete checkpoint, the newest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        found = [(match, name) for name in names for match in [_NAME.match(name)] if match]
        found.sort(key=lambda pair: (int(pair[0][1]), int(pair[0][2] or 1)), reverse=True)
        return [self.directory / name for _, name in found]

    def begin(self) -> Path:
        """A new folder to write a checkpoint into; nobody takes it for one before ``commit``."""
        folder = self.directory / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        return folder

    def commit(self, folder: Path, manifest: Manifest) -> Path:
        """Completes a checkpoint: writes the manifest, waits for the disk, and gives the folder its name.

        Args:
            folder: From ``begin``, with TensorFlow's files in it.
            manifest: What it says about itself, but for the files' sizes.

        Returns:
            The folder under its name. Older checkpoints than those that are kept are gone.
        """
        sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
        text = manifest.model_copy(update={"files": sizes}).model_dump_json()
        (folder / FILE_NAME).write_text(text, encoding="utf-8")
        disk.sync_files(folder)
        named = self._free_name(manifest.steps)
        os.rename(folder, named)
        disk.sync(self.directory)
        for old in self.checkpoints()[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return named

    def abandon(self, folder: Path) -> None:
        """Removes what ``begin`` made."""
        shutil.rmtree(folder, ignore_errors=True)

    def clean(self) -> None:
        """Removes what a killed process left unfinished."""
        if self.directory.is_dir():
            for each in self.directory.iterdir():
                if each.name.startswith((_UNFINISHED, BOARD)):
                    shutil.rmtree(each, ignore_errors=True)

    def set_aside(self) -> Optional[Path]:
        """Moves the checkpoints of an earlier training away, so that nobody goes on from them; where they are then."""
        if not self.checkpoints():
            return None
        aside = self.directory.with_name(f"{self.directory.name}.before-{stamp()}-{secrets.token_hex(2)}")
        os.rename(self.directory, aside)
        return aside

    def mark_damaged(self, checkpoint: Path) -> Path:
        """Renames a checkpoint that cannot be used, so that it is not taken for the newest again."""
        marked = checkpoint.with_name(f"{_DAMAGED}{checkpoint.name}-{secrets.token_hex(2)}")
        os.rename(checkpoint, marked)
        return marked

    def _free_name(self, steps: int) -> Path:
        name, number = f"step-{steps:09d}", 1
        while (self.directory / name).exists():
            number += 1
            name = f"step-{steps:09d}-{number}"
        return self.directory / name


def read_manifest(checkpoint: Path) -> Manifest:
    """What a checkpoint says about itself.

    Raises:
        DamagedError: It says nothing that can be read, or a file is missing or shorter than it was.
    """
    try:
        manifest = Manifest.model_validate_json((checkpoint / FILE_NAME).read_bytes())
    except (OSError, ValueError, ValidationError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedError(f"{FILE_NAME} cannot be read: {first}") from error
    for name, size in manifest.files.items():
        try:
            found = (checkpoint / name).stat().st_size
        except OSError as error:
            raise DamagedError(f"{name} is missing") from error
        if found != size:
            raise DamagedError(f"{name} has {found} bytes of {size}")
    return manifest
