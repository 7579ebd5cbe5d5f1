"""The table of requests: complete, strict, and by the names that processors read."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from kourou.access.model import (
    AccessRefusedError,
    Action,
    Need,
    Needs,
    Resource,
    ResourceType,
)
from kourou.access.needs import ADMINISTRATOR, NOTHING
from kourou.access.openings import Opening
from kourou.access.requests import (
    ADMINISTRATORS,
    ANYONE,
    AUDITED,
    BODY_CODES,
    CLUSTER_GET,
    CLUSTER_UPDATE,
    LISTS,
    NEEDS,
    RequestTable,
)
from kourou.errors import ProtocolError
from kourou.protocol.atomic import StagedGroup, encode_groups
from kourou.protocol.bodies.assignment import QueryAssignmentRequestBody, SetMessageRequestModeRequestBody
from kourou.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody
from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from kourou.protocol.bodies.locks import LockBatchRequestBody
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig, SubscriptionGroupList
from kourou.protocol.bodies.topics import TopicConfig, TopicConfigList, TopicQueueMappingDetail
from kourou.protocol.codes import RequestCode as Code
from kourou.protocol.headers import REQUEST_HEADERS

TABLE = RequestTable(cluster="C")


def topic(name: str, *actions: Action) -> Need:
    return Need(Resource(ResourceType.TOPIC, name), frozenset(actions))


def group(name: str, *actions: Action) -> Need:
    return Need(Resource(ResourceType.GROUP, name), frozenset(actions))


ATOMIC = {Code.STAGE_KOUROU_ATOMIC, Code.DECIDE_KOUROU_ATOMIC, Code.QUERY_KOUROU_ATOMIC}
PUB, SUB, GET, CREATE, UPDATE = Action.PUB, Action.SUB, Action.GET, Action.CREATE, Action.UPDATE


class FieldsThatTell(dict[str, str]):
    """Fields that note which of them are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override]
        self.asked.add(name)
        return "name_REPLY_TOPIC"

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return True

    def __getitem__(self, name: str) -> str:
        return self.get(name)


def test_every_request_code_is_in_exactly_one_place() -> None:
    """A new code that is forgotten here would be for administrators, without a decision."""
    places = [frozenset(NEEDS), ANYONE, CLUSTER_GET, CLUSTER_UPDATE, frozenset(LISTS), ADMINISTRATORS]
    assert not [one & other for one, other in combinations(places, 2) if one & other]
    assert sorted(frozenset[int]().union(*places)) == sorted(Code)


@pytest.mark.parametrize("code", [999_999, 0, -1])
def test_unknown_codes_are_for_administrators(code: int) -> None:
    assert TABLE.needs_of(code, {"topic": "T"}, b"") is ADMINISTRATOR


def test_fields_are_those_that_processors_read() -> None:
    """A name read from a field that the processor ignores would check the wrong topic."""
    for code in NEEDS:
        fields = FieldsThatTell()
        try:
            TABLE.needs_of(code, fields, b"")
        except (AccessRefusedError, ProtocolError):
            assert code in BODY_CODES | ATOMIC
        header_type = REQUEST_HEADERS.get(code)
        known = set() if header_type is None else set(header_type.__struct_encode_fields__)
        # Those two are read where some of several processors do: each name more is a need more.
        assert fields.asked - {"topicList", "kourouSinkId"} <= known, Code(code).name


def test_needed_fields_are_refused_if_missing_or_blank() -> None:
    """RocketMQ's words, and no request without a name passes."""
    freely = {
        Code.END_TRANSACTION,
        Code.UNREGISTER_CLIENT,
        Code.OPEN_KOUROU_PRODUCER,
        Code.VIEW_MESSAGE_BY_ID,
    }
    for code in NEEDS.keys() - freely - BODY_CODES:
        with pytest.raises((AccessRefusedError, ProtocolError)):
            TABLE.needs_of(code, {}, b"")
        with pytest.raises((AccessRefusedError, ProtocolError)):
            TABLE.needs_of(code, dict.fromkeys(("topic", "b", "group", "consumerGroup"), " "), b"")
    with pytest.raises(AccessRefusedError, match=r"^topic is null\.$") as refused:
        TABLE.needs_of(Code.SEND_MESSAGE_V2, {"topic": "T"}, b"")
    assert refused.value.response_code == 16


