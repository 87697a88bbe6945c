"""NCCL's environment: algorithm, protocol, network interface and log level."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence

from tfvolta.errors import Problem
from tfvolta.knobs.base import Forecast
from tfvolta.knobs.environment import EnvironmentKnob
from tfvolta.outcome import Status
from tfvolta.phase import Moment

_VARIABLES = {
    "algorithm": "NCCL_ALGO",
    "protocol": "NCCL_PROTO",
    "socket_interface": "NCCL_SOCKET_IFNAME",
    "debug": "NCCL_DEBUG",
}
_INTERFACES = "/sys/class/net"
_SEVERAL_PROCESSES = ("multi_worker_mirrored", "horovod", "parameter_server")
_WITHOUT_NCCL = ("ring", "hierarchical_copy", "reduction_to_one_device")


def interfaces() -> list[str]:
    """Network interfaces of this host; empty where the kernel does not list them."""
    try:
        return sorted(os.listdir(_INTERFACES))
    except OSError:
        return []


def matching_interfaces(pattern: str, names: Sequence[str]) -> list[str]:
    """Interfaces that NCCL would use for a value of ``NCCL_SOCKET_IFNAME``.

    Args:
        pattern: Comma-separated prefixes; a leading ``^`` excludes instead, ``=`` asks for whole names, ``^=`` both.
        names: Interfaces of the host.

    Source: NCCL user guide, environment variables, NCCL_SOCKET_IFNAME.
    """
    exclude = pattern.startswith("^")
    rest = pattern[1:] if exclude else pattern
    exact = rest.startswith("=")
    wanted = [item.split(":")[0].strip() for item in (rest[1:] if exact else rest).split(",") if item.strip()]

    def hit(name: str) -> bool:
        return any(name == item if exact else name.startswith(item) for item in wanted)

    return [name for name in names if hit(name) != exclude]


def interface_problem(pattern: str, names: Sequence[str]) -> Optional[Problem]:
    """Why no interface of this host answers to the pattern, or None where one does or the host lists none."""
    if not names or matching_interfaces(pattern, names):
        return None
    return Problem(
        where="nccl.socket_interface",
        expected=f"a pattern that leaves an interface of this host: {', '.join(names)}",
        received=pattern,
        why=(
            "NCCL takes prefixes ('eth' is eth0 and eth1); '^' in front excludes and '=' asks for whole names. With"
            " none left it stops with a system error."
        ),
        fix=f"nccl.socket_interface: {next((name for name in names if name != 'lo'), names[0])}",
    )


class Nccl(EnvironmentKnob):
    """Tells NCCL which algorithm, protocol and network interface to use, and how much to log.

    Binds: at the first NCCL call in the process, which is in the first train step that reduces over GPUs.
    """

    name = "nccl"
    keys = ("nccl.algorithm", "nccl.protocol", "nccl.socket_interface", "nccl.debug")
    closes_at = Moment.COLLECTIVE_EXECUTED
    move_to = "set the NCCL_ variables (or build the strategy from the config) before the first train step"
    techniques = ("C5", "C10")
    condition = "a collective goes through NCCL"
    unverifiable = (
        "NCCL reads its environment once and has no call that returns it; nccl.debug: INFO makes it print what it took."
    )

    def value(self, config: Any) -> Optional[Any]:
        found = {key.split(".")[1]: config.get(key) for key in self.keys}
        return {key: text for key, text in found.items() if text is not None} or None

    def variables(self, value: Any) -> dict[str, str]:
        return {_VARIABLES[key]: text for key, text in value.items()}

    def problems(self, value: Any, facts: Any, environ: Mapping[str, str]) -> list[Problem]:
        del environ
        found: list[Problem] = []
        # Recorded facts describe another host, whose interfaces are not known here.
        if "socket_interface" in value and facts.source == "live":
            problem = interface_problem(value["socket_interface"], interfaces())
            found += [problem] if problem else []
        if str(value.get("algorithm", "")).startswith("NVLS"):
            old = [gpu for gpu in facts.gpus if gpu.compute_capability < (9, 0)]
            found += [_needs_hopper(value["algorithm"], old[0])] if old else []
        return found

    def forecast(self, value: Any, facts: Any, config: Any) -> Forecast:
        forecast = super().forecast(value, facts, config)
        if forecast.status is Status.NOT_APPLICABLE:
            return forecast
        kind = config.get("strategy.kind") or "default"
        if kind not in _SEVERAL_PROCESSES and (len(facts.gpus) < 2 or kind in ("default", "one_device")):
            return Forecast(
                Status.NO_EFFECT,
                "One GPU in one process trains here, so no collective runs and NCCL is not started.",
                self.condition,
            )
        implementation = config.get("communication.implementation")
        if implementation in _WITHOUT_NCCL:
            return Forecast(
                Status.NO_EFFECT, f"communication.implementation: {implementation} does not use NCCL.", self.condition
            )
        return forecast

    def explain(self, value: Any, facts: Any, config: Any) -> str:
        notes = [super().explain(value, facts, config) + "."]
        if value.get("algorithm") == "Tree":
            notes.append(
                "Tree serves all-reduce; an older NCCL that is asked for another collective stops instead of falling"
                " back."
            )
        if value.get("protocol") == "LL128":
            notes.append(
                "LL128 is safe only where NCCL itself offers it (NVLink on Volta and later); forced elsewhere it can"
                " corrupt data."
            )
        return " ".join(notes)


def _needs_hopper(algorithm: str, gpu: Any) -> Problem:
    major, minor = gpu.compute_capability
    return Problem(
        where="nccl.algorithm",
        expected="Ring or Tree on this machine",
        received=algorithm,
        why=f"NVLink SHARP exists from compute capability 9.0 on; GPU {gpu.index} ({gpu.name}) has {major}.{minor}.",
        fix="leave nccl.algorithm out and let NCCL choose",
    )
