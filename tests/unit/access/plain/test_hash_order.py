"""The order of Java's HashMap. The first cases are from the refusals recorded from RocketMQ 4.9.7."""

from __future__ import annotations

import pytest

from kourou.access.plain.hash_order import in_hash_order


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        (["Orders", "%RETRY%Workers"], "Orders"),
        (["Sends", "%RETRY%Workers"], "Sends"),
        (["Orders", "%RETRY%Strangers"], "Orders"),
        (["Other", "%RETRY%Workers"], "%RETRY%Workers"),
    ],
)
def test_recorded_order(keys: list[str], first: str) -> None:
    assert in_hash_order(keys)[0] == first


def test_equal_hashes_stay_in_the_order_of_insertion() -> None:
    assert in_hash_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert in_hash_order(["Aa", "BB"]) == ["Aa", "BB"]


def test_a_map_that_has_grown() -> None:
    # Single characters have their own code as hash: in 32 places they are in its order.
    few = [chr(code) for code in (0x50, 0x41)]
    assert in_hash_order(few) == ["P", "A"]
    many = [chr(code) for code in range(0x50, 0x3F, -1)]
    assert in_hash_order(many) == [chr(code) for code in [*range(0x40, 0x51)]]


def test_beyond_the_basic_plane() -> None:
    assert in_hash_order(["\U0001f600", "a"]) == ["a", "\U0001f600"]  # 0x1b2e61 ^ 0x1b is in place 10
