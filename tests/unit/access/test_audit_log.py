"""The audit log: a line each, repeats counted, bounded in memory and on disk, without secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kourou.access.audit import AuditedRequest, audited_resource
from kourou.access.audit_log import MAX_LINES, MAX_REFUSAL_LINES, AuditLog, RotatedFile
from kourou.access.gate import AccessGate
from kourou.access.model import AccessCall, AccessRefusedError, Account, Needs, RefusalKind
from kourou.access.requests import AUDITED, RequestTable
from kourou.protocol.codes import RequestCode as Code
from tests.unit.access.kit import ALICE, ROOT, FakeRequest, Rules, signed


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_763_500_000_123

    def __call__(self) -> int:
        return self.now_ms


def log_of(folder: Path, clock: Clock | None = None, **sizes: int) -> AuditLog:
    file = RotatedFile(folder / "audit.log", **{"max_bytes": 1_000_000, "backups": 2, **sizes})
    return AuditLog(file, interval_ms=10_000, now_ms=clock or Clock())


def refuse(log: AuditLog, user: str = "alice", code: int = 310) -> None:
    call = AccessCall(code=code, version=0, fields={}, body=b"", address="10.0.0.1", needs=Needs())
    log.refused(call, AccessRefusedError(RefusalKind.NO_PERMISSION, 16, "no", user=user), "Topic:orders")


def taken(log: AuditLog, **options: bool) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.take(**options)]


def test_a_refusal_is_a_line_and_its_repeats_are_counted(tmp_path: Path) -> None:
    clock = Clock()
    log = log_of(tmp_path, clock)
    for _ in range(1_000):
        refuse(log)
    first = {
        "time": "2025-11-18T21:06:40.123Z",
        "event": "refused",
        "kind": "no permission",
        "user": "alice",
        "address": "10.0.0.1",
        "code": 310,
        "request": "SEND_MESSAGE_V2",
        "resource": "Topic:orders",
        "remark": "no",
    }
    assert taken(log) == [first]
    clock.now_ms += 9_999
    assert taken(log) == []
    clock.now_ms += 1
    assert taken(log) == [{**first, "time": "2025-11-18T21:06:50.123Z", "count": 999}]
    refuse(log)
    assert [line.get("count") for line in taken(log)] == [None]


def test_what_is_counted_is_written_at_the_stop(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    refuse(log)
    refuse(log)
    assert [line.get("count") for line in taken(log, is_last=True)] == [None, 1]


def test_a_flood_of_kinds_does_not_fill_memory_or_file(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(100_000):
        refuse(log, f"user{number}")
    lines = taken(log)
    assert len(lines) == MAX_REFUSAL_LINES + 1
    assert lines[-1] == {
        "time": lines[-1]["time"],
        "event": "refused",
        "kind": "no permission",
        "count": 100_000 - MAX_REFUSAL_LINES,
    }


def test_lines_that_nobody_writes_are_dropped_and_counted(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for _ in range(MAX_LINES + 7):
        log.administered(user="root", address="a", code=17, resource="", outcome=0)
    lines = taken(log)
    assert len(lines) == MAX_LINES + 1
    assert (lines[-1]["event"], lines[-1]["count"]) == ("dropped", 7)


def test_files_are_rotated_and_for_the_owner_only(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_bytes=4_096, backups=2)
    for number in range(40):
        log.write([b"%d" % number + b"x" * 500 + b"\n"])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_size <= 4_096 + 503
    assert (tmp_path / "audit.log").read_bytes().startswith(b"36")


def test_no_backups_means_none(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_bytes=4_096, backups=0)
    log.write([b"x" * 5_000])
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_file_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.symlink(tmp_path / "other", tmp_path / "audit.log")
    log = log_of(tmp_path)
    for _ in range(3):
        log.write([b"line\n"])
    assert not (tmp_path / "other").exists()
    assert len([record for record in caplog.records if "are dropped" in record.message]) == 1


# -- the gate's lines ------------------------------------------------------------------------------


def gate_of(log: AuditLog) -> AccessGate:
    return AccessGate(Rules("T"), RequestTable(), monotonic_ms=lambda: 0, audit_log=log)


def test_an_administrative_request_is_written_with_its_outcome(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    seen: list[int] = []

    class Meter:
        def answered(self, request: object, code: int) -> None:
            seen.append(code)

    request = FakeRequest(Code.UPDATE_AND_CREATE_TOPIC, signed({"topic": "T"}, ROOT), meter=Meter())
    gate_of(log).check(request)
    assert taken(log) == []
    request.meter.answered(request, 17)
    (line,) = taken(log)
    assert {name: line[name] for name in ("event", "user", "address", "request", "resource", "outcome")} == {
        "event": "admin",
        "user": "root",
        "address": "10.0.0.1",
        "request": "UPDATE_AND_CREATE_TOPIC",
        "resource": "topic=T",
        "outcome": 17,
    }
    assert seen == [17]


def test_a_one_way_request_is_written_at_once(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    gate_of(log).check(FakeRequest(Code.CLEAN_UNUSED_TOPIC, signed({}, ROOT), is_oneway=True))
    assert [line["outcome"] for line in taken(log)] == [None]


def test_refusals_have_the_resource_and_no_secret(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    with pytest.raises(AccessRefusedError):
        gate_of(log).check(FakeRequest(Code.SEND_MESSAGE_V2, signed({"b": "U", "x": "hush"}, ALICE)))
    (raw,) = log.take()
    line = json.loads(raw)
    assert (line["user"], line["resource"], line["kind"]) == ("alice", "Topic:U", "no permission")
    assert b"secret" not in raw and b"hush" not in raw and b"Signature" not in raw


@pytest.mark.parametrize("body", [b"a=hush\nb:hush\nc hush\n", b"a=hu\\u00zz"])
def test_of_a_changed_configuration_the_keys_are_written(body: bytes) -> None:
    fields = {"secretKey": "hush"}
    call = AccessCall(
        code=Code.UPDATE_BROKER_CONFIG, version=0, fields=fields, body=body, address="a", needs=Needs()
    )
    assert "hu" not in audited_resource(call)


@pytest.mark.parametrize("code", sorted(AUDITED))
def test_no_administrative_request_writes_a_secret(code: int) -> None:
    fields = {"accessKey": "a", "secretKey": "hush", "password": "hush", "securityToken": "hush"}
    body = b'{"username":"a","password":"hush"}'
    call = AccessCall(code=code, version=0, fields=fields, body=body, address="a", needs=Needs())
    assert "hush" not in audited_resource(call)


def test_a_line_is_written_without_a_meter(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    AuditedRequest(log, "root", "a", "", None).answered(FakeRequest(Code.DELETE_ACL_CONFIG), 0)
    assert len(taken(log)) == 1


@pytest.mark.parametrize(
    ("account", "are_shown", "is_written"), [(ROOT, False, False), (ROOT, True, True), (ALICE, False, True)]
)
def test_secrets_are_audited_when_they_are_shown_or_another_account_asks(
    tmp_path: Path, account: Account, are_shown: bool, is_written: bool
) -> None:
    """A slave asks each few seconds, and gets nothing new."""
    log = log_of(tmp_path)
    gate = gate_of(log)
    request = FakeRequest(Code.GET_KOUROU_FEATURES, signed({}, account))
    gate.check(request)
    gate.audit_secrets(request, are_shown=are_shown, usual="root")
    if request.meter is not None:
        request.meter.answered(request, 0)
    assert [line["user"] for line in taken(log)] == ([account.name] if is_written else [])
