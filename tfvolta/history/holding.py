"""What a fit is held to, and where it leaves it: the judgement, without a clock and without Keras."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Optional

from tfvolta.config.guarding import Guard
from tfvolta.history.baseline import Baseline
from tfvolta.history.figures import FitFigures
from tfvolta.history.pace import Pace

_SAME_BATCH = 0.1  # means over an epoch and over its beginning differ by the last, smaller batch


@dataclasses.dataclass(frozen=True)
class Finding:
    """Where a fit has left the earlier one.

    Attributes:
        kind: ``throughput`` or ``loss``.
        what: With figures, in a clause.
        epoch: Number of the epoch.
        batch: The last batch that had ended.
    """

    kind: str
    what: str
    epoch: int
    batch: int


class Holding:
    """Compares fits of one run with those of an earlier one.

    Args:
        asked: Floor, band and window.
        baseline: The earlier run; None where there is none.
        why_not: Why there is none.

    Attributes:
        baseline: The earlier run.
        not_compared: Why a figure is not compared, by ``throughput`` and ``loss``, or ``all``.
        seen: The latest figures beside the earlier ones, by the same names.
        findings: Where the present fit has left the earlier one, each kind once.
    """

    def __init__(self, asked: Guard, baseline: Optional[Baseline], why_not: str = ""):
        self.baseline = baseline
        self.seen: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.not_compared: dict[str, str] = {"all": why_not} if baseline is None else {}
        self._asked = asked
        self._fit: Optional[FitFigures] = None
        self._number = 0
        if baseline is not None:
            limits = (
                ("throughput", asked.throughput_floor, baseline.no_rate),
                ("loss", asked.loss_band, baseline.no_loss),
            )
            self.not_compared = {name: why for name, limit, why in limits if why and limit is not None}
            self._compared = [name for name, limit, why in limits if limit is not None and not why]

    @property
    def run_id(self) -> str:
        """The earlier run's id; empty where there is none."""
        return "" if self.baseline is None else self.baseline.run_id

    @property
    def why_not(self) -> str:
        """Why nothing at all is compared; empty where something is."""
        if self.baseline is not None and self._compared:
            return ""
        return "; ".join(dict.fromkeys(self.not_compared.values()))

    def start_fit(self, number: int, seed: Optional[int]) -> None:
        """A fit begins.

        Args:
            number: From 1.
            seed: TensorFlow's, as the fit begins; None where nobody has set one.
        """
        self.seen, self.findings = {}, []
        self._number = number
        self._fit = None if self.baseline is None else self.baseline.fit(number)
        if self.baseline is not None and self._fit is None and not self.why_not:
            self.not_compared["all"] = f"{self.run_id} had {len(self.baseline.fits)} fits, and this is number {number}"

        if self._fit is None or self._asked.loss_band is None:
            return
        if seed is None:
            self.not_compared["loss"] = "no seed is set, neither by run.seed nor by the script"
        elif seed != self._fit.seed:
            self._differ(f"the seed differs: {seed} here, {self._fit.seed} there")

    def epoch_had(self, steps: int, per_call: int) -> None:
        """An epoch had so many steps; with other data it has others, and nothing is compared from there on.

        Args:
            steps: By the number of the last batch.
            per_call: Batches in a call; Keras 3 numbers the last batch too high by less than that.
        """
        earlier = None if self._fit is None else self._fit.steps_per_epoch
        if earlier is not None and abs(earlier - steps) >= per_call:
            self._differ(f"the data differ: {steps} steps in an epoch here, {earlier:g} there")

    def look_at_pace(
        self, pace: Pace, epoch: int, batch: int, examples: Callable[[], Optional[int]]
    ) -> Optional[Finding]:
        """Whether the throughput has fallen below the floor.

        Args:
            pace: The windows so far.
            epoch: The running epoch.
            batch: Number of the batch that ended last.
            examples: Counts those of the epoch so far, which waits for the device; asked before anything is said.
        """
        floor, fit = self._asked.throughput_floor, self._fit
        if floor is None or fit is None or not fit.steps_per_second or self._is_left_out("throughput"):
            return None
        state = pace.state(fit.steps_per_second)
        if state is None:
            return None
        self.seen["throughput"] = {**dataclasses.asdict(state), "floor": floor, "earlier": fit.steps_per_second}
        if state.high >= floor or not self._is_same_batch(fit, examples(), batch + 1):
            return None
        what = (
            f"throughput is {state.ratio:.3f} of that of {self.run_id} ({state.low:.3f} to {state.high:.3f},"
            f" {100 * state.confidence:.0f} %, {state.windows} windows of {self._asked.every_steps} steps),"
            f" below {floor:g}"
        )
        return self._found(Finding("throughput", what, epoch, batch))

    def look_at_loss(self, epoch: int, loss: Optional[float], batch: int) -> Optional[Finding]:
        """Whether the loss of an epoch lies outside the band; None stands for a loss that was not given."""
        share = self._asked.loss_band
        if share is None or loss is None or self.baseline is None or self._is_left_out("loss"):
            return None
        band = self.baseline.band(self._number, epoch, share)
        if band is None:
            return None
        shown = loss if math.isfinite(loss) else str(loss)
        self.seen["loss"] = {
            "epoch": epoch,
            "loss": shown,
            "earlier": band.loss,
            "low": band.low,
            "high": band.high,
            "method": band.method,
        }
        if band.holds(loss):
            return None
        what = f"loss {loss:.4g} is outside {band.low:.4g} to {band.high:.4g} ({self.run_id}, {band.method})"
        return self._found(Finding("loss", what, epoch, batch))

    def end_fit(self) -> None:
        """Says what could not be compared for want of steps."""
        wanted = self._asked.throughput_floor is not None and self._fit is not None
        if wanted and not self._is_left_out("throughput") and "throughput" not in self.seen:
            self.not_compared["throughput"] = "fewer than six windows of steps were timed; lower guard.every_steps"

    def _is_left_out(self, name: str) -> bool:
        return name in self.not_compared or "all" in self.not_compared

    def _found(self, finding: Finding) -> Optional[Finding]:
        if finding.kind in {known.kind for known in self.findings}:
            return None
        self.findings.append(finding)
        return finding

    def _is_same_batch(self, fit: FitFigures, examples: Optional[int], steps: int) -> bool:
        if examples is None or fit.batch is None:
            return True  # the code, its arguments and fit.batch_size are the same
        own = examples / steps
        if abs(own / fit.batch - 1) <= _SAME_BATCH:
            return True
        self._differ(f"the batch differs: {own:.4g} examples a step here, {fit.batch:.4g} there")
        return False

    def _differ(self, why: str) -> None:
        self.not_compared.update(throughput=why, loss=why)
