"""A script run under a plan up to the first step of its first ``fit``, which does not run."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from tfvolta.bridge import bridge_for
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.script.run import ScriptRun
from tfvolta.session import Session


class StoppedAtFit(SystemExit):
    """Ends the script where its first training step would have run. No ``except Exception`` of its own holds it up."""

    def __init__(self) -> None:
        super().__init__(0)


class _Look(Callback):
    """Looks at the model right before its first step, and ends the script."""

    def __init__(self, look: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self._look = look

    def on_train_begin(self, logs: Logs = None) -> None:
        """Waits for the iterator, which settings of the plan may still look at before."""
        bridge_for(self.model).before_first_step(self.model, self._act)

    def _act(self, iterator: Any) -> None:
        self._look(self.model, iterator)
        raise StoppedAtFit


class FirstStepRun(ScriptRun):
    """Runs a script until its first training step.

    Attributes:
        looked: Whether ``fit`` was reached and looked at.
    """

    def __init__(self, session: Session, look: Callable[[Any, Any], None]) -> None:
        """Prepares the run.

        Args:
            session: The session whose plan is applied.
            look: Called with the model and the iterator of its data.
        """
        super().__init__(session)
        self.looked = False
        self._look = look

    def _fit_callbacks(self, model: Any, callbacks: Any, arguments: Mapping[str, Any]) -> Any:
        own = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks is not None else []
        return super()._fit_callbacks(model, [*own, _Look(self._seen)], arguments)

    def _seen(self, model: Any, iterator: Any) -> None:
        self.looked = True
        self._look(model, iterator)


def batch_of(model: Any) -> Optional[int]:
    """Rows of a full batch of the running fit; None where it does not say."""
    data = bridge_for(model).fit_data(model)
    return None if data is None else data.batch
