"""Readiness of servers: a name server responds, a master stores a message, a slave follows its master.

The message goes to the topic that every broker has under its own name, as in Apache's `sendMsgStatus`; it is
never consumed. Requests are direct, so that a broker can be probed before it is registered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.client.core.api import broker_instead
from kourou.client.core.credentials import Credentials
from kourou.client.core.refusals import response_error
from kourou.client.core.settings import ClientSettings
from kourou.client.core.unique_id import UniqueIds
from kourou.client.producer.send_result import SEND_STATUSES, SendStatus
from kourou.clock import wall_ms
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import KourouError, ProtocolError, ResponseError
from kourou.protocol.bodies import BrokerData, ClusterInfo, HARuntimeInfo, decode_body
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from kourou.protocol.properties import MessageConst, encode_properties
from kourou.transport.client import RemotingClient
from kourou.transport.settings import ClientTlsConfig

PROBE_GROUP: Final = "KOUROU_READY"
PROBE_BODY: Final = b"ready?"
_SLAVE: Final = "SLAVE"
_SYNC_MASTER: Final = "SYNC_MASTER"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The state of one server; without a `problem` it is ready."""

    server: str
    problem: str = ""
    role: str = ""
    """The role of a broker other than ASYNC_MASTER, with what its slaves are lacking."""

    @property
    def is_ready(self) -> bool:
        return not self.problem


class ReadinessProbe:
    """Probes servers, with `timeout_ms` per request. Use it on one loop, and `stop` it. A broker with access
    control needs the keys of an administrator."""

    def __init__(
        self,
        timeout_ms: int,
        *,
        credentials: Credentials | None = None,
        tls: bool | ClientTlsConfig = False,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._credentials = credentials
        self._ids = UniqueIds()
        settings = ClientSettings(connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, tls=tls)
        self._remoting = RemotingClient(settings.remoting_config())

    async def stop(self) -> None:
        """Close the connections; the probe cannot be used afterwards."""
        await self._remoting.stop()

    async def namesrv(self, address: str, broker_names: list[str]) -> Readiness:
        """Whether a name server responds, and knows these brokers."""
        server = f"name server {address}"
        try:
            known = await self._brokers_of(address)
        except (KourouError, OSError) as error:
            return Readiness(server, await self._broker_instead(address, error) or str(error))
        missing = [name for name in broker_names if name not in known]
        return Readiness(server, f"{', '.join(missing)} is not registered here" if missing else "")

    async def broker(self, address: str) -> tuple[Readiness, str | None]:
        """Whether a broker stores a message, or follows its master, and its name if it responds."""
        name: str | None = None
        try:
            config = await self._config_of(address)
            name, role = config["brokerName"], config.get("brokerRole", "")
            if role == _SLAVE:
                await self._check_following(address)
            else:
                _check_permission(config)
                role = _master_text(role, await self._store(address, name))
        except (KourouError, OSError) as error:
            problem = await self._namesrv_instead(address, error) or str(error)
            return Readiness(f"broker {name or 'at'} {address}", problem), name
        return Readiness(f"broker {name} {address}", role=role), name

    async def _config_of(self, address: str) -> dict[str, str]:
        answer = await self._call(address, RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))
        config = properties_dict(parse_properties(answer.body.decode("utf-8", "replace")))
        if not config.get("brokerName"):
            raise ProtocolError(f"{address} does not report a brokerName; is it a broker?")
        return config

    async def _broker_instead(self, address: str, error: Exception) -> str | None:
        """The message if the address of a broker was given as a name server's; None otherwise."""
        if not _is_not_supported(error):
            return None
        try:
            return f"this {broker_instead(await self._config_of(address))}"
        except (KourouError, OSError):
            return None

    async def _namesrv_instead(self, address: str, error: Exception) -> str | None:
        """The message if the address of a name server was given as a broker's; None otherwise."""
        if not _is_not_supported(error):
            return None
        try:
            known = await self._brokers_of(address)
        except (KourouError, OSError):
            return None
        addresses = sorted(each for broker in known.values() for each in broker.broker_addrs.values())
        where = f"its brokers are {', '.join(addresses)}" if addresses else "no broker is registered there"
        return f"this is a name server, not a broker; {where}"

    async def _brokers_of(self, namesrv: str) -> dict[str, BrokerData]:
        answer = await self._call(namesrv, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return decode_body(answer.body, ClusterInfo).broker_addr_table

    async def _check_following(self, address: str) -> None:
        """KourouError unless a slave follows its master. Slaves of RocketMQ 4 do not report it."""
        try:
            answer = await self._call(address, RemotingCommand.request(RequestCode.GET_BROKER_HA_STATUS))
        except ResponseError as error:
            if _is_not_supported(error):
                return
            raise
        info = decode_body(answer.body, HARuntimeInfo).ha_client_runtime_info
        if info.kourou_problem or not info.master_addr:
            raise ProtocolError(info.kourou_problem or "it does not know its master yet")

    async def _store(self, address: str, topic: str) -> SendStatus:
        header = SendMessageRequestHeaderV2(
            producer_group=PROBE_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=wall_ms(),
            flag=0,
            properties=encode_properties(
                {MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: self._ids.next_id()}
            ),
        )
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, PROBE_BODY)
        answer = await self._signed_call(address, command)
        status = SEND_STATUSES.get(answer.code)
        # A missing slave does not prevent storing; a disk that does not keep up does.
        if status is None or status is SendStatus.FLUSH_DISK_TIMEOUT:
            raise self._error(answer, address)
        return status

    async def _call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        answer = await self._signed_call(address, command)
        if answer.code != ResponseCode.SUCCESS:
            raise self._error(answer, address)
        return answer

    async def _signed_call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if self._credentials is not None:
            command.ext_fields = command.ext_fields or {}
            self._credentials.sign(command.ext_fields, command.body)
        return await self._remoting.call(address, command, self._timeout_ms)

    def _error(self, answer: RemotingCommand, address: str) -> ResponseError:
        return response_error(answer.code, answer.remark or "", address, self._credentials)


def _is_not_supported(error: Exception) -> bool:
    return isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _master_text(role: str, status: SendStatus) -> str:
    """A master's role, with what its slaves are lacking; empty for the usual one."""
    if role != _SYNC_MASTER:
        return ""
    return role if status is SendStatus.SEND_OK else f"{role}, {status.name}"


def _check_permission(config: dict[str, str]) -> None:
    """Clients obey the permission in routes; the broker itself would accept the message."""
    permission = config.get("brokerPermission", "")
    if permission.isdecimal() and not int(permission) & PermName.WRITE:
        raise ResponseError(
            ResponseCode.NO_PERMISSION, f"brokerPermission={permission}: clients may not send to it"
        )
