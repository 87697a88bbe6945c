"""The installed Horovod: its version and which TensorFlow it was compiled against, from its files; never imported."""

from __future__ import annotations

import json
from typing import Mapping, Optional, Sequence

from tfvolta.errors import Problem
from tfvolta.facts.schema import Facts, HorovodBuild
from tfvolta.facts.wheel import find_package

_METADATA = "metadata.json"
_LIBRARY = "tensorflow/mpi_lib*.so"
# Horovod 0.28.1 is its last release; these were built and trained with. Source: docs/dependencies.md.
KNOWN = "TensorFlow 2.15 with Keras 2, and TensorFlow 2.21 with tf_keras or Keras 3"
INSTALL = (
    "with TensorFlow installed first: HOROVOD_WITH_TENSORFLOW=1 pip install --no-build-isolation --no-cache-dir"
    " horovod==0.28.1 (TensorFlow 2.19 and later need one line of its sources out, see docs/dependencies.md)"
)


def read_horovod(
    packages: Mapping[str, str], notes: list[str], path: Optional[Sequence[str]] = None
) -> Optional[HorovodBuild]:
    """Version and build of the installed Horovod; None where there is none.

    Args:
        packages: Installed versions, from ``read_packages``.
        notes: Receives what could not be read, and why.
        path: Folders to look in, instead of ``sys.path``.

    Source: ``horovod/metadata.json``, which Horovod's CMake files write and ``check_installed_version`` reads.
    """
    folder = find_package("horovod", path)
    if folder is None:
        return None
    tensorflow: Optional[str] = None
    try:
        tensorflow = json.loads((folder / _METADATA).read_text(encoding="utf-8")).get("tensorflow")
    except (OSError, ValueError, AttributeError) as error:
        notes.append(f"Horovod: {folder / _METADATA} cannot be read ({type(error).__name__})")
    return HorovodBuild(
        version=packages.get("horovod", ""),
        tensorflow=tensorflow,
        has_library=any(folder.glob(_LIBRARY)),
    )


def fault(facts: Facts) -> Optional[Problem]:
    """Why this machine's Python cannot train with Horovod, as far as files tell; None where nothing speaks against it.

    Args:
        facts: Of this machine, live; a recording does not say that Horovod is absent.
    """
    build, where = facts.horovod, "Horovod"
    if build is None:
        received, why = "it is not installed", f"it is compiled against TensorFlow; known to work: {KNOWN}"
    elif not build.has_library:
        received = f"horovod {build.version} without its TensorFlow part"
        why = "it was built where no TensorFlow was to be seen, which pip's build isolation brings about"
    elif facts.tensorflow is not None and build.tensorflow not in (None, facts.tensorflow.version):
        received = f"horovod {build.version} compiled against TensorFlow {build.tensorflow}"
        why = f"TensorFlow {facts.tensorflow.version} is installed, whose library has other symbols"
    else:
        return None
    return Problem(where, "a Horovod that was compiled against the TensorFlow installed", received, why, INSTALL)
