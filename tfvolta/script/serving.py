"""Serving in the place of running a script, in a worker or a parameter server of a cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfvolta.errors import TfvoltaError
from tfvolta.phase import Phase
from tfvolta.session.served import close_served
from tfvolta.strategy.serving import Served

if TYPE_CHECKING:
    from tfvolta.session import Session


def serve_for(session: Session) -> int:
    """Serves until the chief has finished, under the settings of a session; the exit code of the process.

    The script does not run: the chief runs it, and sends what there is to compute.
    """
    try:
        session.enter(Phase.BUILD)
    except Served as served:
        close_served(session, served)
        return 0
    except KeyboardInterrupt as error:
        session.close("interrupted", error)
        return 130
    except TfvoltaError as error:
        session.close("failed", error)
        print(error, file=sys.stderr)
        return error.exit_code
    raise AssertionError("a process that serves does not come back from making its strategy")
