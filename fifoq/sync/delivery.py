"""Leased records for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, TypeVar

from fifoq import delivery as _delivery
from fifoq.loopthread import LoopThread

T = TypeVar("T")


class Delivery(Generic[T]):
    """A leased record. `ack` it when it is done, `nack` it to give it back, or use `with`."""

    def __init__(
        self, thread: LoopThread, leasing: _delivery.Leasing[T], delivery: _delivery.Delivery[T]
    ) -> None:
        self.item, self.key, self.attempt = delivery.item, delivery.key, delivery.attempt
        self._thread = thread
        self._leasing = leasing
        self._delivery = delivery

    def __repr__(self) -> str:
        return f"<sync.{repr(self._delivery)[1:]}"

    @property
    def headers(self) -> dict[str, str]:
        return self._delivery.headers

    @property
    def state(self) -> str:
        """leased, acked, nacked, expired or removed."""
        return self._delivery.state

    def ack(self) -> bool:
        """The record is done for good, committed on return. False if it was acked before.

        StaleLease if the lease has ended: nothing was changed.
        """
        return self._thread.run(self._delivery.ack)

    def nack(self, *, delay: float | None = None) -> None:
        """Give the record back to its place, for another attempt. StaleLease as for `ack`.

        It waits there for `delay` seconds, or as long as the queue's `retry_backoff` says.
        """
        self._thread.call(lambda: self._delivery.nack(delay=delay))

    def reject(self, reason: str = "", *, error: BaseException | None = None) -> None:
        """The record goes to the dead letters of its queue, committed on return."""
        self._thread.run(lambda: self._delivery.reject(reason, error=error))

    def extend(self, seconds: float) -> None:
        """Let the lease end `seconds` from now. StaleLease if it has ended."""
        self._thread.call(lambda: self._delivery.extend(seconds))

    def __enter__(self) -> Delivery[T]:
        self._thread.call(self._leasing.keep)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(lambda: self._leasing.__aexit__(kind, error, traceback))


async def give_back(delivery: _delivery.Delivery[Any]) -> None:
    delivery.nack(delay=0)


async def give_all_back(deliveries: list[_delivery.Delivery[Any]]) -> None:
    for delivery in deliveries:
        delivery.nack(delay=0)
