"""A file that a command writes at its end: whether it can be is known before the work begins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

from tfvolta.errors import ConfigError, Problem


def check_output(option: str, path: Optional[Union[str, os.PathLike[str]]]) -> None:
    """Opens a file for writing and leaves all as it was.

    Args:
        option: The option that names it, such as ``--output``.
        path: The file; nothing is looked at when None.

    Raises:
        ConfigError: It cannot be written.
    """
    if path is None:
        return
    file = Path(path)
    existed = file.exists()
    try:
        with file.open("ab"):
            pass
        if not existed:
            file.unlink()
    except (OSError, ValueError) as error:
        raise cannot_write(option, path, error) from error


def cannot_write(option: str, path: Union[str, os.PathLike[str]], error: Exception) -> ConfigError:
    """Why a file cannot be written, and what to do."""
    file = Path(path)
    folder = file.absolute().parent
    if not folder.is_dir():
        fix = f"make the folder: mkdir -p {folder}"
    elif file.is_dir():
        fix = f"name a file in it: {option} {file / 'found.yaml'}"
    else:
        fix = f"name a file in a folder that you may write to: {option} ~/{file.name}"
    why = getattr(error, "strerror", None) or str(error)
    problem = Problem(f"{option} {path}", "a file that can be written", type(error).__name__, why, fix)
    return ConfigError(f"{file.name} cannot be written.", [problem])
