"""How a script's own failure is shown: as plain Python would show it, without the frames of what runs it."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Optional


def trim(error: BaseException, path: str) -> BaseException:
    """Cuts an exception's traceback down to the script's own frames and those below.

    Args:
        error: What the script raised.
        path: The script, as it was given to ``runpy.run_path``.

    Returns:
        The same exception. A script that does not compile has no frames, so that only the place in its source is left;
        where no frame of the script is found the traceback stays whole, for then the fault is not the script's.
    """
    frame: Optional[TracebackType] = error.__traceback__
    while frame is not None and not _is_script(frame, path):
        frame = frame.tb_next
    if frame is not None:
        return error.with_traceback(frame)
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.with_traceback(None)
    return error


def shown(error: BaseException) -> str:
    """A trimmed exception as the interpreter prints it."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()


def _is_script(frame: TracebackType, path: str) -> bool:
    code = frame.tb_frame.f_code
    return code.co_filename == path and code.co_name == "<module>"


def show(error: BaseException) -> None:
    """Prints a trimmed exception on standard error."""
    print(shown(error), file=sys.stderr, flush=True)
