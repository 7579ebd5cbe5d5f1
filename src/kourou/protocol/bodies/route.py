"""Routes of topics and addresses of brokers: responses of the name server (105, 106, 901)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import field

from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.shape import V5, Body, Int32, Int64
from kourou.protocol.bodies.topics import TopicQueueMappingInfo
from kourou.protocol.codes import PermName


class QueueData(Body):
    """How many queues of a topic one broker holds, and what may be done with them."""

    broker_name: str = ""
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0


MASTER_ID: Final = 0
"""The id of a master; slaves have others."""


class BrokerData(Body):
    """The addresses of a broker name, by broker id."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Int64, str] = {}
    enable_acting_master: Annotated[bool, V5] = False
    zone_name: Annotated[str | None, V5] = None


class TopicRouteData(Body):
    """Queues and brokers of one topic (105 response, 217 request)."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: Annotated[dict[str, TopicQueueMappingInfo] | None, V5] = None

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that may be read, sorted."""
        return sorted(
            {
                MessageQueue(topic, queue.broker_name, queue_id)
                for queue in self.queue_datas
                if queue.perm & PermName.READ
                for queue_id in range(queue.read_queue_nums)
            }
        )

    def encode(self, *, standard_json: bool = True, v4: bool = False) -> bytes:
        """The body as Apache writes it: to callers below version 401 not `standard_json`, with bare
        broker ids; `v4` as a 4.x name server, without the fields of 5.x."""
        return encode_body(self, v4=v4, bare_int_keys=not standard_json)


class ClusterInfo(Body):
    """All brokers by name, and broker names by cluster (106 response)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body):
    """The online members of one broker name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Int64, str] = {}


class GetBrokerMemberGroupResponseBody(Body):
    """Response to GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMemberGroup = field(default_factory=BrokerMemberGroup)
