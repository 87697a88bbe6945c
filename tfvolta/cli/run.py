"""``tfvolta run``: an unmodified training script with a config's whole plan applied around it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import Any

from tfvolta.cli.config_arguments import add_config_arguments, load_from


@dataclasses.dataclass(frozen=True)
class _End:
    """How a script ended: the exit code, and what is to be said of it on standard error."""

    code: int
    texts: tuple[str, ...] = ()


def add_parser(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("run", help="run a training script under a config", description=__doc__)
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print how the run ended as JSON, on the last line")
    parser.add_argument("--quiet", action="store_true", help="print nothing of tfvolta's own but errors")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the script; its own exit code, or 2 where the plan is refused or a setting came too late."""
    from tfvolta.script.source import check_script, layers_named_in
    from tfvolta.session import Origin, Session
    from tfvolta.session.served import is_server
    from tfvolta.strategy.coordination import end

    config = load_from(arguments)
    check_script(arguments.script)
    origin = Origin(
        command=["tfvolta", *sys.argv[1:]],
        script=os.path.abspath(arguments.script),
        script_layers=layers_named_in(arguments.script),
    )
    session = Session(config, origin=origin)
    if not session.place.is_chief:
        arguments.quiet = True  # what is said once, the chief says
    if not arguments.quiet:
        print(f"tfvolta: evidence in {session.recorder.path}", file=sys.stderr, flush=True)
    _warn(session, arguments.quiet)
    ended = _serve(session) if is_server(session) else _run_script(session, arguments)
    try:
        end(ended.code)
        _report(session, arguments, ended.code)
    finally:  # below the report, where it is seen first
        for text in ended.texts:
            print(text, file=sys.stderr, flush=True)
    return ended.code


def _warn(session: Any, quiet: bool) -> None:
    """Says what makes a well-formed plan a bad one here, while there is time to end the run."""
    from tfvolta.session.cautions import cautions

    for text in cautions(session.plan):
        session.recorder.warned(text)
        if not quiet:
            print(f"tfvolta: warning: {text}", file=sys.stderr, flush=True)


def _serve(session: Any) -> _End:
    """Serves the chief instead, in a worker or a parameter server."""
    from tfvolta.script.serving import serve_for

    return _End(serve_for(session))


def _run_script(session: Any, arguments: argparse.Namespace) -> _End:
    """Runs the script and ends the session."""
    from tfvolta.errors import TfvoltaError
    from tfvolta.script import failure
    from tfvolta.script.run import ScriptRun

    script = ScriptRun(session)
    try:
        script.run(arguments.script, arguments.arguments)
    except SystemExit as error:
        code = _exit_code(error)
        if code == 0:
            return _completed(session, script)
        session.close("failed", failure.trim(error, arguments.script))
        return _End(code, () if isinstance(error.code, int) else (str(error.code),))
    except KeyboardInterrupt as error:
        session.close("interrupted", error)
        return _End(130, ("tfvolta: interrupted; the evidence so far is kept",))
    except TfvoltaError as error:
        session.close("failed", error)
        return _End(error.exit_code, (f"tfvolta: {error}",))
    except BaseException as error:
        session.close("failed", failure.trim(error, arguments.script))
        return _End(1, (failure.shown(error),))
    end = _completed(session, script)
    return end if end.code or script.fits else _no_fit(session)


def _completed(session: Any, script: Any) -> _End:
    """Ends a session whose script came to its end; 2 where the script caught an error of tfvolta's and went on."""
    error = script.error or session.ledger.fault()
    if error is None:
        session.close("completed")
        return _End(0)
    session.close("failed", error)
    return _End(int(error.exit_code), (f"tfvolta: the script went on after this error: {error}",))


def _no_fit(session: Any) -> _End:
    """Says that the fit-time settings could not bind; 1 where there were any."""
    pending = session.ledger.pending()
    if not pending:
        return _End(0)
    text = (
        f"tfvolta: the script never called model.fit in this process, so these settings did not bind: "
        f"{', '.join(pending)}. Layers and models take them when they are made, and the rest "
        "comes with model.fit; a training loop of its own uses tfvolta.precision and tfvolta.build_strategy instead."
    )
    return _End(1, (text,))


def _exit_code(error: SystemExit) -> int:
    """The exit code of a script's own sys.exit, as the interpreter would give it."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _report(session: Any, arguments: argparse.Namespace, code: int) -> None:
    """Prints how the run ended."""
    from tfvolta.evidence.store import read

    evidence = read(session.recorder.path)
    if not arguments.quiet:
        from tfvolta.report.style import make_console
        from tfvolta.report.terminal import print_report

        print_report(evidence, path=session.recorder.path, console=make_console(stream=sys.stderr), at_end=True)
    if arguments.json:
        outcomes = {name: outcome.status.value for name, outcome in evidence.outcomes.items()}
        path = session.recorder.path
        summary = {
            "run": os.path.dirname(path),
            "evidence": path,
            "status": evidence.status,
            "exit_code": code,
            "outcomes": outcomes,
        }
        print(json.dumps(summary), flush=True)
