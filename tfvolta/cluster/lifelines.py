"""Whether other processes of a cluster are alive, told by connections that their machine closes when they end.

A connection to a port on which a process listens breaks the moment that process is gone, however it ended, so nothing
has to be asked in intervals. One that breaks while the process lives (TensorFlow's server closes a connection that
never speaks) is simply made again.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from typing import Callable, Mapping, Optional

from tfvolta.cluster.address import host_of, port_of

CONNECT_SECONDS = 5.0
# A machine that vanishes closes nothing: the kernel asks after it and gives up within half a minute.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
_RETRY_SECONDS = 0.5
Listener = Callable[[str], None]


class Lifelines:
    """Connections to other processes, watched by one thread.

    Attributes:
        lost: Names of those that are gone at this moment, in the order in which they went.
    """

    def __init__(self, addresses: Mapping[str, str], on_lost: Listener, on_back: Optional[Listener] = None) -> None:
        """Prepares; ``connect`` and then ``watch`` start.

        Args:
            addresses: ``host:port`` by name, such as ``{"ps 0": "node1:12345"}``.
            on_lost: Called from the watching thread with a name when its process is gone.
            on_back: Likewise when a lost one answers again.
        """
        self._addresses = dict(addresses)
        self._on_lost = on_lost
        self._on_back = on_back
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakened = socket.socketpair()
        self._selector.register(self._wakened, selectors.EVENT_READ, "")
        self._connected: dict[str, socket.socket] = {}
        self._thread: Optional[threading.Thread] = None
        self.lost: dict[str, None] = {}

    def connect(self, seconds: float) -> list[str]:
        """Connects to all, trying again until a time is over.

        Returns:
            Names of those that did not answer; empty where all did.
        """
        until = time.monotonic() + seconds
        while True:
            for name in self._missing():
                self._try(name, max(0.1, min(CONNECT_SECONDS, until - time.monotonic())))
            if not self._missing() or time.monotonic() >= until:
                return self._missing()
            time.sleep(_RETRY_SECONDS)  # nothing tells when a port opens

    def watch(self) -> None:
        """Starts to watch what is connected."""
        self._thread = threading.Thread(target=self._run, name="tfvolta-lifelines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops watching; nothing is called any more once this returned."""
        self._waker.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        for connection in self._connected.values():
            connection.close()
        self._connected.clear()
        self._wakened.close()
        self._selector.close()

    def _missing(self) -> list[str]:
        return [name for name in self._addresses if name not in self._connected]

    def _try(self, name: str, seconds: float) -> bool:
        address = self._addresses[name]
        try:
            connection = socket.create_connection((host_of(address), port_of(address)), timeout=seconds)
        except OSError:
            return False
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        connection.setblocking(False)
        self._connected[name] = connection
        self._selector.register(connection, selectors.EVENT_READ, name)
        return True

    def _run(self) -> None:
        while True:
            ready = self._selector.select(_RETRY_SECONDS if self.lost else None)
            names = [key.data for key, _ in ready]
            if "" in names:
                return
            for name in names:
                self._read(name)
            for name in list(self.lost):
                if self._try(name, _RETRY_SECONDS):
                    del self.lost[name]
                    if self._on_back is not None:
                        self._on_back(name)

    def _read(self, name: str) -> None:
        """Takes what a process says, which is of no interest, or notes that its end of the connection is closed."""
        connection = self._connected[name]
        try:
            if connection.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(connection)
        connection.close()
        del self._connected[name]
        if not self._try(name, CONNECT_SECONDS):
            self.lost[name] = None
            self._on_lost(name)
