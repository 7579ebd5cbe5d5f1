"""The master key of a broker set: candidates race for it while members of etcd die, and porcupine finds each
epoch given once, in order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kourou.errors import EtcdUnavailableError
from kourou.etcd import EtcdClient
from kourou.failover.set_client import SetClient
from kourou.failover.set_state import MasterValue, SetKeys
from tests.failover.history import History, read_history
from tests.failover.linearizable import porcupine, verdicts
from tests.failover.reigns import noted_reigns
from tests.integration.etcd.etcd_kit import etcd

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_KEYS = SetKeys.of("/kourou", "DefaultCluster", "broker-a")
_CANDIDATES = 4
_RUN_S = 4.0


async def _race(number: int, addresses: list[str], history: History) -> None:
    """Take the key whenever it is free, reign for a moment, and abdicate."""
    chance, process = random.Random(number), f"candidate-{number}"
    async with EtcdClient(addresses, timeout_ms=500) as client:
        candidate = SetClient(client, _KEYS)
        while True:
            await asyncio.sleep(chance.uniform(0, 0.01))
            try:
                await _reign_once(candidate, number, process, history, chance)
            except EtcdUnavailableError:
                continue


async def _reign_once(
    candidate: SetClient, number: int, process: str, history: History, chance: random.Random
) -> None:
    state = await candidate.read()
    if state.master is not None:
        return
    lease = await candidate.etcd.grant(ttl_s=2)
    address = f"127.0.0.1:{number}"
    epoch = state.epoch + 1
    value = MasterValue(member_id=number, epoch=epoch, address=address, ha_address=address)
    taking = history.begin("acquire", process, key="master/broker-a", amount=epoch)
    try:
        throne = await candidate.take_over(state, value, (number,), lease.lease_id)
    except EtcdUnavailableError as error:
        history.end(taking, "unknown" if error.may_be_done else "failed")
        raise
    history.end(taking, "failed" if throne is None else "ok")
    if throne is not None:
        await asyncio.sleep(chance.uniform(0, 0.01))
        await candidate.remove_master(throne.created_revision)
    await candidate.end_lease(lease.lease_id)


async def test_each_epoch_has_one_master(tmp_path: Path) -> None:
    program = porcupine()
    path = tmp_path / "history.jsonl"
    with etcd(tmp_path, 3) as members, History(path) as history:
        addresses = [member.address for member in members]
        async with EtcdClient(addresses, timeout_ms=500) as client, noted_reigns(client, _KEYS, history):
            async with asyncio.TaskGroup() as candidates:
                races = [
                    candidates.create_task(_race(number, addresses, history))
                    for number in range(1, _CANDIDATES + 1)
                ]
                for member in members[:2]:
                    await asyncio.sleep(_RUN_S / 4)
                    member.stop()
                    await asyncio.sleep(_RUN_S / 4)
                    member.start()
                for race in races:
                    race.cancel()
    operations = list(read_history(path))
    (verdict,) = verdicts(program, operations, tmp_path)
    assert verdict.is_linearizable, verdict
    taken = [each for each in operations if each.kind == "acquire" and each.outcome == "ok"]
    assert len(taken) > 20
    assert len({each.process for each in taken}) > 1
    assert any(each.kind == "acquire" and each.outcome == "failed" for each in operations), (
        "there was no race"
    )
    # What a watch has seen is what was taken.
    masters = {each.epoch: each.address for each in operations if each.kind == "reign"}
    assert masters
    for each in taken:
        assert masters.get(each.amount, _address(each.process)) == _address(each.process)


def _address(process: str) -> str:
    return f"127.0.0.1:{process.partition('@')[0].removeprefix('candidate-')}"
