"""BrokerFeatures: which of Kourou's extensions brokers offer, learned once for each connection.

A broker says so in every answer to a heartbeat (protocol/features.py). The first user of a connection sends
one that names no group, which every broker answers and which registers nothing. What was learned belongs to
the connection: behind the next one there may be another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kourou.client.core.api import ClientApi
from kourou.errors import CallTimeoutError
from kourou.protocol.bodies import HeartbeatData, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import FEATURES_FIELD, Feature, parse_features
from kourou.transport.connection import Connection
from kourou.transport.pending_calls import Answer

_ATTRIBUTE: Final = "kourou-features"


class BrokerFeatures:
    """Asks the brokers of one client."""

    def __init__(self, api: ClientApi, client_id: str, request_timeout_ms: int) -> None:
        self._api = api
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms

    async def of(self, address: str, max_timeout_ms: int | None = None) -> frozenset[Feature]:
        """What the broker at `address` offers; it holds for a request that is sent before anything else is
        waited for. RemotingError when the broker does not answer within the time for a request, or within
        `max_timeout_ms` if that is less."""
        connection = self._api.remoting.open_connection(address)
        if connection is not None:
            known = connection.attributes.get(_ATTRIBUTE)
            if isinstance(known, frozenset):
                return known
        timeout_ms = self._request_timeout_ms
        if max_timeout_ms is not None and max_timeout_ms < timeout_ms:
            timeout_ms = max_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    connection = await self._api.remoting.connection(address)
                    known = connection.attributes.get(_ATTRIBUTE)
                    if known is None:
                        known = connection.attributes[_ATTRIBUTE] = self._request(connection)
                    if isinstance(known, frozenset):
                        return known
                    # Shielded: others wait for the same answer.
                    answer = await asyncio.shield(known)
                    # Not left to the callback: an answer that is there already lets nothing else run.
                    connection.attributes[_ATTRIBUTE] = _announced(answer)
        except TimeoutError:
            raise CallTimeoutError(address, RequestCode.HEART_BEAT, timeout_ms) from None

    def _request(self, connection: Connection) -> Answer:
        body = encode_body(HeartbeatData(client_id=self._client_id))
        command = self._api.command(RequestCode.HEART_BEAT, body=body)
        answer = connection.call_nowait(command, self._request_timeout_ms)
        answer.add_done_callback(_answered(connection))
        return answer


def _answered(connection: Connection) -> Callable[[Answer], None]:
    def note(answer: Answer) -> None:
        if answer.cancelled() or answer.exception() is not None:
            del connection.attributes[_ATTRIBUTE]  # the next user asks again
        else:
            connection.attributes[_ATTRIBUTE] = _announced(answer.result())

    return note


def _announced(command: RemotingCommand) -> frozenset[Feature]:
    if command.code != ResponseCode.SUCCESS:
        return frozenset()
    return parse_features((command.ext_fields or {}).get(FEATURES_FIELD))