@pytest.mark.parametrize("code", sorted(BODY_CODES))
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"{}"])
def test_malformed_bodies_never_pass(code: int, body: bytes) -> None:
    lists = {
        Code.HEART_BEAT,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.BATCH_ACK_MESSAGE,
    }
    if body == b"{}" and code in lists:
        return  # names nothing, does nothing
    with pytest.raises((AccessRefusedError, ProtocolError)):
        TABLE.needs_of(code, {"topic": "T"}, body)


def test_oversize_names_are_refused_before_they_are_cached() -> None:
    with pytest.raises(AccessRefusedError, match="1000000 characters"):
        TABLE.needs_of(Code.SEND_MESSAGE_V2, {"b": "x" * 1_000_000}, b"")


def test_sends_need_pub_on_the_topic_and_keep_one_object() -> None:
    needs = TABLE.needs_of(Code.SEND_MESSAGE_V2, {"b": "T"}, b"")
    assert needs == Needs(auth=(topic("T", PUB),), plain=(topic("T", PUB),))
    assert TABLE.needs_of(Code.SEND_BATCH_MESSAGE, {"b": "T"}, b"") is needs
    assert TABLE.needs_of(Code.SEND_MESSAGE, {"topic": "T"}, b"") is needs


@pytest.mark.parametrize(
    ("code", "field"), [(Code.SEND_REPLY_MESSAGE, "topic"), (Code.SEND_REPLY_MESSAGE_V2, "b")]
)
def test_a_reply_goes_to_a_topic_for_replies_and_to_no_other(code: int, field: str) -> None:
    """RocketMQ's clients name `<cluster>_REPLY_TOPIC`, with their namespace before it."""
    for name in ("DefaultCluster_REPLY_TOPIC", "ns%DefaultCluster_REPLY_TOPIC"):
        needs = TABLE.needs_of(code, {field: name}, b"")
        assert needs.auth == needs.plain == (topic(name, PUB),)
    for name in ("Orders", "%RETRY%g", "%RETRY%g_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC_2"):
        with pytest.raises(AccessRefusedError, match="no topic for replies") as refused:
            TABLE.needs_of(code, {field: name}, b"")
        assert refused.value.response_code == 16


def test_what_consumers_send_to_their_retry_topic_needs_the_group_of_the_topic() -> None:
    needs = TABLE.needs_of(Code.SEND_MESSAGE_V2, {"a": "other", "b": "%RETRY%g"}, b"")
    assert needs.auth == needs.plain == (group("g", SUB),)


def test_a_pull_of_a_foreign_retry_topic_needs_its_group() -> None:
    own = TABLE.needs_of(Code.PULL_MESSAGE, {"topic": "%RETRY%g", "consumerGroup": "g"}, b"")
    assert own.auth == (group("g", SUB),)
    foreign = TABLE.needs_of(Code.LITE_PULL_MESSAGE, {"topic": "%RETRY%h", "consumerGroup": "g"}, b"")
    assert foreign.auth == (group("h", SUB), group("g", SUB))


def test_end_of_transaction_without_topic_needs_a_signature() -> None:
    assert TABLE.needs_of(Code.END_TRANSACTION, {}, b"") is NOTHING
    assert TABLE.needs_of(Code.END_TRANSACTION, {"topic": "T"}, b"").auth == (topic("T", PUB),)


