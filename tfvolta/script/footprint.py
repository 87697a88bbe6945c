"""What a script will train, found out in a process of its own that ends before the first step.

``python -m tfvolta.script.footprint REQUEST RESULT`` reads a request as JSON and writes what it found as JSON. It needs
no GPU, so that it can run beside a training; only XLA's own figures are those of the device that it sees.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
import time
from typing import Any, Mapping, Optional

from tfvolta.errors import BridgeError, EvidenceError, Problem, TfvoltaError

# Sections that concern several processes, or that would read and write files of a training.
_LEFT_OUT = ("strategy", "communication", "checkpoint", "preflight", "watchdog")


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        script: The training script, or a saved model.
        arguments: The script's own command line.
        config: Config file or template; None for the default.
        overrides: As given with ``--set``.
        directory: Folder of runs.
        batch: Rows of one replica's batch; None for that of the data.
        compare_half: Whether to estimate half the batch too, from which the largest one that fits is computed.
        memory: Whether the memory is asked for, beside Tensor Cores.
        refine: Whether XLA shall compile the step and say what it takes.
        input_shape: Of a saved model whose inputs are open.
    """

    script: str
    arguments: tuple[str, ...] = ()
    config: Optional[str] = None
    overrides: tuple[str, ...] = ()
    directory: Optional[str] = None
    batch: Optional[int] = None
    compare_half: bool = False
    memory: bool = True
    refine: bool = False
    input_shape: Optional[tuple[int, ...]] = None


class _Looker:
    """Looks at the model that a script trains.

    Attributes:
        found: What it saw, as JSON values.
    """

    def __init__(self, request: Request, session: Any, strategy: Optional[str]) -> None:
        self.request = request
        self.session = session
        self.strategy = strategy
        self.found: dict[str, Any] = {}

    def look(self, model: Any, iterator: Any) -> None:
        """Called right before the first step."""
        from tfvolta.bridge import bridge_for
        from tfvolta.script.first_step import batch_of

        bridge = bridge_for(model)
        batch = self.request.batch or batch_of(model)
        if self.session.config.get("kernels.fused_batch_norm") == "auto":
            bridge.install_kernel(model, "fused_batch_norm")  # as on a GPU
        bridge.set_steps_per_execution(model, 1)  # one after the other, several take what one takes; none will run
        traced = bridge.step_for_batch(model, iterator, batch)
        layers = _layer_figures(bridge, model, traced)
        self.found = {**_about(bridge, model, traced), "tensor_cores": _tensor_cores(layers, traced.batch)}
        if self.request.memory:
            self.found["memory"] = self._memory(bridge, model, traced, layers)
            if self.request.compare_half:
                half = traced.batch // 2 or 2 * traced.batch
                other = bridge.step_for_batch(model, iterator, half)
                rows = _layer_figures(bridge, model, other)
                self.found["compared"] = self._memory(bridge, model, other, rows)
        if self.request.refine:
            self.found["refined"] = bridge.compiled_memory(model, iterator, traced.batch)
        for name in ("memory", "tensor_cores", "refined"):
            if name in self.found:
                self.session.measured(f"estimated_{name}", self.found[name])

    def _memory(self, bridge: Any, model: Any, traced: Any, layers: Any) -> dict[str, Any]:
        """The estimates with and without XLA."""
        from tfvolta.footprint.memory import estimate_memory
        from tfvolta.memory.workspace import limit_mb

        variables = bridge.variable_bytes(model)
        limit = limit_mb(self.session.config.get("cudnn.workspace_limit_mb"), os.environ) * 2**20
        both = {
            name: estimate_memory(
                traced.step, variables, layers, traced.batch, compiled, self.strategy, limit
            ).to_json()
            for name, compiled in (("plain", False), ("compiled", True))
        }
        return {**both, "planned": "compiled" if traced.step.compiled else "plain"}


def _layer_figures(bridge: Any, model: Any, traced: Any) -> Any:
    try:
        return bridge.layer_figures(model, traced.batch)
    except BridgeError:
        return bridge.layer_figures(model, traced.batch, traced.input_shapes)


def _about(bridge: Any, model: Any, traced: Any) -> dict[str, Any]:
    dtypes = sorted(set(bridge.compute_dtypes(model).values()))
    return {
        "model": model.name,
        "class": type(model).__name__,
        "stack": bridge.stack,
        "parameters": int(model.count_params()),
        "compute_dtypes": dtypes,
        "batch": traced.batch,
        "guessed": traced.guessed,
    }


