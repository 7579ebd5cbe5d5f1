"""Limits of accounts: refilled all the time, for a second at most; connections; the file."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

from kourou.access.model import AccessCall, AccessRefusedError, Account, Needs, RefusalKind
from kourou.access.quotas import AccountLimits, LimitsFile, Quotas
from kourou.errors import ConfigError
from kourou.protocol.atomic import StagedGroup, encode_groups
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import RequestCode as Code
from tests.unit.access.kit import ALICE, ROOT, FakeConnection


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def call(code: int, body: bytes = b"", **fields: str) -> AccessCall:
    return AccessCall(code=code, version=0, fields=fields, body=body, address="10.0.0.1", needs=Needs())


def quotas_of(clock: Clock, *, account: str = "alice", **limits: int) -> Quotas:
    quotas = Quotas(clock)
    quotas.replace({account: AccountLimits(**limits)})
    return quotas


def words(quotas: Quotas, request: AccessCall, account: Account = ALICE) -> str:
    with pytest.raises(AccessRefusedError) as caught:
        quotas.admit(request, account, FakeConnection())
    assert (caught.value.response_code, caught.value.kind) == (2, RefusalKind.OVER_QUOTA)
    return caught.value.remark


def test_sends_are_limited_by_number_with_the_time_to_wait() -> None:
    clock = Clock()
    quotas = quotas_of(clock, produced_messages_per_second=10)
    send = call(Code.SEND_MESSAGE_V2)
    for _ in range(10):
        quotas.admit(send, ALICE, FakeConnection())
    expected = "account alice is over its limit: more than 10 messages are sent per second, wait 1 ms"
    assert words(quotas, send) == expected
    clock.now_ms = 100
    quotas.admit(send, ALICE, FakeConnection())
    assert "wait" in words(quotas, send)
    clock.now_ms = 60_000
    for _ in range(10):
        quotas.admit(send, ALICE, FakeConnection())
    assert "wait" in words(quotas, send), "a second's worth, however long it was quiet"


def test_bytes_are_paid_for_afterwards() -> None:
    clock = Clock()
    quotas = quotas_of(clock, produced_bytes_per_second=1_000)
    quotas.admit(call(Code.SEND_MESSAGE, b"x" * 5_000), ALICE, FakeConnection())
    assert "more than 1000 bytes are sent per second, wait 4001 ms" in words(quotas, call(Code.SEND_MESSAGE))
    clock.now_ms = 4_001
    quotas.admit(call(Code.SEND_MESSAGE), ALICE, FakeConnection())


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.SEND_BATCH_MESSAGE, {}),
        (Code.SEND_MESSAGE_V2, {"m": "true"}),
        (Code.SEND_MESSAGE, {"batch": "true"}),
    ],
)
def test_each_message_of_a_batch_counts(code: int, fields: dict[str, str]) -> None:
    quotas = quotas_of(Clock(), produced_messages_per_second=10)
    body = encode_batch_entries([BatchEntry(0, b"body", b"")] * 40)
    quotas.admit(call(code, body, **fields), ALICE, FakeConnection())
    assert "wait 3001 ms" in words(quotas, call(Code.SEND_MESSAGE))


def test_each_message_of_an_atomic_publish_counts() -> None:
    quotas = quotas_of(Clock(), produced_messages_per_second=10, produced_bytes_per_second=1_000)
    entries = encode_batch_entries([BatchEntry(0, b"body" * 10, b"")] * 20)
    body = encode_groups([StagedGroup("T", queue_id, 0, 0, entries) for queue_id in range(2)])
    quotas.admit(call(Code.STAGE_KOUROU_ATOMIC, body), ALICE, FakeConnection())
    found = words(quotas, call(Code.SEND_MESSAGE))
    assert f"wait {max(3_001, len(body))} ms" in found, "by messages or by bytes"
    quotas = quotas_of(Clock(), produced_messages_per_second=10)
    quotas.admit(call(Code.STAGE_KOUROU_ATOMIC, body), ALICE, FakeConnection())
    assert "wait 3001 ms" in words(quotas, call(Code.SEND_MESSAGE))


@pytest.mark.parametrize("body", [b"", b"\xc1", encode_groups([])])
def test_a_malformed_part_of_an_atomic_publish_counts_as_one(body: bytes) -> None:
    quotas = quotas_of(Clock(), produced_messages_per_second=1)
    quotas.admit(call(Code.STAGE_KOUROU_ATOMIC, body), ALICE, FakeConnection())
    assert "wait 1 ms" in words(quotas, call(Code.SEND_MESSAGE))


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\1abc", b"\xff\xff\xff\xff"])
def test_a_malformed_batch_counts_as_one(body: bytes) -> None:
    quotas = quotas_of(Clock(), produced_messages_per_second=1)
    quotas.admit(call(Code.SEND_BATCH_MESSAGE, body), ALICE, FakeConnection())
    assert "wait 1 ms" in words(quotas, call(Code.SEND_MESSAGE))


@pytest.mark.parametrize(
    "code", [Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.POP_MESSAGE, Code.PEEK_MESSAGE]
)
def test_pops_and_queries_that_return_messages_are_limited_as_pulls_are(code: int) -> None:
    quotas = quotas_of(Clock(), consumed_messages_per_second=10)
    quotas.admit(call(code), ALICE, FakeConnection())
    quotas.pulled("alice", 30, 0)
    assert "more than 10 messages are pulled per second" in words(quotas, call(code))


def test_pulls_are_limited_by_what_was_pulled() -> None:
    clock = Clock()
    quotas = quotas_of(clock, consumed_messages_per_second=10, consumed_bytes_per_second=1_000)
    pull = call(Code.PULL_MESSAGE)
    for _ in range(100):
        quotas.admit(pull, ALICE, FakeConnection())
    quotas.pulled("alice", 30, 1_500)
    assert "more than 10 messages are pulled per second, wait 2001 ms" in words(quotas, pull)
    quotas.admit(call(Code.SEND_MESSAGE), ALICE, FakeConnection())
    quotas.pulled("unknown", 1, 1)


def test_connections_are_counted_while_they_are_open() -> None:
    quotas = quotas_of(Clock(), connections=2)
    request = call(Code.HEART_BEAT)
    first, second, third = FakeConnection(), FakeConnection(), FakeConnection()
    for connection in (first, second, first):
        quotas.admit(request, ALICE, connection)
    with pytest.raises(AccessRefusedError, match="it has 2 connections, and may not have more"):
        quotas.admit(request, ALICE, third)
    second.closed = True
    quotas.admit(request, ALICE, third)


def test_connections_that_are_closed_are_not_kept_until_the_limit_is_reached() -> None:
    quotas = quotas_of(Clock(), connections=1_000)
    connection = FakeConnection()
    quotas.admit(call(Code.HEART_BEAT), ALICE, connection)
    gone = weakref.ref(connection)
    del connection
    assert gone() is None


def test_the_star_is_for_all_others_but_administrators() -> None:
    quotas = quotas_of(Clock(), account="*", connections=1)
    assert quotas.is_limited(ALICE) and not quotas.is_limited(ROOT)
    for _ in range(3):
        quotas.admit(call(Code.HEART_BEAT), ROOT, FakeConnection())
    connection = FakeConnection()
    quotas.admit(call(Code.HEART_BEAT), ALICE, connection)
    assert "it has 1 connection, and" in words(quotas, call(Code.HEART_BEAT))


def test_the_file_is_read_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    file = LimitsFile(path)
    assert (file.read(), file.has_changed) == ({}, False)
    path.write_text('{"alice": {"connections": 5}, "*": {"producedBytesPerSecond": 9}}')
    has_changed = file.has_changed
    limits = file.read()
    assert has_changed
    assert limits == {"alice": AccountLimits(connections=5), "*": AccountLimits(produced_bytes_per_second=9)}
    assert not file.has_changed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Input data was truncated"),
        ("[]", "Expected `object`"),
        ('{"alice": {"speed": 1}}', "account alice: there is no limit speed$"),
        (
            '{"alice": {"producedMessagesPerSec": 1}}',
            "account alice: there is no limit producedMessagesPerSec; did you mean producedMessagesPerS",
        ),
        ('{"alice": {"connections": 0}}', "account alice, connections: must be a whole number above 0"),
        ('{"alice": {"connections": true}}', "account alice, connections: must be a whole number above 0"),
        ('{"alice": {"connections": "ten"}}', "account alice, connections: must be a whole number above 0"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "limits.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"limits\.json: {problem}"):
        LimitsFile(path).read()
