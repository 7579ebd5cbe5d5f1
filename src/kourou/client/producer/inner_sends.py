"""InnerSends: the few messages that a consumer sends: copies for the retry topic, traces.

One attempt each, to the topic's queues in turn. Messages of the application go through a producer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.core.subscription import now_ms
from kourou.errors import NoRouteError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.names import AUTO_CREATE_TOPIC_KEY_TOPIC, CLIENT_INNER_PRODUCER_GROUP
from kourou.protocol.properties import encode_properties

_TIMEOUT_MS: Final = 5_000
# Stored, whether or not it was flushed and replicated in time.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


class InnerSends:
    """Sends over one client's connections."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._turns = itertools.count()

    async def send(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
    ) -> None:
        """Send once; on return a broker has stored it. KourouError on failure."""
        queues = (await self._instance.routes.get(topic, to_publish=True)).publish_queues
        queue = queues[next(self._turns) % len(queues)]
        address = self._instance.routes.master(queue.broker_name)
        if address is None:
            raise NoRouteError(topic, f"broker {queue.broker_name!r} has no master now")
        header = SendMessageRequestHeaderV2(
            producer_group=CLIENT_INNER_PRODUCER_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=now_ms(),
            flag=flag,
            properties=encode_properties(properties),
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        command = self._instance.api.command(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self._instance.api.exchange(address, command, _TIMEOUT_MS)
        if answer.code not in _STORED:
            raise self._instance.api.response_error(answer, address)
