"""Which layers Tensor Cores serve, once a fit."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Optional

from tfvolta.audit.tensor_cores import slow_products, tensor_core_audit
from tfvolta.callbacks.base import Callback, Logs
from tfvolta.errors import AuditWarning
from tfvolta.footprint.tensor_cores import Audit

if TYPE_CHECKING:
    from tfvolta.session import Session

_ROWS = 20


class TensorCores(Callback):
    """Looks at a float16 model's layers before it trains, and warns where Tensor Cores serve them badly.

    The model is called once on placeholders, which takes as long as tracing its forward pass; nothing is computed, and
    models in float32 are left alone.

    Example:
        ``model.fit(dataset, callbacks=[tfvolta.callbacks.TensorCores()])``

    Args:
        session: Takes the audit into the evidence of a run.

    Attributes:
        audit: What was found; None where the model does not compute in float16 or its layers cannot be known.
    """

    def __init__(self, session: Optional[Session] = None):
        super().__init__()
        self.audit: Optional[Audit] = None
        self._session = session

    def on_train_begin(self, logs: Logs = None) -> None:
        """Looks, once the plan has converted the model."""
        data = self.bridge.fit_data(self.model)
        replicas = int(self.model.distribute_strategy.num_replicas_in_sync)
        batch = data.batch // replicas if data is not None and data.batch else None
        self.audit = tensor_core_audit(self.model, batch)
        if self.audit is None:
            return
        if self._session is not None:
            self._session.measured("tensor_cores", figures(self.audit))
        finding = slow_products(self.audit)
        if finding is None:
            return
        if self._session is not None:
            self._session.recorder.warned(str(finding))  # the report shows it
        else:
            warnings.warn(str(finding), AuditWarning, stacklevel=2)


def figures(audit: Audit) -> dict[str, Any]:
    """What a run's evidence holds of an audit."""
    return {
        "multiply_adds": audit.multiply_adds,
        "served_percent": round(audit.served_percent, 2),
        "usable_percent": round(audit.usable_percent, 2),
        "reachable_percent": round(audit.reachable_percent, 2),
        "batch": audit.batch,
        "not_counted": list(audit.unknown),
        "changes": [f"{row.layer} ({row.share_percent:.1f} %): {row.change}" for row in audit.changes[:_ROWS]],
    }
