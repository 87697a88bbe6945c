"""Saving the state of a training, and going on from it.

A checkpoint is a folder: TensorFlow's own checkpoint files, and ``manifest.json``, which says where in the data the
training was. The folder gets its name when everything in it is on the disk. Dependencies point one way inside the
package: manifest, randomness, disk → store → state → agreement, preemption.
"""

from __future__ import annotations
