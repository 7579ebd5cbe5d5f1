"""BrokerProcessor: requests from brokers: register, heartbeat, unregister.

A broker repeats its whole table every 30 s, so a registration's body is only skimmed first: a digest of the
relevant parts shows whether anything changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from kourou.errors import RequestError
from kourou.namesrv.broker_registration import BROKER_EXPIRY_MS, BrokerRegistration, TopicTable
from kourou.namesrv.kv_config import ORDER_TOPIC_CONFIG
from kourou.namesrv.state import NamesrvState
from kourou.protocol.bodies import (
    Body,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
    decode_body,
    decode_register_broker,
    encode_body,
)
from kourou.protocol.bodies.shape import Int32
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from kourou.protocol.versions import V3_0_11
from kourou.transport.request import Processor, Request

_NOTHING: Final = msgspec.Raw(b"")


class BrokerProcessor:
    """Requests from brokers: registration, unregistration, heartbeats."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
        }

    def register(self, request: Request) -> None:
        """103: a broker and its topics. The response has the master, for slaves, and the order
        configuration."""
        header = request.header(RegisterBrokerRequestHeader)
        registration = read_registration(header, request.body)
        routes = self._state.routes
        table = None
        if not routes.has_applied(registration):
            table = read_topic_table(header, request.body, request.version)
        result = routes.register(
            registration, table, connection=request.connection, now_ms=self._state.clock()
        )
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=result.ha_server_addr, master_addr=result.master_addr
        )
        request.reply(answer, self._order_topic_config())

    def _order_topic_config(self) -> bytes:
        if not self._state.config.return_order_topic_config_to_broker:
            return b""
        table = self._state.kv_config.namespace(ORDER_TOPIC_CONFIG)
        return b"" if table is None else encode_body(KVTable(table=table))

    def unregister(self, request: Request) -> None:
        """UNREGISTER_BROKER (104): remove a broker that stops."""
        header = request.header(UnRegisterBrokerRequestHeader)
        self._state.routes.unregister(header.broker_name, header.broker_addr)
        request.reply()

    def heartbeat(self, request: Request) -> None:
        """904: a sign of life between registrations."""
        header = request.header(BrokerHeartbeatRequestHeader)
        self._state.routes.record_heartbeat(
            header.broker_name, header.broker_addr, now_ms=self._state.clock()
        )
        request.reply()

    def query_data_version(self, request: Request) -> None:
        """322: has the broker's table changed since it registered? Counts as a sign of life."""
        header = request.header(QueryDataVersionRequestHeader)
        asked = decode_body(request.body, DataVersion)
        broker = self._state.routes.record_heartbeat(
            header.broker_name, header.broker_addr, now_ms=self._state.clock()
        )
        known = None if broker is None else broker.known_version
        body = b"" if known is None else encode_body(known)
        request.reply(QueryDataVersionResponseHeader(changed=known != asked), body)

    def get_broker_member_group(self, request: Request) -> None:
        """901: the brokers that share a name."""
        header = request.header(GetBrokerMemberGroupRequestHeader)
        members = self._state.views.broker_member_group(header.cluster_name, header.broker_name)
        body = GetBrokerMemberGroupResponseBody(broker_member_group=members)
        request.reply(body=encode_body(body, bare_int_keys=True))


class _Settings(Body, gc=False):
    """A TopicConfig without what routes do not show: half the time and memory to read."""

    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_sys_flag: Int32 = 0


class TopicConfigTable(Body):
    """The topics of a broker, as far as a name server reads them."""

    topic_config_table: dict[str, _Settings] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}


class RegistrationContent(Body):
    """RegisterBrokerBody, as far as a name server reads it."""

    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)
    filter_server_list: list[str] = []


class _TableSkim(msgspec.Struct, rename="camel"):
    """Without mappingDataVersion: a 5.x broker writes the time of sending there."""

    data_version: msgspec.Raw = _NOTHING
    topic_config_table: msgspec.Raw = _NOTHING
    topic_queue_mapping_info_map: msgspec.Raw = _NOTHING


class _BodySkim(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _TableSkim
    filter_server_list: msgspec.Raw = _NOTHING


_skim: Final = msgspec.json.Decoder(_BodySkim).decode


def read_registration(header: RegisterBrokerRequestHeader, body: bytes) -> BrokerRegistration:
    """Who registers. Refuses a body that was damaged on its way."""
    if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
        raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    return BrokerRegistration(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        broker_addr=header.broker_addr,
        ha_server_addr=header.ha_server_addr,
        zone_name=header.zone_name,
        timeout_ms=_timeout_ms(header.heartbeat_timeout_millis),
        enable_acting_master=header.enable_acting_master,
        digest=_digest(body),
    )


def read_topic_table(header: RegisterBrokerRequestHeader, body: bytes, version: int) -> TopicTable:
    """The topics in the body of a broker of this version; without a body, none."""
    if not body:
        return TopicTable()
    if version < V3_0_11:
        return _topic_table(decode_body(body, TopicConfigTable), ())
    if header.compressed:
        packed = decode_register_broker(body, compressed=True, version=version)
        return _topic_table(packed.topic_config_serialize_wrapper, packed.filter_server_list)
    content = decode_body(body, RegistrationContent)
    return _topic_table(content.topic_config_serialize_wrapper, content.filter_server_list)


def _topic_table(
    table: TopicConfigTable | TopicConfigSerializeWrapper, filter_servers: Sequence[str]
) -> TopicTable:
    return TopicTable(
        data_version=table.data_version,
        topics=table.topic_config_table,
        mappings=table.topic_queue_mapping_info_map,
        filter_servers=filter_servers,
    )


def _timeout_ms(asked: int | None) -> int:
    # Zero or less would expire the broker at the next scan.
    return asked if asked is not None and asked > 0 else BROKER_EXPIRY_MS


def _digest(body: bytes) -> int:
    # With a $ref in it, a part does not tell what it means without the rest. No topic's name has a
    # dollar sign, and one byte is found at memory speed, four are not.
    if body.startswith(b"{") and b"$" not in body:
        try:
            skim = _skim(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return hash(body)
        table = skim.topic_config_serialize_wrapper
        parts = (table.data_version, table.topic_config_table, table.topic_queue_mapping_info_map)
        return hash((*map(bytes, parts), bytes(skim.filter_server_list)))
    return hash(body)
