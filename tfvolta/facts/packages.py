"""Versions of the installed packages that decide how training behaves, from their metadata; nothing is imported."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from typing import Optional, Sequence

# TensorFlow is published under several names; the first that is installed is taken. NVIDIA's containers install a
# build of their own under the plain name, with a version such as 2.17.0+nv25.2.
TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "nvidia-tensorflow",
    "tensorflow-rocm",
    "tensorflow-intel",
    "intel-tensorflow",
    "tensorflow-cpu-aws",
    "tensorflow-macos",
    "tf-nightly",
    "tf-nightly-cpu",
)
_WANTED = {
    *TENSORFLOW_DISTRIBUTIONS,
    "keras",
    "keras-nightly",
    "tf-keras",
    "tf-keras-nightly",
    "horovod",
    "tensorflow-addons",
    "tensorflow-probability",
    "numpy",
    "pydantic",
    "ml-dtypes",
    "tensorrt",
}
# The one name that its publishers write with an underscore, and that people look for so.
_SPELLED = {"tf-keras": "tf_keras"}


def read_packages(path: Optional[Sequence[str]], notes: list[str]) -> dict[str, str]:
    """Versions by distribution name, in lower case with hyphens (``tf_keras`` keeps its underscore).

    Args:
        path: Folders to look in, instead of ``sys.path``.
        notes: Receives one sentence for each distribution whose metadata cannot be read.
    """
    folders = list(sys.path if path is None else path)
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=folders):
        name = _name(distribution)
        if name not in _WANTED and not name.startswith("nvidia-"):
            continue
        try:
            version = distribution.version
        except Exception as error:  # damaged metadata raises what its parser happens to raise
            notes.append(f"package {name}: metadata cannot be read ({type(error).__name__}: {error})")
            continue
        if version:
            # The first on the path is the one that an import finds.
            versions.setdefault(_SPELLED.get(name, name), version)
    return dict(sorted(versions.items()))


def _name(distribution: importlib.metadata.Distribution) -> str:
    """The canonical name, from the folder's name where there is one: reading every METADATA file takes long."""
    folder = getattr(distribution, "_path", None)
    match = re.match(r"(.+?)-[0-9][^-]*\.(?:dist-info|egg-info)$", getattr(folder, "name", ""))
    if match is None:
        try:
            name = distribution.metadata["Name"] or ""
        except Exception:  # no metadata at all
            return ""
    else:
        name = match.group(1)
    return re.sub(r"[-_.]+", "-", name).lower()
