"""Admission: what a check sees, what it closes, and what its coming and going invalidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kourou.broker.admission import (
    MAX_WAITING_BYTES,
    MAX_WAITING_MESSAGES,
    Admission,
    AdmissionCheck,
    DiskBacklog,
    MessageCheck,
    RequestCheck,
)
from kourou.broker.hooks import SendContext
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request import Request
from tests.unit.broker.tables_kit import Tables

SEND, PULL, LOCK = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.LOCK_BATCH_MQ


class Gate:
    """An Admission with a backlog to set and hooks to add."""

    def __init__(self, root: Path, *checks: AdmissionCheck) -> None:
        tables = Tables(root)
        self.backlog = cast(DiskBacklog, SimpleNamespace(waiting_bytes=0, waiting_messages=0))
        self.hooks: list[object] = []
        self.admission = Admission(
            config=tables.get_config,
            address="127.0.0.1:10911",
            now_ms=tables.clock,
            topics=tables.topics,
            groups=tables.groups,
            backlog=self.backlog,
            before_send=self.hooks,  # type: ignore[arg-type]
            checks=checks,
        )


def refuse(_: object) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "refused")


def request(code: int) -> Request:
    return cast(Request, SimpleNamespace(code=code))


def context(topic: str) -> SendContext:
    return SendContext(topic, 0, "producers", b"", "", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("check", "is_open"),
    [
        (RequestCheck(refuse), False),
        (RequestCheck(refuse, frozenset({LOCK, RequestCode.SEND_MESSAGE})), False),
        (RequestCheck(refuse, frozenset({LOCK, RequestCode.SEND_MESSAGE_V2})), False),
        (RequestCheck(refuse, frozenset({LOCK, RequestCode.SEND_BATCH_MESSAGE})), False),
        (RequestCheck(refuse, frozenset({LOCK, PULL})), True),
        (MessageCheck(refuse), False),
        (MessageCheck(refuse, frozenset({"T"})), True),
        (MessageCheck(refuse, str.isupper), True),
    ],
)
def test_a_check_closes_the_fast_path_until_it_is_removed(
    tmp_path: Path, check: AdmissionCheck, is_open: bool
) -> None:
    admission = Gate(tmp_path, check).admission
    assert admission.is_fast_path_open is is_open
    admission.remove(check)
    assert admission.is_fast_path_open


def test_a_hook_closes_the_fast_path(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.hooks.append(refuse)
    assert not gate.admission.is_fast_path_open


@pytest.mark.parametrize(("waiting_bytes", "waiting_messages"), [(1, 0), (0, 1)])
def test_a_disk_that_is_far_behind_gets_no_more(
    tmp_path: Path, waiting_bytes: int, waiting_messages: int
) -> None:
    gate = Gate(tmp_path)
    gate.backlog.waiting_bytes = MAX_WAITING_BYTES
    gate.backlog.waiting_messages = MAX_WAITING_MESSAGES
    gate.admission.check_room()
    assert gate.admission.is_fast_path_open
    gate.backlog.waiting_bytes += waiting_bytes
    gate.backlog.waiting_messages += waiting_messages
    with pytest.raises(RequestError, match=r"\[REJECTREQUEST\]system busy") as refused:
        gate.admission.check_room()
    assert refused.value.response_code == ResponseCode.SYSTEM_BUSY
    assert not gate.admission.is_fast_path_open


@pytest.mark.parametrize("topics", [frozenset({"T"}), str.isupper], ids=["names", "function"])
def test_a_message_check_sees_its_topics_only(
    tmp_path: Path, topics: frozenset[str] | Callable[[str], bool]
) -> None:
    admission = Gate(tmp_path, MessageCheck(refuse, topics)).admission
    assert admission.sees_messages_of("T") and not admission.sees_messages_of("u")
    admission.check_message(context("u"))
    with pytest.raises(RequestError, match="refused"):
        admission.check_message(context("T"))


def test_every_change_of_checks_is_a_new_ruling(tmp_path: Path) -> None:
    admission = Gate(tmp_path).admission
    rulings = [admission.ruling]
    for check in (RequestCheck(refuse), MessageCheck(refuse)):
        admission.add(check)
        rulings.append(admission.ruling)
        admission.remove(check)
        rulings.append(admission.ruling)
    admission.invalidate()
    assert len({id(ruling) for ruling in [*rulings, admission.ruling]}) == 6


def test_a_parked_request_is_checked_under_another_ruling_only(tmp_path: Path) -> None:
    seen: list[int] = []
    admission = Gate(tmp_path).admission
    before = admission.ruling
    admission.add(RequestCheck(lambda each: seen.append(each.code), frozenset({PULL})))
    admission.check_parked(request(PULL), admission.ruling)
    assert seen == []
    admission.check_parked(request(LOCK), before)
    admission.check_parked(request(PULL), before)
    assert seen == [PULL]


def test_clients_do_not_write_to_the_brokers_own_topics(tmp_path: Path) -> None:
    admission = Gate(tmp_path).admission
    admission.check_topic_name("TBW102")
    with pytest.raises(RequestError, match=r"topic\[SCHEDULE_TOPIC_XXXX\] is forbidden"):
        admission.check_topic_name("SCHEDULE_TOPIC_XXXX")


# -- slaves --------------------------------------------------------------------------------------------------


def test_while_copies_are_missing_only_messages_that_wait_for_none_are_accepted(tmp_path: Path) -> None:
    admission = Gate(tmp_path).admission
    ruling = admission.ruling
    admission.set_replica_problem("1 of 2 copies")
    assert admission.ruling is not ruling, "what was decided before is void"
    with pytest.raises(RequestError, match="in-sync replicas not enough: 1 of 2 copies") as caught:
        admission.check_message(context("orders"))
    assert caught.value.response_code == ResponseCode.SYSTEM_ERROR
    admission.check_message(replace(context("orders"), properties="KEYS\x01a\x02WAIT\x01false\x02"))
    assert admission.sees_messages_of("orders"), "the fast path is closed for it"
    assert not admission.sees_messages_of("DefaultCluster_REPLY_TOPIC")
    ruling = admission.ruling
    admission.set_replica_problem("2 of 3 copies")
    assert admission.ruling is ruling, "another number is no other decision"
    for _ in range(2):
        admission.set_replica_problem(None)
        assert not admission.sees_messages_of("orders")
    assert admission.ruling is not ruling
