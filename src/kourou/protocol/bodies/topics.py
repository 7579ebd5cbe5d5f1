"""Topics as brokers configure them: TopicConfig, its tables, and the static-topic mapping of 5.x."""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import field

from kourou.protocol.bodies.shape import V5, Body, Int32, Int64


class TopicFilterType(enum.StrEnum):
    """Whether a message of the topic has one tag or several."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class DataVersion(Body):
    """When and how often a table changed. Two are the same only if all three fields are."""

    timestamp: Int64 = 0
    counter: Int64 = 0
    state_version: Annotated[Int64, V5] = 0


class TopicConfig(Body):
    """One topic on one broker (17, 351)."""

    topic_name: str = ""
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: Annotated[dict[str, str], V5] = {}


class TopicQueueMappingInfo(Body):
    """Which logical queues of a static topic a broker holds now."""

    topic: str = ""
    total_queues: Int32 = 0
    bname: str = ""
    epoch: Int64 = 0
    scope: str = "__global__"
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = {}


class LogicQueueMappingItem(Body):
    """A run of a logical queue's offsets that lies in one physical queue. -1 means not known yet."""

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str = ""
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """TopicQueueMappingInfo with the history of each logical queue (513, 351 with `lo`)."""

    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = {}


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker (21, and within 103)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: Annotated[DataVersion, V5] = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: Annotated[dict[str, TopicQueueMappingDetail], V5] = {}
    topic_queue_mapping_info_map: Annotated[dict[str, TopicQueueMappingInfo], V5] = {}


class TopicList(Body):
    """Names of topics (206, 224, 304, 305, 311 to 313, 343)."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class TopicConfigList(Body):
    """Topics to create in one call (18)."""

    topic_config_list: list[TopicConfig] = []


class TopicConfigAndQueueMapping(TopicConfig):
    """One topic with its static-topic mapping, if it has one (351 with `lo`)."""

    mapping_detail: TopicQueueMappingDetail | None = None
