"""TensorFlow's ClusterCoordinator, paced, and with errors that name the process that was lost.

Three things differ from the original:

- It gives out no more than a few steps for each worker ahead of those that are finished. The original takes a quarter
  of a million, so that Keras's loop ends, callbacks and all, before the first steps do.
- Where all workers are gone it waits for ever, and where a parameter server is gone it raises an error about sockets.
  ``fail`` ends the wait with an error of the caller's.
- What was given out and failed is reported by whichever call comes next, as the original does it in ``join`` alone.

Source: tensorflow/python/distribute/coordinator/cluster_coordinator.py.
"""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Mapping, Optional, Sequence

import tensorflow as tf

STEPS_AHEAD = 8  # for each worker: enough to hide the way to it and back, few enough for callbacks to be in time
Explain = Callable[[Exception], Optional[Exception]]


def connect(addresses: Mapping[str, Sequence[str]], partitioner: Any) -> Any:
    """Connects this process to its cluster as the chief, and makes the strategy.

    Args:
        addresses: ``host:port`` of every chief, worker and ps.
        partitioner: How variables are split over the parameter servers.
    """
    spec = tf.train.ClusterSpec({job: list(tasks) for job, tasks in addresses.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    # Where ``strategy.cluster_resolver`` looks; this strategy leaves it empty, and nobody could ask for its size.
    strategy.extended._cluster_resolver = resolver
    return strategy


def explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a model that names the process that was lost, whichever operation noticed it first."""

    @functools.wraps(method)
    def wrapper(model: Any, *arguments: Any, **keywords: Any) -> Any:
        strategy = model.distribute_strategy
        try:
            return method(model, *arguments, **keywords)
        except tf.errors.OpError as error:
            if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
                raise
            coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
            better = coordinator.explained(error) if isinstance(coordinator, Coordinator) else error
            if better is error:
                raise
            raise better from error

    return wrapper


class Coordinator(tf.distribute.coordinator.ClusterCoordinator):  # type: ignore[misc]
    """The coordinator of a strategy; Keras 2 finds it where it would make its own.

    Attributes:
        steps_ahead: Steps that are given out and not known to be finished, at most.
        given_out: Steps that were given out so far.
    """

    def __init__(self, strategy: Any, workers: int = 1, explain: Optional[Explain] = None) -> None:
        """Connects to the workers of a strategy; whoever asks TensorFlow's class for a coordinator later gets this one.

        Args:
            strategy: A ``tf.distribute.ParameterServerStrategy``.
            workers: Number of its workers.
            explain: Gives the error to raise instead of one of TensorFlow's, or None to leave that.
        """
        if "_explain" in self.__dict__:
            return
        super().__init__(strategy)
        self.steps_ahead = STEPS_AHEAD * workers
        self.given_out = 0
        self._explain = explain
        self._outstanding: collections.deque[tuple[Any, Any]] = collections.deque()
        self._newest: dict[Any, Any] = {}
        self._failure: Optional[Exception] = None

    def __new__(cls, strategy: Any, *arguments: Any, **keywords: Any) -> Coordinator:
        """One for each strategy; the original's takes the strategy alone."""
        made: Coordinator = super().__new__(cls, strategy)
        return made

    def schedule(self, fn: Any, args: Any = None, kwargs: Any = None) -> Any:
        """Gives a function to the next free worker; waits where too many are given out already."""
        return self.schedule_within(self.steps_ahead, fn, args, kwargs)

    def schedule_within(self, ahead: int, fn: Any, args: Any = None, kwargs: Any = None) -> Any:
        """``schedule`` with another number of functions that may be given out and not finished."""
        while len(self._outstanding) >= ahead:
            given, oldest = self._outstanding.popleft()
            self._newest[given] = self.wait_for(oldest)
        self._raise_failure()
        try:
            remote = super().schedule(fn, args=args, kwargs=kwargs)
        except tf.errors.OpError as error:
            raise self.explained(error) from error
        self.given_out += 1
        self._outstanding.append((fn, remote))
        return remote

    def newest(self, fn: Any) -> Any:
        """The result of the newest finished call of a function; the first call since a join is waited for."""
        if fn not in self._newest:
            self._newest[fn] = self.wait_for(next(remote for given, remote in self._outstanding if given is fn))
        return self._newest[fn]

    def wait_for(self, remote: Any) -> Any:
        """The result of a scheduled function, as tensors on this machine.

        Raises:
            Exception: What the function failed with, or that a process was lost.
        """
        try:
            return remote.get()
        except Exception:
            self.join()  # raises what lies behind a cancellation, and forgets what was given out
            raise

    def join(self) -> None:
        """Waits until all that was given out is finished."""
        self._outstanding.clear()
        self._newest.clear()
        try:
            super().join()
        except tf.errors.OpError as error:
            raise self.explained(error) from error
        self._raise_failure()

    def fail(self, error: Exception) -> None:
        """Makes whatever waits for this coordinator raise an error, now and from now on; from any thread."""
        self._failure = self._failure or error
        queue = self._cluster.closure_queue
        with queue._queue_lock:
            queue._error = queue._error or error
            queue._stop_waiting_condition.notify_all()
        try:
            self.done()  # takes back what is given out, which ends every wait for a result
        except Exception as raised:
            del raised  # it is raised where training waits

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def explained(self, error: Exception) -> Exception:
        """What to raise for one of TensorFlow's errors: that a process was lost, or the error itself."""
        explained = self._explain(error) if self._explain is not None else None
        return self._failure or explained or error
