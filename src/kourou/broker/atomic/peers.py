"""BrokerPeers: requests from this broker to others, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.errors import ConnectError, KourouError, ProtocolError, RemotingError, ResponseError
from kourou.protocol.atomic import Outcome, decode_parts
from kourou.protocol.bodies import ClusterInfo, decode_body
from kourou.protocol.bodies.producer_sequences import ProducerSequences
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.atomic import AtomicOutcomeResponseHeader, QueryAtomicRequestHeader
from kourou.protocol.headers.command_header import CommandHeader
from kourou.protocol.headers.producers import GetSequencesRequestHeader
from kourou.protocol.names import ATOMIC_TOPIC

if TYPE_CHECKING:
    from kourou.transport.client import RemotingClient

_TIMEOUT_MS: Final = 3_000


class BrokerPeers:
    """The masters of broker names, as the name servers know them; `own_name` is this broker's."""

    def __init__(
        self,
        client: RemotingClient,
        namesrvs: Callable[[], tuple[str, ...]],
        *,
        own_name: str,
        own_address: str,
    ) -> None:
        self._client = client
        self._own_name = own_name
        self._own_address = own_address
        self._namesrvs = namesrvs
        self._addresses: dict[str, str] = {}

    async def call(
        self, broker_name: str, code: RequestCode, header: CommandHeader, body: bytes = b""
    ) -> RemotingCommand:
        """The response of the master of `broker_name`. KourouError: there is none, or it is an error; the
        next call looks for the master again."""
        address = self._addresses.get(broker_name) or await self._find(broker_name)
        try:
            command = RemotingCommand.request(code, header, body)
            answer = await self._client.call(address, command, _TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise ResponseError(answer.code, answer.remark or "", address)
        except KourouError:
            self._addresses.pop(broker_name, None)
            raise
        return answer

    async def query_atomic(self, broker_name: str, atomic_id: str) -> tuple[Outcome, list[int]]:
        """The outcome of an atomic publish, and the parts that this broker has to publish, from its
        coordinator. KourouError: it does not answer."""
        header = QueryAtomicRequestHeader(kourou_atomic_id=atomic_id, kourou_broker_name=self._own_name)
        answer = await self.call(broker_name, RequestCode.QUERY_KOUROU_ATOMIC, header)
        text = answer.header(AtomicOutcomeResponseHeader).kourou_outcome
        try:
            return Outcome(text), decode_parts(answer.body or b"")
        except ValueError:
            raise ProtocolError(f"atomic publish {atomic_id}: outcome {text!r} is not known") from None

    async def epoch_of(self, broker_name: str, producer_id: str) -> int:
        """The newest epoch of a producer at its coordinator; -1: it is not known there. KourouError: the
        coordinator does not answer."""
        header = GetSequencesRequestHeader(kourou_producer_id=producer_id, topic=ATOMIC_TOPIC)
        answer = await self.call(broker_name, RequestCode.GET_KOUROU_SEQUENCES, header)
        return ProducerSequences.decode(answer.body).epoch

    async def _find(self, broker_name: str) -> str:
        if broker_name == self._own_name:
            return self._own_address
        problem = "no name server is configured"
        for namesrv in self._namesrvs():
            try:
                command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await self._client.call(namesrv, command, _TIMEOUT_MS)
            except RemotingError as error:
                problem = str(error)
                continue
            brokers = decode_body(answer.body or b"{}", ClusterInfo).broker_addr_table
            master = brokers[broker_name].broker_addrs.get(MASTER_ID) if broker_name in brokers else None
            if master is not None:
                self._addresses[broker_name] = master
                return master
            problem = f"the name server {namesrv} knows no master of that name"
        raise ConnectError(f"broker {broker_name!r}", problem)
