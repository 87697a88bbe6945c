"""Which processes train together: read from the environment of a launcher, checked, explained, without TensorFlow.

``resolve`` is the one way in. Dependencies point one way inside the package too:
address, cluster, finding → the resolvers, one file each → resolution → checks → preflight.
"""

from __future__ import annotations

from tfvolta.cluster.cluster import Cluster
from tfvolta.cluster.resolution import resolve

__all__ = ["Cluster", "resolve"]
