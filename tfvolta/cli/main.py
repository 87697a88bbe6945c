"""The command ``tfvolta``: finds the subcommand's file, and turns errors into words and exit codes."""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
import traceback
from typing import Any, Optional, Sequence

import tfvolta
from tfvolta.errors import Problem, TfvoltaError

# One file per command beside this one, each with add_parser(subparsers) and run(arguments) -> exit code.
COMMANDS = (
    "plan",
    "run",
    "launch",
    "report",
    "facts",
    "configs",
    "cluster",
    "estimate",
    "batch-size",
    "ladder",
    "bench",
    "tune",
)

_DESCRIPTION = "Verified performance settings for Keras training."
_EPILOGUE = (
    "Exit codes: 0 done, 1 a check or the script failed, 2 unusable input, settings that come too late or change "
    "nothing included. TFVOLTA_TRACEBACK=1 shows where an error arose."
)


def _chosen(arguments: Sequence[str]) -> Optional[str]:
    """The command on a command line: its first word that is no option."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _unknown(command: str) -> TfvoltaError:
    near = difflib.get_close_matches(command, COMMANDS, n=1, cutoff=0.5)
    if near:
        fix = f"did you mean: tfvolta {near[0]}"
    elif command.endswith(".py"):
        fix = f"to run a script: tfvolta run {command}"
    else:
        fix = "tfvolta --help says what each does"
    problem = Problem("command line", f"one of {', '.join(COMMANDS)}", command, fix=fix)
    return TfvoltaError(f"Unknown command {command}.", [problem])


def make_parser(command: Optional[str] = None) -> argparse.ArgumentParser:
    """The parser of the whole command line.

    Args:
        command: The only command to load; all of them, for ``--help``, when None.
    """
    parser = argparse.ArgumentParser(prog="tfvolta", description=_DESCRIPTION, epilog=_EPILOGUE, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"tfvolta {tfvolta.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS if command is None else (command,):
        importlib.import_module(f"tfvolta.cli.{name.replace('-', '_')}").add_parser(subparsers)
        subparser = subparsers.choices[name]
        # The description is the module's docstring, whose markup is not for the terminal.
        subparser.description = (subparser.description or "").replace("`", "")
    return parser


def _print_error(error: TfvoltaError, as_json: bool) -> None:
    """Prints an error for a person on standard error, and as JSON on standard output where JSON was asked for."""
    print(f"tfvolta: {error}", file=sys.stderr)
    if as_json:
        problems = [vars(problem) for problem in error.problems]
        content = {"type": type(error).__name__, "summary": error.summary, "problems": problems}
        print(json.dumps({"error": content, "exit_code": error.exit_code}, indent=2))


def _run(arguments: Sequence[str]) -> int:
    """Runs one command; its exit code."""
    chosen = _chosen(arguments)
    as_json = False
    try:
        if chosen is not None and chosen not in COMMANDS:
            raise _unknown(chosen)
        parser = make_parser(chosen)
        parsed, left = parser.parse_known_args(arguments)
        if left:
            from tfvolta.cli.stray_option import stray_option

            raise stray_option(parser, arguments, left)
        as_json = bool(getattr(parsed, "json", False))
        code: int = parsed.run(parsed)
    except TfvoltaError as error:
        if os.environ.get("TFVOLTA_TRACEBACK") == "1":
            traceback.print_exc()
        _print_error(error, as_json)
        return error.exit_code
    return code


def _encode_anything(stream: Any) -> None:
    """Lets a terminal that knows fewer characters show escapes for the others instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def _have_streams() -> None:
    """Gives a process whose standard streams were closed empty ones: a file opened later would take their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command line and returns its exit code.

    Args:
        arguments: Words after the program's name; those of this process when None.
    """
    _have_streams()
    _encode_anything(sys.stdout)
    _encode_anything(sys.stderr)
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("tfvolta: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader, such as head, has seen enough; keep the interpreter from failing when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code
