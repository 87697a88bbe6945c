"""Batch logs of Keras 2 that become numbers only when a callback looks at them."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Optional


class LazyLogs(dict):  # type: ignore[type-arg]
    """A dict of logs whose values stay tensors until something is read; reading one converts all, in one wait.

    A real ``dict``, because callbacks check for one. What a callback writes also goes to ``shared``, so that callbacks
    after it see it.
    """

    def __init__(self, tensors: Any = (), convert: Optional[Callable[[Any], Any]] = None, shared: Any = None) -> None:
        super().__init__(tensors)
        self._convert = convert
        self._shared = shared

    def _load(self) -> None:
        convert, self._convert = self._convert, None
        if convert is not None:
            super().update(convert(dict(super().items())))

    def __getitem__(self, key: Any) -> Any:
        self._load()
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:  # also keeps dict(logs) and {**logs} from reading past __getitem__
        return super().__iter__()

    def get(self, key: Any, default: Any = None) -> Any:
        self._load()
        return super().get(key, default)

    def items(self) -> Any:
        self._load()
        return super().items()

    def values(self) -> Any:
        self._load()
        return super().values()

    def copy(self) -> dict[Any, Any]:
        self._load()
        return dict(super().items())

    def __eq__(self, other: object) -> bool:
        self._load()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        self._load()
        return super().__repr__()

    def __or__(self, other: Any) -> dict[Any, Any]:
        return {**self.copy(), **other}

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._load()
        super().__setitem__(key, value)
        if self._shared is not None:
            self._shared[key] = value

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def pop(self, key: Any, *default: Any) -> Any:
        self._load()
        if self._shared is not None:
            self._shared.pop(key, None)
        return super().pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        key = next(reversed(list(self)))
        return key, self.pop(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        additions: Mapping[Any, Any] = dict(*args, **kwargs)
        for key, value in additions.items():
            self[key] = value

    def clear(self) -> None:
        for key in list(self):
            self.pop(key)
