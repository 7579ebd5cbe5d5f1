"""Checks of a running broker: every request code passes them, and so do pulls that wait or are remembered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.broker.admission import MessageCheck, RequestCheck
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request import Request
from tests.e2e.broker.broker_kit import SUBSCRIPTION, SUSPEND, messages, running

pytestmark = pytest.mark.e2e

UNKNOWN_CODE = 9_999


def refuse(_: object) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "not today")


async def test_a_check_sees_every_request_code(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(request: Request) -> None:
        seen.append(request.code)
        refuse(request)

    codes = [*map(int, RequestCode), UNKNOWN_CODE]
    async with running(tmp_path, checks=[RequestCheck(look)]) as peer:
        for code in codes:
            answer = await peer.call(code)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not today"), code
    assert seen == codes


async def test_a_check_that_fails_rejects(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise LookupError("no such user")

    async with running(tmp_path) as peer:
        await peer.send()
        peer.controller.admission.add(MessageCheck(fail, frozenset({"TopicTest"})))
        answer = await peer.send()
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "LookupError: no such user")
        assert len(messages(await peer.pull())) == 1


async def test_a_check_stops_pulls_that_are_remembered(tmp_path: Path) -> None:
    check = RequestCheck(refuse, frozenset({RequestCode.PULL_MESSAGE}))
    async with running(tmp_path) as peer:
        await peer.send()
        for _ in range(2):
            assert len(messages(await peer.pull())) == 1
        peer.controller.admission.add(check)
        assert (await peer.pull()).remark == "not today"
        assert (await peer.send()).code == 0, "sends are not its matter"
        peer.controller.admission.remove(check)
        assert len(messages(await peer.pull())) == 2


@pytest.mark.parametrize("change", ["check", "permission", "nothing"])
async def test_a_held_pull_is_checked_again_when_it_wakes(tmp_path: Path, change: str) -> None:
    seen: list[int] = []
    async with running(tmp_path) as peer:
        admission = peer.controller.admission
        admission.add(RequestCheck(lambda request: seen.append(request.code)))
        await peer.send()
        held = asyncio.ensure_future(peer.pull(queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION))
        await peer.until_held(1)
        if change == "check":
            admission.add(RequestCheck(refuse, frozenset({RequestCode.PULL_MESSAGE})))
        elif change == "permission":
            peer.controller.services.update_config({"brokerPermission": "2"})
        await peer.send()
        answer = await held
        if change == "nothing":
            assert len(messages(answer)) == 1
            assert seen.count(RequestCode.PULL_MESSAGE) == 1, "once admitted under the same ruling"
        else:
            assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
