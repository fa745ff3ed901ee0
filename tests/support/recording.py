"""A `Files` that writes down every call and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from store.files import Files
from tests.support.wrapping import WrappedFiles

T = TypeVar("T")


class Call(NamedTuple):
    """One call. `error` is the errno if it raised OSError, and then `result` is None."""

    name: str
    args: tuple[object, ...]
    result: object
    error: int | None


class RecordingFiles(WrappedFiles):
    """Passes everything on to `inner` and keeps it in `calls`, in order.

    An exception other than OSError goes through and leaves no record: it is not the disk's.
    """

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []

    def names(self) -> list[str]:
        """The names of the calls so far, for asserting an order."""
        return [call.name for call in self.calls]

    def _around(self, name: str, args: tuple[object, ...], call: Callable[[], T]) -> T:
        try:
            result = call()
        except OSError as error:
            self.calls.append(Call(name, args, None, error.errno))
            raise
        self.calls.append(Call(name, args, result, None))
        return result
