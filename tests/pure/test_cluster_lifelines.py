"""Whether another process is alive, told by its connection."""

from __future__ import annotations

import queue
import socket
import threading
from typing import Iterator

import pytest

from tfvolta.cluster.lifelines import Lifelines

SECONDS = 30.0


class Events:
    """What the watching thread says."""

    def __init__(self) -> None:
        self.said: queue.Queue[tuple[str, str]] = queue.Queue()

    def lost(self, name: str) -> None:
        self.said.put(("lost", name))

    def back(self, name: str) -> None:
        self.said.put(("back", name))

    def next(self) -> tuple[str, str]:
        return self.said.get(timeout=SECONDS)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SECONDS)
        yield listening


def address(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_process_that_ends_is_noticed_and_seen_again(events: Events, server: socket.socket) -> None:
    lines = Lifelines({"ps 0": address(server)}, events.lost, events.back)
    try:
        assert lines.connect(SECONDS) == []
        lines.watch()
        connection, _ = server.accept()
        place = server.getsockname()
        server.close()
        connection.close()
        assert events.next() == ("lost", "ps 0")
        assert list(lines.lost) == ["ps 0"]
        with socket.create_server(place) as again:
            assert events.next() == ("back", "ps 0")
            assert not lines.lost
            again.settimeout(SECONDS)
            again.accept()[0].close()
    finally:
        lines.close()


def test_a_connection_that_breaks_is_made_again_while_the_process_lives(events: Events, server: socket.socket) -> None:
    lines = Lifelines({"chief": address(server)}, events.lost)
    try:
        assert lines.connect(SECONDS) == []
        lines.watch()
        for _ in range(3):
            connection, _ = server.accept()
            connection.sendall(b"what a server says by itself")
            connection.close()
        connection, _ = server.accept()
        assert events.said.empty()
        connection.close()
    finally:
        lines.close()


def test_several_are_watched_apart(events: Events, server: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        lines = Lifelines({"worker 0": address(server), "worker 1": address(other)}, events.lost)
        try:
            assert lines.connect(SECONDS) == []
            lines.watch()
            server.accept()
            accepted, _ = other.accept()
            other.close()
            accepted.close()
            assert events.next() == ("lost", "worker 1")
            assert events.said.empty()
        finally:
            lines.close()


def test_who_does_not_answer_is_named(events: Events, server: socket.socket) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        lines = Lifelines({"worker 0": address(server), "ps 1": address(silent)}, events.lost)
        assert lines.connect(0.1) == ["ps 1"]
        lines.close()
    assert events.said.empty()


def test_one_that_comes_late_is_waited_for(events: Events) -> None:
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        lines = Lifelines({"chief": address(late)}, events.lost)
        waiting = threading.Thread(target=lambda: events.said.put(("missing", str(lines.connect(SECONDS)))))
        waiting.start()
        late.listen()
        assert events.next() == ("missing", "[]")
        waiting.join()
        lines.close()
