"""The property of idempotent producers."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.producer_sequence import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    ProducerForgotten,
    ProducerOpening,
    check_producer_name,
    format_forgotten,
    format_opening,
    format_sequence,
    parse_property,
    parse_sequence,
)


def test_a_sequence_is_read_as_it_was_written() -> None:
    read = parse_sequence(format_sequence("0123456789abcdef:0", MAX_SEQUENCE))
    assert (read.producer_id, read.epoch, read.sequence) == ("0123456789abcdef", 0, MAX_SEQUENCE)


@pytest.mark.parametrize("nonce", [None, "0123456789abcdef"])
@pytest.mark.parametrize("allows_gaps", [False, True])
def test_an_opening_is_no_sequence(allows_gaps: bool, nonce: str | None) -> None:
    opening = ProducerOpening("@loader-7", 3, allows_gaps, nonce)
    assert parse_property(format_opening(opening)) == opening
    with pytest.raises(ProtocolError):
        parse_sequence(format_opening(opening))


def test_a_record_that_a_producer_is_forgotten_is_no_sequence() -> None:
    forgotten = ProducerForgotten("@loader-7", 3)
    assert parse_property(format_forgotten(forgotten)) == forgotten
    with pytest.raises(ProtocolError):
        parse_sequence(format_forgotten(forgotten))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "@a:0",
        "a:0:1",
        "@a:0:-1",
        "@a:0:01",
        "@a:00:1",
        f"@a:0:{MAX_SEQUENCE + 1}",
        f"@a:{MAX_EPOCH + 1}:1",
        "@a:0:٣",
        "@:0:1",
        "@" + "n" * 65 + ":0:1",
        "@a b:0:1",
        "@a:0:1:2",
    ],
)
def test_what_is_malformed_is_refused(value: str) -> None:
    with pytest.raises(ProtocolError, match="__KOUROU_SEQ"):
        parse_sequence(value)


@pytest.mark.parametrize("name", ["", "a:b", "a b", "ä", "n" * 65, "a\n"])
def test_names_that_no_producer_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="producer name"):
        check_producer_name(name)


def test_a_name_of_full_length() -> None:
    check_producer_name("n" * 64)
