"""TopicRoutes: the queues of topics on all brokers, as the name servers know them.

Fetched when a topic is asked for first, and again every `loadBalancePollNameServerInterval` as long as it is
asked for. What is known counts while no name server answers; a topic that they do not have is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import MessageQueue, TopicRouteData, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig
    from kourou.transport.client import RemotingClient
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

MAX_TOPICS: Final = 10_000
"""Topics that are refreshed; more are fetched each time they are asked for. Ten thousand requests in 30 s are
what a name server answers beside its work."""
UNUSED_MS: Final = 120_000
"""A topic that was not asked for so long is not refreshed any more; clients ask every 20 s."""
_TIMEOUT_MS: Final = 3_000


@dataclass(slots=True)
class _Known:
    queues: Sequence[MessageQueue]
    used_ms: int


class TopicRoutes:
    """The routes that one broker was asked for. `namesrvs` are the current name servers."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        client: RemotingClient,
        namesrvs: Callable[[], tuple[str, ...]],
        tasks: TaskOwner,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._client = client
        self._namesrvs = namesrvs
        self._tasks = tasks
        self._monotonic_ms = monotonic_ms
        self._known: dict[str, _Known] = {}
        # One request for each topic at a time, however many clients begin at once.
        self._fetching: dict[str, asyncio.Future[Sequence[MessageQueue] | None]] = {}

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues that may be read, sorted, if they are known; None: `fetch_queues` may find them."""
        known = self._known.get(topic)
        if known is None:
            return None
        known.used_ms = self._monotonic_ms()
        return known.queues

    async def fetch_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues that may be read; None: no name server answers, or none has the topic."""
        found = self._fetching.get(topic)
        if found is None:
            found = self._fetching[topic] = asyncio.get_running_loop().create_future()
            self._tasks.start(self._fetch_for(topic, found), "topic-route")
        return await asyncio.shield(found)

    async def _fetch_for(self, topic: str, found: asyncio.Future[Sequence[MessageQueue] | None]) -> None:
        """In a task of its own: the request that came first may be given up, and others wait, too."""
        queues = None
        try:
            queues = await self._fetch(topic)
        finally:
            self._fetching.pop(topic, None)
            found.set_result(queues)

    async def _fetch(self, topic: str) -> Sequence[MessageQueue] | None:
        known = self._known.get(topic)
        try:
            route = await self._route(topic)
        except KourouError as error:
            _log.debug("topic %s: the name servers are not available: %s", topic, error)
            return None if known is None else known.queues
        queues = () if route is None else tuple(route.subscribe_queues(topic))
        if not queues:
            self._known.pop(topic, None)
            return None
        if known is not None:
            known.queues = queues
        elif len(self._known) < MAX_TOPICS:
            self._known[topic] = _Known(queues, self._monotonic_ms())
        return queues

    async def _route(self, topic: str) -> TopicRouteData | None:
        """The route; None: the first name server that answers does not have it. KourouError: none answers."""
        problem: KourouError | None = None
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        for address in self._namesrvs():
            command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            try:
                answer = await self._client.call(address, command, _TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    return decode_body(answer.body or b"", TopicRouteData)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                problem = ResponseError(answer.code, answer.remark or "", address)
            except KourouError as error:
                problem = error
        raise problem or ResponseError(ResponseCode.SYSTEM_ERROR, "no name server is configured", "")

    async def keep_fresh(self) -> None:
        """Fetch what is in use again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._config.current.load_balance_poll_name_server_interval / 1_000)
            await self.refresh()

    async def refresh(self) -> None:
        """Fetch what is in use again, one after the other, and forget what is not."""
        oldest_ms = self._monotonic_ms() - UNUSED_MS
        for topic, known in list(self._known.items()):
            if known.used_ms < oldest_ms:
                self._known.pop(topic, None)
            else:
                await self.fetch_queues(topic)
