"""Apache's mqadmin at a master and a slave of ours: it prints what ours prints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final
from unittest import mock

import pytest

from kourou.cli.admin.run import FORMAT_VARIABLE
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.lanes import KOUROU
from tests.interop.kit.replica_set import ReplicaSet, launch_replica_sets
from tests.unit.admin.command_line import run_now

pytestmark = pytest.mark.interop

# Rates, how far timers are, and the moments of heartbeats.
_MOMENTS: Final = re.compile(r"\d+\.\d+|\d+-\d+(?=\()|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+")
_ONE_SLAVE: Final = ("#SlaveNum\t1", "#InSyncSlaveNum\t1", "OK")
_TWO_EPOCHS: Final = ("#brokerId\t0", "#brokerId\t1", "EpochEntry{epoch=1, startOffset=0, ")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A master and its slave, which has everything."""
    with ExitStack() as servers:
        work_dir = tmp_path_factory.mktemp("pair")
        (started,) = launch_replica_sets([(KOUROU, (KOUROU,))], work_dir, servers)
        started.wait_following()
        yield started


@pytest.mark.parametrize(
    ("version", "words", "shown"),
    [
        ("4.9.7", "clusterList", (" 0 ", " 1 ")),
        ("5.5.0", "clusterList", (" 0 ", " 1 ")),
        ("5.5.0", "haStatus -b MASTER", _ONE_SLAVE),
        ("5.5.0", "haStatus -c DefaultCluster", _ONE_SLAVE),
        ("5.5.0", "haStatus -b SLAVE", ("#MasterAddr", "#CommitLogMaxOffset", "#LastReadTime")),
        ("5.5.0", "getBrokerEpoch -b NAME", _TWO_EPOCHS),
        ("5.5.0", "getBrokerEpoch -c DefaultCluster", _TWO_EPOCHS),
    ],
)
def test_apaches_mqadmin_prints_what_ours_prints(
    pair: ReplicaSet, admins: dict[str, AdminSession], version: str, words: str, shown: tuple[str, ...]
) -> None:
    places = {"MASTER": pair.master.address, "SLAVE": pair.slaves[KOUROU].address, "NAME": pair.name}
    command, *arguments = (places.get(word, word) for word in words.split())
    theirs = admins[version].run(command, "-n", pair.namesrv, *arguments)
    with mock.patch.dict(os.environ, {FORMAT_VARIABLE: version}):
        ours = run_now([command, "-n", pair.namesrv, *arguments])
    assert theirs.stderr == "" and all(text in theirs.stdout for text in shown), theirs.stdout
    assert masked(theirs.stdout) == masked(ours.stdout)


def masked(text: str) -> list[str]:
    """The paragraphs without what differs between two moments. Apache has brokers in the order of a hash
    table."""
    return sorted(re.sub(" +", " ", _MOMENTS.sub("N", part)) for part in text.strip().split("\n\n"))
