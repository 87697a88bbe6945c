"""Code that needs a TensorFlow that has not started: one process imports it once and forks for every piece of code."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
from types import TracebackType
from typing import Any, Mapping, NamedTuple, Optional

ROOT = pathlib.Path(__file__).parents[2]


class Done(NamedTuple):
    """How a piece of code ended: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class Forks:
    """A process that has imported TensorFlow and forks on request.

    Importing starts no runtime: devices, threads and options are chosen in each fork, as in a process of its own. What
    TensorFlow reads from the environment while it is imported cannot be tested so.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, code: str, **environ: str) -> Done:
        """Runs code in a fork, with variables added to its environment."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "environ": environ}) + "\n")
        self._process.stdin.flush()
        return Done(**json.loads(self._process.stdout.readline()))


def _child(code: str, environ: Mapping[str, str], out: int, err: int) -> None:
    """The fork: never returns."""
    status = 1
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.environ.update(environ)
    with contextlib.suppress(BaseException):
        try:
            exec(compile(code, "<forked>", "exec"), {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _served(request: Mapping[str, Any]) -> Done:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if not pid:
            _child(request["code"], request["environ"], out.fileno(), err.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return Done(code, *texts)


def main() -> None:
    """Answers requests, one line of JSON each, until the input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what an import prints must not be taken for an answer
    import tensorflow  # noqa: F401

    for line in sys.stdin:
        os.write(answers, (json.dumps(_served(json.loads(line))._asdict()) + "\n").encode())


if __name__ == "__main__":
    main()
