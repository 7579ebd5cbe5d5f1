"""Hashes of keys: a batch at a time, and equal to Java's one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kourou.store.index.index_hash import KeyHasher, key_hash
from tests.unit.store.naive_index import naive_hash


def hashes(records: Sequence[tuple[str, Sequence[str]]]) -> list[int]:
    topics, keys = [topic for topic, _ in records], [keys for _, keys in records]
    return KeyHasher().hashes(topics, keys, np.array([len(words) for words in keys], np.intp)).tolist()


def expected(records: Sequence[tuple[str, Sequence[str]]]) -> list[int]:
    return [naive_hash(topic, key) for topic, keys in records for key in keys]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([], id="none"),
        pytest.param([("t", ())], id="no keys"),
        pytest.param([("t", ("",))], id="an empty key"),
        pytest.param([("t", ("a", "", "bc")), ("u", ()), ("t", ("d",))], id="several"),
        pytest.param([("Aa", ("BB-x", "Aa-x")), ("BB", ("Aa-x",))], id="same hash"),
        pytest.param([("主题", ("键2", "clé", "plain"))], id="not ASCII"),
        pytest.param([("t", ("𝄞", "a𝄞b", "\ud834", "z"))], id="two units, and half of two"),
        pytest.param([("t", ("a\x00b", "c")), ("u", ("d",))], id="zeros"),
        pytest.param([("t", ("k" * 32_767, "a")), ("t", ("é" * 30_000, "b"))], id="long"),
        pytest.param([("t", ("a", "k" * 70_000, "b")), ("t", ("é" * 70_000,))], id="longer than a window"),
        pytest.param([(f"t{n % 3}", (f"{n:032d}", f"o-{n}")) for n in range(5_000)], id="many"),
    ],
)
def test_a_batch_gives_the_hashes_of_its_keys(records: list[tuple[str, Sequence[str]]]) -> None:
    assert hashes(records) == expected(records)


def test_the_hash_without_a_positive_counterpart_is_0() -> None:
    key = _key_with_min_value("t")
    assert naive_hash("t", key) == key_hash("t", key) == 0
    assert hashes([("t", (key,))]) == [0]


def _key_with_min_value(topic: str) -> str:
    """A key whose hash code with the topic is -2**31: digits of base 31 that make up what is missing."""
    prefix = 0
    for unit in f"{topic}#":
        prefix = (31 * prefix + ord(unit)) & 0xFFFF_FFFF
    wanted = (0x8000_0000 - prefix * pow(31, 8)) & 0xFFFF_FFFF
    wanted = (wanted - sum(64 * 31**place for place in range(8))) & 0xFFFF_FFFF
    digits = []
    for _ in range(8):
        wanted, digit = divmod(wanted, 31)
        digits.append(chr(64 + digit))
    return "".join(reversed(digits))


def test_topics_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.store.index.index_hash._MAX_PREFIXES", 3)
    hasher = KeyHasher()
    for number in range(10):
        one = np.array([1], np.intp)
        assert hasher.hashes([f"t{number}"], [("k",)], one).tolist() == [naive_hash(f"t{number}", "k")]
    assert len(hasher._prefixes) <= 4