def test_heartbeats_need_all_groups_and_subscriptions() -> None:
    subscriptions = [SubscriptionData(topic="T"), SubscriptionData(topic="%RETRY%g")]
    data = HeartbeatData(
        client_id="c",
        producer_data_set=[ProducerData("p")],
        consumer_data_set=[
            ConsumerData(group_name="g", subscription_data_set=subscriptions),
            ConsumerData(group_name="h", subscription_data_set=subscriptions[:1]),
        ],
    )
    needs = TABLE.needs_of(Code.HEART_BEAT, {}, encode_body(data))
    assert needs.auth == needs.plain == (group("g", SUB), topic("T", SUB), group("h", SUB))
    producers = HeartbeatData(client_id="c", producer_data_set=[ProducerData("p")])
    assert TABLE.needs_of(Code.HEART_BEAT, {}, encode_body(producers)) == NOTHING


def test_bodies_name_topics_and_groups() -> None:
    lock = LockBatchRequestBody("g", "c", [MessageQueue("T", "b", 0), MessageQueue("%RETRY%g", "b", 0)])
    check = CheckClientRequestBody("c", "g", SubscriptionData(topic="T"))
    acks = BatchAckMessageRequestBody("b", [BatchAck(consumer_group="g", topic="T")])
    for code, body in (
        (Code.LOCK_BATCH_MQ, lock),
        (Code.UNLOCK_BATCH_MQ, lock),
        (Code.CHECK_CLIENT_CONFIG, check),
        (Code.BATCH_ACK_MESSAGE, acks),
    ):
        needs = TABLE.needs_of(code, {}, encode_body(body))
        assert needs.auth == needs.plain == (group("g", SUB), topic("T", SUB))


def test_lists_of_topics_and_groups_need_each() -> None:
    topics = encode_body(TopicConfigList([TopicConfig("T"), TopicConfig("U")]))
    needs = TABLE.needs_of(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, topics)
    assert needs == Needs(auth=(topic("T", CREATE), topic("U", CREATE)), is_plain_admin_only=True)
    configs = [SubscriptionGroupConfig(group_name="g"), SubscriptionGroupConfig(group_name="h")]
    groups = encode_body(SubscriptionGroupList(configs))
    needs = TABLE.needs_of(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, groups)
    assert needs.auth == (group("g", CREATE), group("h", CREATE))
    one = encode_body(configs[0])
    assert TABLE.needs_of(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, one).auth == (group("g", CREATE),)
    mode = encode_body(SetMessageRequestModeRequestBody(topic="T", consumer_group="g"))
    needs = TABLE.needs_of(Code.SET_MESSAGE_REQUEST_MODE, {}, mode)
    assert needs.auth == (topic("T", SUB), group("g", UPDATE))


def test_a_static_topic_is_that_of_the_body() -> None:
    body = encode_body(TopicQueueMappingDetail(topic="other"))
    with pytest.raises(AccessRefusedError, match="not that of the body"):
        TABLE.needs_of(Code.UPDATE_AND_CREATE_STATIC_TOPIC, {"topic": "T"}, body)


def test_consume_stats_need_every_topic_of_the_list() -> None:
    fields = {"consumerGroup": "g", "topic": "T", "topicList": "U;V"}
    needs = TABLE.needs_of(Code.GET_CONSUME_STATS, fields, b"")
    assert needs.auth == (topic("U", GET), topic("V", GET), topic("T", GET), group("g", GET))
    assert TABLE.needs_of(Code.GET_CONSUME_STATS, {"consumerGroup": "g"}, b"").auth == (group("g", GET),)


def test_one_of_several_actions_suffices() -> None:
    fields = {"topic": "T", "consumerGroup": "g"}
    assert TABLE.needs_of(Code.UPDATE_CONSUMER_OFFSET, fields, b"") == Needs(
        auth=(topic("T", SUB, UPDATE), group("g", SUB, UPDATE)),
        plain=(topic("T", SUB), group("g", SUB)),
    )


def test_the_cluster_is_that_of_the_broker() -> None:
    needs = TABLE.needs_of(Code.UPDATE_BROKER_CONFIG, {}, b"")
    assert needs == Needs(
        auth=(Need(Resource(ResourceType.CLUSTER, "C"), frozenset({UPDATE})),), is_plain_admin_only=True
    )


