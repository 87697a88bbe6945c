"""The installed TensorFlow: its version and what it was compiled for, from its files. It is never imported.

Importing TensorFlow to ask it would start it, and close the phases that facts are collected for.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import pathlib
import re
from typing import Any, Mapping, Optional, Sequence

from tfvolta.facts.packages import TENSORFLOW_DISTRIBUTIONS
from tfvolta.facts.schema import TensorFlowBuild

_BUILD_INFO = "python/platform/build_info.py"
_VERSION_HEADERS = ("release_version.h", "version.h")


def find_package(name: str, path: Optional[Sequence[str]] = None) -> Optional[pathlib.Path]:
    """Folder of the package that an import of a top-level name would take, or None; nothing of it is run.

    Args:
        name: Such as ``tensorflow``.
        path: Folders to look in, instead of ``sys.path``.
    """
    try:
        if path is None:
            # The spec of a top-level name is found without running the package.
            spec = importlib.util.find_spec(name)
        else:
            spec = importlib.machinery.PathFinder.find_spec(name, list(path))
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(next(iter(spec.submodule_search_locations)))


def read_tensorflow(
    packages: Mapping[str, str], notes: list[str], path: Optional[Sequence[str]] = None
) -> Optional[TensorFlowBuild]:
    """Version and build of the installed TensorFlow, or None with a note.

    Args:
        packages: Installed versions, from ``read_packages``.
        notes: Receives what could not be read, and why.
        path: Folders to look in, instead of ``sys.path``.

    Source: the generated file ``tensorflow/python/platform/build_info.py`` of the wheel.
    """
    folder = find_package("tensorflow", path)
    if folder is None:
        notes.append("TensorFlow: no package named tensorflow in this Python environment")
        return None
    version = next((packages[name] for name in TENSORFLOW_DISTRIBUTIONS if name in packages), None)
    version = version or _header_version(folder)
    if version is None:
        notes.append(f"TensorFlow: {folder} has neither package metadata nor a version header")
        return None
    build = _build_info(folder / _BUILD_INFO, notes)
    return TensorFlowBuild(
        version=version,
        compute_capabilities=tuple(str(target) for target in build.get("cuda_compute_capabilities") or ()),
        cuda_version=_word(build.get("cuda_version")),
        cudnn_version=_word(build.get("cudnn_version")),
    )


def parse_build_info(source: str) -> dict[str, Any]:
    """The dictionary in the text of a ``build_info.py``; literals only, nothing is run.

    Raises:
        ValueError: The text holds no ``build_info`` made of literals.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"not Python: {error}") from error
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "build_info" for target in targets):
            assert isinstance(node, ast.Assign)
            value = node.value
            # collections.OrderedDict([(key, value), ...]) in most releases, a plain dict in some builds.
            if isinstance(value, ast.Call) and value.args:
                value = value.args[0]
            return {str(key): item for key, item in dict(ast.literal_eval(value)).items()}
    raise ValueError("no build_info in it")


def _build_info(file: pathlib.Path, notes: list[str]) -> dict[str, Any]:
    try:
        return parse_build_info(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        notes.append(f"TensorFlow build: {file} cannot be read ({error.strerror})")
    except (ValueError, TypeError) as error:
        notes.append(f"TensorFlow build: {file} is not as expected ({error})")
    return {}


def _word(value: Any) -> Optional[str]:
    return str(value) if value not in (None, "") else None


def _header_version(folder: pathlib.Path) -> Optional[str]:
    for name in _VERSION_HEADERS:
        try:
            text = (folder / "include/tensorflow/core/public" / name).read_text(encoding="utf-8")
        except OSError:
            continue
        parts = dict(re.findall(r"#define TF_(MAJOR|MINOR|PATCH)_VERSION (\d+)", text))
        if len(parts) == 3:
            return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    return None
