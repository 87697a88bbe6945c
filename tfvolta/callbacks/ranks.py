"""What the callbacks for several ranks share: who the others are, and one exchange with all of them."""

from __future__ import annotations

import json
from typing import Any, Optional

from tfvolta.peers import HorovodPeers, Peers, peers_of


def others_of(model: Any) -> Optional[Peers]:
    """The processes that train a model together with this one; None where it trains alone."""
    peers = peers_of(model)
    return peers if peers.size > 1 else None


def ranks_counted_apart(model: Any) -> int:
    """Processes that count only their own examples: Horovod's ranks. A strategy's metrics count all workers'."""
    peers = peers_of(model)
    return peers.size if isinstance(peers, HorovodPeers) else 1


def exchange(peers: Peers, value: Any) -> list[Any]:
    """JSON values of every rank, in the order of ranks; all ranks have to call it."""
    return [json.loads(data) for data in peers.gather_bytes(json.dumps(value).encode())]


def differing(values: list[Any]) -> bool:
    """Whether not all ranks gave the same."""
    return any(value != values[0] for value in values)
