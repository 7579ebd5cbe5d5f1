"""BrokerProcessor: what brokers say of themselves: register, heartbeat, unregister."""

from __future__ import annotations

from kourou.namesrv.kv_config import ORDER_TOPIC_CONFIG
from kourou.namesrv.registration_request import read_registration, read_topic_table
from kourou.namesrv.state import NamesrvState
from kourou.protocol.bodies import (
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from kourou.transport.request import Processor, Request


class BrokerProcessor:
    """Requests that brokers send."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
        }

    def register(self, request: Request) -> None:
        """103: a broker and its topics. Slaves are told their master, all the order configuration."""
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
        """104: a broker stops."""
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
