"""What Java clients and `mqadmin` asked of Apache's brokers, asked of our tables.

The recording leaves out repeats, and other requests change the state too: compared is what does not
depend on that.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from tests.unit.broker.tables_kit import MemoryBroker, Peer

GOLDEN = Path(__file__).parents[3] / "golden"
CODES = {
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
}


def recorded(version: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"frames-{version}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines if '-broker"' in line]
    return [row for row in rows if row.get("requestCode", row["code"]) in CODES]


def command_of(row: dict[str, Any]) -> RemotingCommand:
    (frame,) = FrameDecoder().feed(base64.b64decode(row["frame"]))
    return decode_command(frame)


def sets_of(command: RemotingCommand) -> dict[str, list[str]]:
    """A body of sets, in an order that can be compared."""
    tree = json.loads(command.body or b"{}")
    return {
        name: sorted(json.dumps(each, sort_keys=True) for each in values) for name, values in tree.items()
    }


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
async def test_clients_are_answered_as_by_apache(tmp_path: Path, version: str) -> None:
    rows = recorded(version)
    answers = {(row["conn"], row["header"]["opaque"]): row for row in rows if row["type"] == "response"}
    broker = MemoryBroker(tmp_path, enable_property_filter=True)
    peers: dict[int, Peer] = {}
    start_ms, compared = broker.clock(), 0
    for row in rows:
        theirs = answers.get((row["conn"], row["header"]["opaque"]))
        if row["type"] == "response":
            continue
        broker.clock.advance(start_ms + row["t"] - broker.clock())
        peer = peers.setdefault(row["conn"], broker.connect(50_000 + row["conn"]))
        ours = [each for each in await peer.send(command_of(row)) if each.is_response]
        if theirs is None:
            continue
        (answer,) = ours
        compared += 1
        expected = command_of(theirs)
        assert answer.code == expected.code, row
        if row["code"] in (RequestCode.LOCK_BATCH_MQ, RequestCode.GET_CONSUMER_LIST_BY_GROUP):
            assert sets_of(answer) == sets_of(expected), row
        if row["code"] == RequestCode.HEART_BEAT and version == "5.5.0":
            ours_alone = {"kourouFeatures"}  # clients of Apache's pass over what they do not know
            fields = {k: v for k, v in (answer.ext_fields or {}).items() if k not in ours_alone}
            assert fields == expected.ext_fields
    assert compared > 100
    await broker.close()
