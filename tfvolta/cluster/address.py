"""Addresses of the form ``host:port``."""

from __future__ import annotations

import re
from typing import Union

from tfvolta.errors import Problem

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "ip6-localhost"})
_UNSPECIFIED = frozenset({"0.0.0.0", "::", "0"})
_HOST = re.compile(r"^(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?)$")


def host_of(address: str) -> str:
    """The host of an address, without the brackets of IPv6."""
    return address.rsplit(":", 1)[0].strip("[]")


def port_of(address: str) -> int:
    """The port of a checked address."""
    return int(address.rsplit(":", 1)[1])


def join(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host means this machine alone."""
    return host.lower() in LOOPBACK or re.fullmatch(r"127(?:\.\d{1,3}){3}", host) is not None


def same_place(address: str) -> tuple[str, int]:
    """Host and port of a checked address, equal for two spellings that mean the same socket."""
    host = host_of(address).lower().rstrip(".")
    return ("localhost" if is_loopback(host) else host), port_of(address)


def checked_address(where: str, text: object) -> Union[str, Problem]:
    """An address as it was given, or what is wrong with it.

    Args:
        where: Place of the address, such as ``environment: TF_CONFIG: cluster.worker[1]``.
        text: What stands there.
    """
    expected = "an address of the form host:port, such as node1:12345"
    if not isinstance(text, str) or not text.strip():
        return Problem(where, expected, repr(text), fix='write "host:port"')
    if "://" in text:
        bare = text.split("://", 1)[1].rstrip("/")
        return Problem(where, expected, text, why="TensorFlow takes no scheme before a host", fix=f'write "{bare}"')
    host, colon, port = text.rpartition(":")
    # A bare IPv6 address has colons and no port.
    if not colon or (":" in host and not host.startswith("[")):
        return Problem(where, expected, text, why="workers find each other by host and port", fix=_with_port(text))
    if not _HOST.match(host):
        return Problem(where, expected, text, why=f"{host!r} is no host name", fix='write "host:port", without spaces')
    if host.strip("[]") in _UNSPECIFIED:
        why = f"{host} means every address of a machine: one can listen there, and nobody can connect to it"
        return Problem(where, "a host that the other workers can reach", text, why, f'write "node1:{port}"')
    if not re.fullmatch(r"[0-9]+", port):
        return Problem(where, "a port number after the colon", text, f"{port!r} is no number", f'write "{host}:12345"')
    if not 1 <= int(port) <= 65535:
        why = f"{port} is no port" if int(port) else "port 0 means any port, which the others cannot know"
        return Problem(where, "a port from 1 to 65535", text, why=why, fix=f'write "{host}:12345"')
    return text


def _with_port(text: str) -> str:
    host = text if not text.count(":") or text.startswith("[") else f"[{text}]"
    return f'write "{host.rstrip(":")}:12345"'
