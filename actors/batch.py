"""Batches and replies: what a handler gets at once, and how whoever asked hears of it.

A mailbox holds told messages as they are, and asked ones inside an `Asked` that carries the
asker's future. Nothing here waits.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Literal, TypeVar, cast, overload

M = TypeVar("M")

ClosedBy = Literal["full", "bytes", "time", "drain"]
"""What closed a batch: its count, its bytes, the time it lingered, or that no more was waiting."""


class Asked:
    """An asked message as it lies in a mailbox, with the future that its asker waits for."""

    __slots__ = ("future", "message")

    def __init__(self, message: object, future: Future[object]) -> None:
        self.message = message
        self.future = future


class Reply:
    """The answer to one message, or to all asked messages of a batch; the first one counts.

    An asker that has left, and a message that was told, need no answer: then nothing happens.
    """

    __slots__ = ("futures",)

    def __init__(self, futures: Sequence[Future[object]] = ()) -> None:
        self.futures = futures

    def resolve(self, value: object) -> None:
        """Answer with a value."""
        for future in self.futures:
            if not future.done():
                future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, which is raised to the asker."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class Batch(Sequence[M], Generic[M]):
    """Messages in the order in which they were sent, and what closed the batch.

    Made from what a mailbox holds: each letter is a message, or an `Asked` with one inside.
    """

    __slots__ = ("_messages", "asked", "closed_by")

    def __init__(self, letters: Iterable[object], closed_by: ClosedBy) -> None:
        messages = list(letters)
        self.asked: dict[int, Future[object]] = {}
        for index, letter in enumerate(messages):
            if type(letter) is Asked:
                messages[index] = letter.message
                self.asked[index] = letter.future
        self._messages = cast("list[M]", messages)
        self.closed_by: ClosedBy = closed_by

    def reply(self, index: int, value: object) -> None:
        """Answer the asker of the message at `index`; nothing happens if it was told."""
        future = self.asked.get(index)
        if future is not None and not future.done():
            future.set_result(value)

    def fail(self, error: BaseException) -> int:
        """Give every asker without an answer this error; returns how many messages were told.

        Those are the ones that nobody hears of in any other way.
        """
        Reply(tuple(self.asked.values())).fail(error)
        return len(self._messages) - len(self.asked)

    def letters(self) -> list[object]:
        """What the batch was made from."""
        return [
            Asked(message, self.asked[index]) if index in self.asked else message
            for index, message in enumerate(self._messages)
        ]

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[M]: ...
    def __getitem__(self, index: int | slice) -> M | Sequence[M]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[M]:
        return iter(self._messages)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} closed by {self.closed_by}>"