def _tensor_cores(layers: Any, batch: int) -> dict[str, Any]:
    from tfvolta.footprint.tensor_cores import audit

    return audit(layers, batch).to_json()


def look_at_script(request: Request) -> dict[str, Any]:
    """Runs a script up to its first training step.

    Raises:
        TfvoltaError: The config or the script cannot be used, or ``fit`` was never reached.
    """
    from tfvolta.config import load_config
    from tfvolta.script.first_step import FirstStepRun, StoppedAtFit

    run = {"run": {"directory": request.directory}} if request.directory else {}
    config = load_config(request.config or "tfvolta:default", overrides=list(request.overrides), **run)
    strategy = config.get("strategy.kind")
    session = _session(_for_one_process(config), request)
    looker = _Looker(request, session, strategy)
    script = FirstStepRun(session, looker.look)
    status, error = "completed", None
    try:
        script.run(request.script, list(request.arguments))
    except StoppedAtFit:
        pass
    except BaseException as raised:
        status, error = "failed", raised
        raise
    finally:
        session.close(status, error)
    if not looker.found:
        raise _never_fitted(request.script)
    return {**looker.found, "evidence": session.recorder.path}


def _session(config: Any, request: Request) -> Any:
    """A session that keeps evidence where it can: in a folder that may not be written to an estimate is made without.

    Raises:
        EvidenceError: The folder was asked for, and cannot be written.
    """
    from tfvolta.session import Origin, Session

    origin = Origin(command=["tfvolta", "estimate"], script=request.script)
    try:
        return Session(config, origin=origin)
    except EvidenceError:
        if request.directory or any(each.startswith("run.directory=") for each in request.overrides):
            raise
        return Session(config, origin=dataclasses.replace(origin, record=False))


def _for_one_process(config: Any) -> Any:
    """The config for one process that only traces.

    It is not strict: what has no effect on a step that does not run is no error.
    """
    fields = type(config).model_fields
    update: dict[str, Any] = {name: None for name in _LEFT_OUT if name in fields}
    update["run"] = config.run.model_copy(update={"strict": False})
    return config.model_copy(update=update)


def look_at_model(request: Request) -> dict[str, Any]:
    """Loads a saved model and looks at its layers; nothing says how it is trained."""
    from tfvolta.bridge import bridge_for, bridge_for_stack, present_stack

    keras = bridge_for_stack(present_stack()).keras
    model = keras.models.load_model(request.script, compile=False)
    bridge = bridge_for(model)
    batch = request.batch or 8
    layers = bridge.layer_figures(model, batch, request.input_shape)
    about = {"model": model.name, "class": type(model).__name__, "stack": bridge.stack, "batch": batch}
    dtypes = sorted(set(bridge.compute_dtypes(model).values()))
    counted = {"parameters": int(model.count_params()), "compute_dtypes": dtypes, "guessed": False}
    return {**about, **counted, "tensor_cores": _tensor_cores(layers, batch)}


def _never_fitted(script: str) -> BridgeError:
    problem = Problem(
        where=script,
        expected="a script that calls model.fit",
        received="one that ended without it",
        why="what is trained is seen where it is about to be trained",
        fix="give the arguments with which it trains behind the script's name",
    )
    return BridgeError("There was no training to look at.", [problem])


def is_model(path: str) -> bool:
    """Whether a path is a saved model and not a script."""
    return path.endswith((".keras", ".h5", ".hdf5")) or pathlib.Path(path, "saved_model.pb").is_file()


def look(request: Request) -> dict[str, Any]:
    """What a script trains, or what a saved model is."""
    started = time.monotonic()
    found = look_at_model(request) if is_model(request.script) else look_at_script(request)
    return {**found, "seconds": round(time.monotonic() - started, 1)}


def _failure(error: TfvoltaError) -> Mapping[str, Any]:
    return {
        "summary": error.summary,
        "problems": [dataclasses.asdict(problem) for problem in error.problems],
        "exit_code": error.exit_code,
    }


def main(words: list[str]) -> int:
    """Answers a request; 0 where it could be, else the error's exit code."""
    asked = json.loads(pathlib.Path(words[0]).read_text(encoding="utf-8"))
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
    request = Request(**values)
    code = 0
    try:
        found: Mapping[str, Any] = look(request)
    except TfvoltaError as error:
        code, found = error.exit_code, {"error": _failure(error)}
    pathlib.Path(words[1]).write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