def test_named_producers_belong_to_accounts_with_pub_on_their_name() -> None:
    """Whoever opens a name fences the program that has it."""
    assert TABLE.needs_of(Code.OPEN_KOUROU_PRODUCER, {"producerGroup": "p"}, b"") is NOTHING
    owner = (group("loader", PUB),)
    assert TABLE.needs_of(Code.OPEN_KOUROU_PRODUCER, {"kourouName": "loader"}, b"").auth == owner
    assert TABLE.needs_of(Code.DECIDE_KOUROU_ATOMIC, {"kourouAtomicId": "@loader:1:1"}, b"").auth == owner
    assert TABLE.needs_of(Code.OPEN_KOUROU_PRODUCER, {"kourouName": "loader.atomic"}, b"").auth == owner
    anonymous = {"kourouAtomicId": "0123456789abcdef:1:1"}
    assert TABLE.needs_of(Code.DECIDE_KOUROU_ATOMIC, anonymous, b"") == Needs(
        random_producer="0123456789abcdef"
    )
    with_sink = {"kourouAtomicId": "0123456789abcdef:1:1", "kourouSinkId": "s"}
    needs = TABLE.needs_of(Code.DECIDE_KOUROU_ATOMIC, with_sink, b"")
    assert (needs.auth, needs.random_producer) == ((group("s", PUB),), "0123456789abcdef")


def test_staging_needs_pub_on_every_topic_of_the_part() -> None:
    body = encode_groups([StagedGroup(name, 0, 0, 0, b"x") for name in ("T", "U", "T")])
    fields = {"kourouAtomicId": "@loader:1:1"}
    needs = TABLE.needs_of(Code.STAGE_KOUROU_ATOMIC, fields, body)
    assert needs.auth == needs.plain == (topic("T", PUB), topic("U", PUB), group("loader", PUB))
    with pytest.raises(ProtocolError):
        TABLE.needs_of(Code.STAGE_KOUROU_ATOMIC, fields, msgspec.msgpack.encode({"no": "part"}))


def test_what_is_between_brokers_is_for_administrators() -> None:
    for code in (
        Code.END_KOUROU_ATOMIC,
        Code.GET_KOUROU_PRODUCER_SNAPSHOT,
        Code.PROMISE_KOUROU_MASTER,
        Code.REGISTER_BROKER,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    ):
        assert TABLE.needs_of(code, {}, b"") is ADMINISTRATOR


POP_CODES = [
    (Code.POP_MESSAGE, "consumerGroup", SUB),
    (Code.ACK_MESSAGE, "consumerGroup", SUB),
    (Code.PEEK_MESSAGE, "consumerGroup", SUB),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, "consumerGroup", SUB),
    (Code.NOTIFICATION, "consumerGroup", SUB),
    (Code.POLLING_INFO, "consumerGroup", GET),
]


@pytest.mark.parametrize(("code", "field", "action"), POP_CODES)
def test_pops_need_topic_and_group(code: int, field: str, action: Action) -> None:
    """RocketMQ looks at the group first, but not of a peek."""
    fields = {"topic": "T", field: "g"}
    needs = TABLE.needs_of(code, fields, b"")
    assert set(needs.auth) == {topic("T", action), group("g", action)}
    assert needs.is_plain_admin_only is (action is GET)
    assert action is GET or set(needs.plain) == set(needs.auth)
    retry = TABLE.needs_of(code, {"topic": "%RETRY%h_T", field: "g"}, b"")
    assert group("h_T", action) in retry.auth and group("g", action) in retry.auth


@pytest.mark.parametrize("code", [Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.PULL_MESSAGE])
@pytest.mark.parametrize("name", ["rmq_sys_REVIVE_LOG_DefaultCluster", "SCHEDULE_TOPIC_XXXX"])
def test_what_waits_for_other_topics_is_read_by_administrators(code: int, name: str) -> None:
    assert TABLE.needs_of(code, {"topic": name, "consumerGroup": "g"}, b"") == ADMINISTRATOR


