"""Options of mailboxes are checked when they are made."""

from __future__ import annotations

import pytest

from actors import BatchOptions, MailboxOptions


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"count_max": 0}, "count_max is 0"),
        ({"bytes_max": 0, "size_of": len}, "bytes_max is 0"),
        ({"bytes_max": 1}, "only together"),
        ({"size_of": len}, "only together"),
        ({"linger_seconds": -1}, "linger_seconds is -1"),
        ({"linger_seconds": float("nan")}, "linger_seconds is nan"),
        ({"linger_seconds": float("inf")}, "linger_seconds is inf"),
    ],
)
def test_a_batch_option_without_sense_is_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BatchOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"size_max": 0}, "size_max is 0"), ({"overflow": "spill"}, "overflow is 'spill'")],
)
def test_a_mailbox_option_without_sense_is_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MailboxOptions(**options)  # type: ignore[arg-type]
