"""Apache's mqadmin at a broker set of ours, whose members have the role of its controller: it prints what
ours prints, and its election hands over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.integration.admin.set_kit import broker_set
from tests.interop.kit.java_session import AdminResult, AdminSession
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.interop

_VERSION: Final = "5.5.0"


async def test_apaches_mqadmin_sees_and_steers_a_broker_set(
    tmp_path: Path, admins: dict[str, AdminSession]
) -> None:
    async with broker_set(tmp_path) as members:
        namesrv = members.running.namesrv_addr

        async def theirs(*words: str) -> AdminResult:
            return await asyncio.to_thread(admins[_VERSION].run, words[0], "-n", namesrv, *words[1:])

        for member_id in (1, 2):
            controller = ("-a", members.address(member_id))
            for words in (
                ("getSyncStateSet", *controller, "-b", "broker-a"),
                ("getSyncStateSet", *controller, "-c", "DefaultCluster"),
                ("getControllerMetaData", *controller),
            ):
                result = await theirs(*words)
                assert result.stderr == ""
                assert result.stdout == (await run_line(namesrv, *words)).stdout

        members.is_stuck = True
        elect = ("electMaster", "-a", members.address(2), "-c", "DefaultCluster", "-bn", "broker-a", "-b")
        result = await theirs(*elect, "1")
        assert "CODE: 2011  DESC: member 1 is the master already" in result.stdout + result.stderr
        assert members.handovers == []
        result = await theirs(*elect, "2")
        assert result.stderr == "" and "#MasterEpoch\t8" in result.stdout, result
        assert result.stdout == (await run_line(namesrv, *elect, "2")).stdout
        assert members.handovers == [2, 2]
