"""sends_end: how far what was read can be gathered."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.integration.kernel.twins import binary_send, frame, send

LIMIT = 10_000
SENDS = (
    frame(send()),
    frame(send(code=320)),
    frame(binary_send(), serialize_type=1),
    frame(binary_send(code=320), serialize_type=1),
)
SIX_SENDS = b"".join(SENDS) + SENDS[0] + SENDS[2]
OTHERS = (
    frame(send(code=11)),
    frame(send(code=3100)),
    frame(b" " + send()),
    frame(binary_send(code=11), serialize_type=1),
    frame(send(), serialize_type=1),
    frame(binary_send()),
    frame(send(), serialize_type=2),
    frame(b"", serialize_type=1),
    frame(send(), bytes(LIMIT)),
    b"\0\0\0\x03\0\0\0\0",
    b"\xff" * 8,
)


def test_whole_sends_are_found(kernel: ModuleType) -> None:
    assert kernel.sends_end(SIX_SENDS, 0, LIMIT) == len(SIX_SENDS)
    assert kernel.sends_end(b"", 0, LIMIT) == 0


@pytest.mark.parametrize("cut", [1, 4, 7, 8, 30, len(SENDS[0]) - 1])
def test_a_send_that_is_not_whole_is_left(kernel: ModuleType, cut: int) -> None:
    assert kernel.sends_end(SIX_SENDS + SENDS[0][:cut], 0, LIMIT) == len(SIX_SENDS)


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_send_ends_them(kernel: ModuleType, other: bytes) -> None:
    assert kernel.sends_end(SIX_SENDS + other + SENDS[0], 0, LIMIT) == len(SIX_SENDS)


def test_it_begins_where_configured(kernel: ModuleType) -> None:
    data = OTHERS[0] + SENDS[0]
    assert kernel.sends_end(data, len(OTHERS[0]), LIMIT) == len(data)
    assert kernel.sends_end(data, 3, LIMIT) == 3
    assert kernel.sends_end(data, len(data), LIMIT) == len(data)


def test_a_frame_may_be_as_large_as_the_limit(kernel: ModuleType) -> None:
    size = len(SENDS[0])
    assert kernel.sends_end(SENDS[0], 0, size) == size
    assert kernel.sends_end(SENDS[0], 0, size - 1) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        ((bytearray(8), 0, LIMIT), TypeError),
        ((b"", "0", LIMIT), TypeError),
        ((b"", 0), TypeError),
        ((b"", 1, LIMIT), ValueError),
        ((b"", -1, LIMIT), ValueError),
        ((b"", 1 << 70, LIMIT), OverflowError),
    ],
)
def test_what_it_cannot_be_asked(
    kernel: ModuleType, arguments: tuple[object, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        kernel.sends_end(*arguments)
