"""A real broker set from the command line: handed over, and seen before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.config import NamesrvConfig
from kourou.config.host import LOOPBACK
from kourou.namesrv.server import NameServer
from kourou.standalone.following import wait_followed
from tests.integration.etcd.etcd_kit import etcd
from tests.unit.admin.command_line import run_line

from .set_kit import BrokerSet, until

pytestmark = pytest.mark.e2e


async def test_a_set_is_handed_over_twice_by_commands(tmp_path: Path) -> None:
    namesrv = NameServer(NamesrvConfig(bind_address=LOOPBACK, listen_port=0))
    with etcd(tmp_path) as (member,):
        async with namesrv:
            # Longer than this machine may stand still: no member takes over but by the commands.
            brokers = BrokerSet(tmp_path, member.address, namesrv, {"failover_lease_seconds": 20})
            try:
                for number in (1, 2, 3):
                    await brokers.start(number)
                await until(lambda: brokers.in_sync() == (1, 2, 3), "three members in sync")
                await hand_over_twice(brokers)
            finally:
                # The master last: no other member is to take over.
                for number in sorted(brokers.members, key=lambda each: brokers.members[each].is_master):
                    await brokers.stop(number)


async def hand_over_twice(brokers: BrokerSet) -> None:
    address = {each.member_id: each.address for each in brokers.members.values()}
    namesrv, old = brokers.namesrv.address, brokers.members[await brokers.master()].member_id
    for new in (old % 3 + 1, old):
        epoch = brokers.members[1].state.epoch + 1
        assert not await wait_followed([address[old]], 2, timeout_s=30)
        shown = await run_line(namesrv, "handover", "-b", "broker-a", "--to", str(new))
        assert shown.exit_code == 0, shown
        members = f"member {old} ({address[old]}) handed over to member {new} ({address[new]})"
        assert shown.lines[0].startswith(f"broker-a: {members} in ")
        assert shown.lines[1] == f"epoch {epoch}, in sync: 1, 2, 3"
        shown = await run_line(namesrv, "getSyncStateSet", "-a", address[new], "-b", "broker-a")
        assert shown.lines[2:5] == [
            f"#MasterBrokerId\t{new}",
            f"#MasterAddr\t{address[new]}",
            f"#MasterEpoch\t{epoch}",
        ]
        old = new

    assert not await wait_followed([address[old]], 2, timeout_s=30)
    report = (await run_line(namesrv, "doctor", "--watch", "0", "--json")).json
    found = [each for each in report["findings"] if each["check"] in ("fail-over", "replication")]
    # The version of etcd depends on the machine.
    kept = [each["what"] for each in found if "has known bugs" not in each["what"]]
    assert kept == [f"failoverEtcdEndpoints has 1 member of etcd: {brokers.etcd}"]

    shown = await run_line(namesrv, "getBrokerEpoch", "-b", "broker-a")
    ids = [line for line in shown.lines if line.startswith("#brokerId")]
    assert ids == ["#brokerId\t0", *(f"#brokerId\t{each}" for each in (1, 2, 3) if each != old)]
    assert sum(f"epoch={epoch}," in line for line in shown.lines) == 3, shown