def test_assignments_and_modes_need_topic_and_group() -> None:
    body = encode_body(QueryAssignmentRequestBody(topic="T", consumer_group="g"))
    needs = TABLE.needs_of(Code.QUERY_ASSIGNMENT, {}, body)
    assert needs.auth == needs.plain == (group("g", SUB), topic("T", SUB))
    every = {resource_type: Resource(resource_type, "*") for resource_type in ResourceType}
    for code in (Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_KOUROU_OVERFLOW):
        listed = TABLE.needs_of(code, {}, b"")
        assert {(need.resource, need.actions) for need in listed.auth} == {
            (every[ResourceType.TOPIC], frozenset({Action.LIST})),
            (every[ResourceType.GROUP], frozenset({Action.LIST})),
        }
        assert listed.is_plain_admin_only
    rollback = TABLE.needs_of(Code.POP_ROLLBACK, {}, b"")
    assert rollback.auth == (Need(Resource(ResourceType.CLUSTER, "C"), frozenset({UPDATE})),)


def test_every_change_by_operators_is_audited() -> None:
    """What brokers send to each other is no administration, nor is what consumers write of themselves."""
    between_brokers = {
        Code.ADD_BROKER,
        Code.REMOVE_BROKER,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
    }
    assert CLUSTER_UPDATE - between_brokers <= AUDITED
    fields = {name: "T" for name in ("topic", "group", "groupName", "destGroup", "consumerGroup")}
    mode = encode_body(SetMessageRequestModeRequestBody(topic="T", consumer_group="g"))
    changing = {frozenset({action}) for action in (CREATE, UPDATE, Action.DELETE)}
    for code in NEEDS:
        try:
            needs = TABLE.needs_of(code, fields, mode)
        except (AccessRefusedError, ProtocolError):
            continue
        assert code in AUDITED or changing.isdisjoint(need.actions for need in needs.auth), Code(code).name


OPENED = [
    (Opening.ACL_ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, {}, False, True),
    (Opening.BATCHES, Code.SEND_BATCH_MESSAGE, {"b": "T"}, False, True),
    (Opening.CONFIG, Code.GET_BROKER_CONFIG, {}, True, True),
    (Opening.CONFIG, Code.UPDATE_BROKER_CONFIG, {}, True, False),
    (Opening.REPLIES, Code.SEND_REPLY_MESSAGE_V2, {"b": "C_REPLY_TOPIC"}, True, True),
    (Opening.RECORDS, Code.VIEW_MESSAGE_BY_ID, {}, True, True),
    (Opening.MANAGEMENT, Code.GET_ALL_TOPIC_CONFIG, {}, True, True),
    (Opening.MANAGEMENT, Code.GET_TOPIC_STATS_INFO, {"topic": "T"}, False, True),
    (Opening.MANAGEMENT, Code.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}, False, False),
    (Opening.MANAGEMENT, Code.REGISTER_BROKER, {}, False, True),
]


@pytest.mark.parametrize(("opening", "code", "fields", "is_auth", "is_plain"), OPENED)
def test_openings_restore_what_rocketmq_leaves_open(
    opening: Opening, code: int, fields: dict[str, str], is_auth: bool, is_plain: bool
) -> None:
    for openings in ((), {opening}):
        needs = RequestTable(openings=openings).needs_of(code, fields, b"")
        is_open_auth = not needs.auth and not needs.is_admin_only
        is_open_plain = not needs.plain and not needs.is_plain_admin_only
        expected = (is_auth, is_plain) if openings else (False, False)
        assert (is_open_auth, is_open_plain) == expected


def test_no_opening_opens_our_own_codes_or_unknown_ones() -> None:
    table = RequestTable(openings=list(Opening))
    for code in (Code.FORGET_KOUROU_PRODUCER, Code.END_KOUROU_ATOMIC, 999_999):
        assert table.needs_of(code, {}, b"") is ADMINISTRATOR
