"""ClientRegistry: the client of each call, and its end.

A client is there from its first call on. It is gone when it says so (NotifyClientTermination), or when it has
no Telemetry stream and has not called for `expiry_s`; then its links are closed, and with them what brokers
know of it. A stream ends when the account that opened it is gone or has another secret key: the client opens
one anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kourou.access.model import Account
from kourou.proxy.access.grpc_login import ProxyAccess
from kourou.proxy.clients.proxy_client import ClientKey, ProxyClient
from kourou.proxy.http2.call import Call, GrpcCode
from kourou.proxy.links.broker_link import BrokerLink, Brokers
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import Code
from kourou.transport.request import Request
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.proxy.clients.telemetry_stream import TelemetryStream

_log = logging.getLogger(__name__)

CLIENT_ID: Final = "x-mq-client-id"
EXPIRY_S: Final = 120.0
"""How long a client without a Telemetry stream stays after its last call, as in Apache's proxy."""
_SCAN_S: Final = 10.0
_MAX_CLIENTS: Final = 20_000
"""Clients at a time: without a limit, calls with ever new ids would fill the memory."""
_MAX_ID_CHARS: Final = 512
_LAST_REQUESTS_S: Final = 3.0
_LAST_REQUESTS_AT_STOP_S: Final = 1.0
_LastRequests: TypeAlias = Callable[[ProxyClient], Coroutine[Any, Any, None]]


class ClientRegistry:
    """The clients of a proxy."""

    def __init__(
        self,
        brokers: Brokers,
        access: ProxyAccess,
        tasks: TaskOwner,
        *,
        expiry_s: float = EXPIRY_S,
        max_clients: int = _MAX_CLIENTS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._brokers = brokers
        self._access = access
        self._tasks = tasks
        self._expiry_s = expiry_s
        self._max_clients = max_clients
        self._clients: dict[ClientKey, ProxyClient] = {}
        self._scan_timer: asyncio.TimerHandle | None = None
        self.on_request: Callable[[ProxyClient, Request], None] | None = None
        """Gets the requests of brokers to a client; what it raises becomes the response."""
        self.on_connect: Callable[[ProxyClient, BrokerLink], None] | None = None
        """Called when a link of a client has a new connection: the broker does not know the client yet."""
        self.on_leave: list[_LastRequests] = []
        """Run when a client is gone, while its links are still open: for last requests."""
        self.on_stop: list[_LastRequests] = []
        """The same for each client when the proxy stops."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ProxyClient]:
        return iter(list(self._clients.values()))

    def of(self, call: Call) -> ProxyClient:
        """The client that calls. StatusError: it has no id, or its signature is wrong."""
        client_id = call.metadata.get(CLIENT_ID, "")
        if not client_id or len(client_id) > _MAX_ID_CHARS:
            raise StatusError(
                Code.CLIENT_ID_REQUIRED,
                f"the call needs the metadata {CLIENT_ID}, of at most {_MAX_ID_CHARS} characters",
            )
        account = self._access.login(call)
        peer = call.peer
        key = ClientKey(client_id, "" if account is None else account.name, peer.rpartition(":")[0])
        client = self._clients.get(key)
        if client is None:
            client = self._join(key, account, peer)
        elif client.account is not account and client.account != account:
            self._change_account(client, account)
        client.last_call_s = self._loop.time()
        return client

    def _change_account(self, client: ProxyClient, account: Account | None) -> None:
        """Brokers refuse what is signed with an old secret key."""
        old = client.account
        self._tasks.start(client.links.close(), f"close old links of {client.client_id}")
        self._set_links(client, account)
        if old is not None and account is not None and old.secret_key != account.secret_key:
            # Their next settings would count as a wrong login.
            for stream in list(client.streams):
                stream.fail(
                    GrpcCode.UNAVAILABLE, "the secret key has changed; open a stream with the new one"
                )

    def leave(self, client: ProxyClient, reason: str) -> None:
        """Drop a client. Its links are closed once its last requests are answered."""
        if self._clients.get(client.key) is not client:
            return
        del self._clients[client.key]
        _log.info("client %s at %s is gone: %s", client.client_id, client.peer, reason)
        ending = self._let_go(client, self.on_leave, _LAST_REQUESTS_S)
        self._tasks.start(ending, f"end of client {client.client_id}")

    async def _let_go(
        self, client: ProxyClient, all_last_requests: Sequence[_LastRequests], timeout_s: float
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                for last_requests in all_last_requests:
                    await last_requests(client)
        except TimeoutError:
            _log.info("the last requests of client %s are not answered", client.client_id)
        finally:
            await client.links.close()

    def scan(self, now_s: float) -> None:
        """Drop the clients that have not been heard of for too long."""
        for client in self:
            if now_s - client.last_call_s > self._expiry_s:
                self._end_refused(client.streams)
                client.last_call_s = now_s
                if not client.streams:
                    self.leave(client, f"not heard of for {self._expiry_s:.0f} s")

    def _end_refused(self, streams: Iterable[TelemetryStream]) -> None:
        """End the streams of accounts that may not call any more: their other calls are refused."""
        for stream in list(streams):
            try:
                self._access.login(stream.call)
            except StatusError as error:
                stream.fail(GrpcCode.UNAUTHENTICATED, error.words)

    async def stop(self) -> None:
        """Make the last requests of all clients, then close their links."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        clients, self._clients = list(self._clients.values()), {}
        stops = [self._let_go(client, self.on_stop, _LAST_REQUESTS_AT_STOP_S) for client in clients]
        await asyncio.gather(*stops)

    def _join(self, key: ClientKey, account: Account | None, peer: str) -> ProxyClient:
        if len(self._clients) >= self._max_clients:
            raise StatusError(
                Code.TOO_MANY_REQUESTS,
                f"{self._max_clients} clients are connected, as many as this proxy serves",
            )
        client = ProxyClient(key, peer, self._loop.time())
        self._set_links(client, account)
        self._clients[key] = client
        if self._scan_timer is None:
            self._scan_timer = self._loop.call_later(_SCAN_S, self._scan_again)
        return client

    def _set_links(self, client: ProxyClient, account: Account | None) -> None:
        client.account = account
        client.links = self._brokers.links_of(
            client.client_id,
            account,
            client.peer,
            partial(self._requested, client),
            on_connect=partial(self._connected, client),
        )

    def _requested(self, client: ProxyClient, request: Request) -> None:
        if self.on_request is not None:
            self.on_request(client, request)

    def _connected(self, client: ProxyClient, link: BrokerLink) -> None:
        if self.on_connect is not None:
            self.on_connect(client, link)

    def _scan_again(self) -> None:
        self._scan_timer = None
        self.scan(self._loop.time())
        if self._clients:
            self._scan_timer = self._loop.call_later(_SCAN_S, self._scan_again)
