"""The way of a model's gradients from the backward pass to its optimiser, the same for every Keras.

A window of k batches is trained by two functions, each traced for itself: in one, gradients end in the window; in the
other, they are averaged with those of the window, reduced, and given to the optimiser. Which is called is decided in
Python, so that no reduction lies inside a condition: a graph that only adds up holds none.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
from typing import Any, Callable, Mapping, Optional

import tensorflow as tf

from tfvolta.bridge.gradient_watch import TRUE_SIZE, GradientWatch, Size
from tfvolta.bridge.kept_batches import BatchKeeper
from tfvolta.bridge.reduction import ReductionSettings, ReductionState
from tfvolta.bridge.window import Window, key_of
from tfvolta.bridge.wire import Wire, parties, reduce, values_of, wire_bytes
from tfvolta.errors import BridgeError, Problem

ACCUMULATE, UPDATE = "accumulate", "update"
_KEY = "_tfvolta_gradient_path"
REPLAY = "replay"  # a step is looked into: its gradients end here
WATCH = "watch"  # the step is one whose gradients are looked at
PASSED = "passed"  # gradients have come to the end of their path and are not reduced again


@dataclasses.dataclass(frozen=True)
class Arrival:
    """Gradients as they are given to an optimiser, in replica context.

    Attributes:
        gradients: Tensors, ``IndexedSlices`` or None.
        variables: Their variables, one each.
        scale: Factor to the size of the scaled loss; None where they have it.
        checked: Whether the optimiser looks for infinities in what it is given.
        reduced: Whether they were reduced by whoever gives them.
        size: Whether they are those of the scaled loss, for who looks at them.
    """

    gradients: list[Any]
    variables: list[Any]
    scale: Optional[Any] = None
    checked: bool = False
    reduced: bool = False
    size: Size = TRUE_SIZE


class InMode:
    """A context in which gradients take the path of some modes. Replicas are traced in turns, so it is counted."""

    def __init__(self, counts: collections.Counter[str], modes: tuple[str, ...]):
        self._counts = counts
        self._modes = modes

    def __enter__(self) -> None:
        self._counts.update(self._modes)

    def __exit__(self, *error: Any) -> None:
        self._counts.subtract(self._modes)


class GradientPath:
    """What happens to the gradients of one model.

    Attributes:
        settings: What was asked.
        functions: The train functions by mode, once they were made.
        taken_over: Whether ``settings.every`` is the optimiser's own ``gradient_accumulation_steps``.
        watch: Who looks at gradients in some steps; None for nobody.
        keeper: Who keeps the last batches; None for nobody.
    """

    def __init__(self, settings: ReductionSettings, taken_over: bool = False):
        self.settings = settings
        self.taken_over = taken_over
        self.functions: Mapping[str, Callable[[Any], Any]] = {}
        self.watch: Optional[GradientWatch] = None
        self.keeper: Optional[BatchKeeper] = None
        self.arrived: list[Arrival] = []
        self.window = Window()
        self._state = ReductionState(settings)
        self._modes: collections.Counter[str] = collections.Counter()
        self._seen: set[tuple[Any, ...]] = set()
        self._bytes: dict[tuple[Any, ...], tuple[int, Optional[int]]] = {}  # of each call of an optimiser in a step

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientPath:
        return self  # a copied optimiser goes the way of the original

    @property
    def state(self) -> ReductionState:
        """What was done since ``restart``."""
        if not self._bytes:
            return self._state
        wholes, wires = zip(*self._bytes.values())
        on_the_wire = None if None in wires else sum(wires)
        return dataclasses.replace(self._state, gradient_bytes=sum(wholes), wire_bytes=on_the_wire)

    def restart(self, strategy: Any) -> None:
        """Forgets gradients that wait, and counts from zero."""
        if self._state.pending:
            self.window.clear(strategy)
        self._state = dataclasses.replace(self._state, batches=0, updates=0, pending=0)

    def mode(self, *modes: str) -> InMode:
        """The context in which a train function of some modes is traced and run."""
        return InMode(self._modes, modes)

    def is_in(self, mode: str) -> bool:
        """Whether the present code is run or traced in a mode."""
        return self._modes[mode] > 0

    def step(self, iterator: Any, functions: Mapping[str, Callable[[Any], Any]]) -> Any:
        """Trains one batch with the function whose turn it is; a call that ends in an error counts for nothing."""
        mode = UPDATE if self._state.pending + 1 >= self.settings.every else ACCUMULATE
        self._seen.clear()
        with self.mode(mode):
            outputs = functions[mode](iterator)
        self.advance(1)
        return outputs

    def advance(self, batches: int) -> None:
        """Counts batches that were trained."""
        updates, pending = divmod(self._state.pending + batches, self.settings.every)
        self._state = dataclasses.replace(
            self._state,
            batches=self._state.batches + batches,
            updates=self._state.updates + updates,
            pending=pending,
        )

    def travel(self, arrival: Arrival, then: Callable[[list[Any]], Any]) -> Any:
        """Sends gradients on their way and gives what comes out at its end to ``then``, where anything does.

        What ``then`` does waits for the gradients: Keras's count of updates does not, and where the data run out in a
        call it would go on by one.

        Returns:
            What ``then`` returns; None where it is not this batch's turn.
        """
        ready = self.arrive(arrival)
        if ready is None:
            return None
        own = [values_of(gradient) for gradient in arrival.gradients if gradient is not None]
        with self.mode(PASSED), tf.control_dependencies(own):
            return then(ready)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def arrive(self, arrival: Arrival) -> Optional[list[Any]]:
        """Takes gradients on their way to the optimiser.

        Returns:
            What the optimiser is to be given, reduced and in the size in which it came; None where it is not this
            batch's turn.

        Raises:
            BridgeError: A train step gives the optimiser gradients of one variable twice.
        """
        places = [
            place
            for place, (gradient, variable) in enumerate(zip(arrival.gradients, arrival.variables))
            if gradient is not None and not getattr(variable, "overwrite_with_gradient", False)
        ]
        if self.is_in(REPLAY):
            self.arrived.append(arrival)
            return None
        gradients = [arrival.gradients[place] for place in places]
        variables = [arrival.variables[place] for place in places]
        if self.is_in(ACCUMULATE) or self.is_in(UPDATE):
            self._refuse_twice(variables)
        if self.is_in(ACCUMULATE):
            self.window.add(gradients, variables)
            return None
        if self.is_in(UPDATE) and self.settings.every > 1:
            gradients = self.window.take(gradients, variables, self.settings.every)
        ready = list(arrival.gradients)
        gradients = self._reduced(gradients, variables, arrival)
        if self.watch is not None and self.is_in(WATCH):
            self.watch.note(gradients, variables, arrival.size)
        for place, gradient in zip(places, gradients):
            ready[place] = gradient
        return ready

    def _reduced(self, gradients: list[Any], variables: list[Any], arrival: Arrival) -> list[Any]:
        settings = self.settings
        if settings.all_reduce is not None and settings.all_reduce.prepare is not None and not arrival.reduced:
            gradients = settings.all_reduce.prepare(gradients, variables)
        wire = Wire(settings.compression == "fp16", arrival.checked, arrival.scale, settings.all_reduce)
        whole = sum(
            int(math.prod(variable.shape)) * values_of(gradient).dtype.size
            for gradient, variable in zip(gradients, variables)
        )
        alone = arrival.reduced or parties(settings.all_reduce) == 1
        self._bytes[tuple(map(key_of, variables))] = (whole, 0 if alone else wire_bytes(gradients, wire))
        return gradients if arrival.reduced else reduce(gradients, wire)

    def _refuse_twice(self, variables: list[Any]) -> None:
        """A window ends with its first update: a second one in the same step would be given what is left of it."""
        if self.settings.every == 1:
            return
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        for variable in variables:
            seen = (threading.get_ident(), graph, key_of(variable))
            if seen in self._seen:
                raise BridgeError("This train step cannot add up gradients over batches.", [_twice(variable)])
            self._seen.add(seen)


def _twice(variable: Any) -> Problem:
    return Problem(
        where="train_step",
        expected="each variable given to the optimizer once in a step",
        received=f"two gradients of {getattr(variable, 'path', variable.name)} in one step",
        why="gradients of several batches are averaged for one update, which a step with two updates does not have",
        fix="give the optimizer all gradients of a step in one call, or leave the accumulation out",
    )


def put_in_front_of(optimizer: Any, path: GradientPath, name: str, method: Any) -> None:
    """Lets gradients take a path before they come to an optimiser.

    Args:
        name: The method of the optimiser that gradients are given to.
        method: What takes its place on this instance.
    """
    optimizer.__dict__[_KEY] = path
    optimizer.__dict__[name] = method


def path_in_front_of(optimizer: Any) -> Optional[GradientPath]:
    """The path of the gradients that are given to an optimiser; None where there is none."""
    path = optimizer.__dict__.get(_KEY)
    return path if isinstance(path, GradientPath) else None


def forget_path(optimizer: Any, name: str) -> None:
    """Takes a path away again; see ``put_in_front_of``."""
    optimizer.__dict__.pop(_KEY, None)
    optimizer.__dict__.pop(name, None)
