"""What a frame server allows: frozen, with defaults, every wrong setting named at once."""

from __future__ import annotations

import msgspec

from fifoq.server.protocol import REQUEST_BYTES_MAX
from store.frames import BODY_BYTES_MAX
from store.options import refuse, wrong_number


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a server lets its clients have. ValueError names every wrong setting.

    `page_bytes` is what the server reads ahead for one connection: a page is sent whole before
    the next one is read. One block that is larger is a page of its own. `answer_bytes` ends an
    answer, and the client asks for the rest.
    """

    connections: int = 64
    request_bytes: int = REQUEST_BYTES_MAX
    page_bytes: int = 1 << 20
    answer_bytes: int = 256 << 20
    greeting_seconds: float = 5.0
    request_seconds: float = 10.0
    idle_seconds: float = 300.0
    send_seconds: float = 60.0

    def __post_init__(self) -> None:
        refuse(
            wrong_number("connections", self.connections, 1),
            wrong_number("request_bytes", self.request_bytes, 256),
            _most("request_bytes", self.request_bytes, REQUEST_BYTES_MAX),
            wrong_number("page_bytes", self.page_bytes, 1),
            _most("page_bytes", self.page_bytes, BODY_BYTES_MAX),
            wrong_number("answer_bytes", self.answer_bytes, 1),
            wrong_number("greeting_seconds", self.greeting_seconds, 0.001, whole=False),
            wrong_number("request_seconds", self.request_seconds, 0.001, whole=False),
            wrong_number("idle_seconds", self.idle_seconds, 0.001, whole=False),
            wrong_number("send_seconds", self.send_seconds, 0.001, whole=False),
        )


def _most(name: str, value: object, most: int) -> str | None:
    over = isinstance(value, int) and value > most
    return f"{name}={value} is over {most}" if over else None
