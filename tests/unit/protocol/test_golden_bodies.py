"""Bodies recorded from Apache RocketMQ: read, write, and get the same bytes.

Every JSON body of both recordings takes part, except the answers to 354, 2003 and 200074, tools of
5.x for which there is no shape. Integer keys are written bare where Apache wrote them so.
"""

import base64
import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kourou.protocol import bodies as b
from kourou.protocol import fastjson
from kourou.protocol.bodies.fitting import fit

GOLDEN = Path(__file__).parents[2] / "golden"

REQUESTS: dict[int, Any] = {
    34: b.HeartbeatData,
    41: b.LockBatchRequestBody,
    42: b.UnlockBatchRequestBody,
    46: b.CheckClientRequestBody,
    103: b.RegisterBrokerBody,
    200: b.SubscriptionGroupConfig,
    220: b.ResetOffsetBody,
    400: b.QueryAssignmentRequestBody,
    401: b.SetMessageRequestModeRequestBody,
}
RESPONSES: dict[int, Any] = {
    21: b.TopicConfigSerializeWrapper,
    28: b.KVTable,
    38: b.GetConsumerListByGroupResponseBody,
    41: b.LockBatchResponseBody,
    103: b.KVTable,
    105: b.TopicRouteData,
    106: b.ClusterInfo,
    201: b.SubscriptionGroupWrapper,
    202: b.TopicStatsTable,
    203: b.ConsumerConnection,
    204: b.ProducerConnection,
    206: b.TopicList,
    208: b.ConsumeStats,
    222: b.ResetOffsetBody,
    300: b.GroupList,
    305: b.TopicList,
    307: b.ConsumerRunningInfo,
    309: b.ConsumeMessageDirectlyResult,
    315: b.BrokerStatsData,
    317: b.ConsumeStatsList,
    321: b.QueryConsumeQueueResponseBody,
    328: b.ProducerTableInfo,
    351: b.TopicConfigAndQueueMapping,
    400: b.QueryAssignmentResponseBody,
    907: b.HARuntimeInfo,
}
WITHOUT_SHAPE = {354, 2003, 200074}


class Recorded(NamedTuple):
    """One JSON body: who asked for what, and its shape, if there is one."""

    code: int
    is_response: bool
    raw: bytes

    @property
    def shape(self) -> Any:
        return (RESPONSES if self.is_response else REQUESTS).get(self.code)


@cache
def recorded(version: str) -> list[Recorded]:
    with gzip.open(GOLDEN / f"frames-{version}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [body for line in lines if (body := json_body(json.loads(line))) is not None]


def json_body(frame: dict[str, Any]) -> Recorded | None:
    length = frame["bodyLength"]
    raw = base64.b64decode(frame["frame"])[-length:] if length else b""
    # Everything else is a stored record, or properties text.
    if not raw.startswith(b"{"):
        return None
    is_response = frame["type"] == "response"
    return Recorded(frame["requestCode"] if is_response else frame["code"], is_response, raw)


def has_bare_int_keys(raw: bytes) -> bool:
    return b'{0:"' in raw


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_apaches_bodies_come_back_byte_for_byte(version: str) -> None:
    differing: Counter[tuple[int, bool]] = Counter()
    for body in recorded(version):
        if body.code in WITHOUT_SHAPE:
            continue
        written = b.encode_body(
            b.decode_body(body.raw, body.shape),
            v4=version.startswith("4"),
            bare_int_keys=has_bare_int_keys(body.raw),
        )
        if written != body.raw:
            differing[body.code, body.is_response] += 1

    assert not differing


@pytest.mark.parametrize(("version", "bodies"), [("4.9.7", 1218), ("5.5.0", 1469)])
def test_the_recordings_hold_what_the_table_names(version: str, bodies: int) -> None:
    found = recorded(version)

    assert len(found) == bodies
    unknown = {body.code for body in found if body.shape is None}
    assert unknown == (WITHOUT_SHAPE if version == "5.5.0" else set())


def test_every_entry_of_the_table_is_met_in_some_recording() -> None:
    met = {(body.code, body.is_response) for version in ("4.9.7", "5.5.0") for body in recorded(version)}

    assert {(code, False) for code in REQUESTS} | {(code, True) for code in RESPONSES} <= met


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_tolerant_way_reads_the_same_as_the_fast_one(version: str) -> None:
    distinct = {body.raw: body for body in recorded(version) if body.shape is not None}
    for raw, body in distinct.items():
        assert fit(fastjson.parse(raw), body.shape) == b.decode_body(raw, body.shape)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_quoting_integer_keys_changes_nothing_else(version: str) -> None:
    clusters = [body for body in recorded(version) if body.shape is b.ClusterInfo]
    assert clusters and all(has_bare_int_keys(body.raw) for body in clusters)

    for body in clusters:
        written = b.encode_body(b.decode_body(body.raw, b.ClusterInfo), v4=version.startswith("4"))
        assert written != body.raw
        assert fastjson.parse(written) == fastjson.parse(body.raw) == json.loads(written)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_registrations_survive_the_packed_form(version: str) -> None:
    number = 407 if version == "4.9.7" else 513
    registrations = [body.raw for body in recorded(version) if body.shape is b.RegisterBrokerBody][:10]
    assert registrations

    for raw in registrations:
        body = b.decode_register_broker(raw, version=number)
        packed = body.encode(compressed=True, version=number)
        unpacked = b.decode_register_broker(packed, compressed=True, version=number)
        for topic in body.topic_config_serialize_wrapper.topic_config_table.values():
            topic.order, topic.topic_sys_flag = False, 0  # not part of the packed form
        body.topic_config_serialize_wrapper.mapping_data_version = b.DataVersion()
        assert unpacked == body
