"""Commands that change topics: create, delete, permissions, order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.admin.order_conf import (
    add_order_conf,
    delete_order_conf,
    order_conf,
    set_order_conf,
)
from kourou.admin.targets import Outcome
from kourou.admin.topic_perm import PermChange, change_topic_perm_in_cluster, change_topic_perm_on_broker
from kourou.admin.topics import (
    TopicDeletion,
    create_topic_on,
    create_topics_on,
    delete_topic,
)
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import topic_config
from kourou.cli.admin.options import ParsedArgs, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import (
    BROKER_OR_CLUSTER,
    EITHER,
    check_either,
    chosen_masters,
    show_outcomes,
)
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.bodies import TopicConfig, decode_body

_TOPIC: Final = required("t", "topic", "name of the topic")
_UNIT: Final = 1
_UNIT_SUB: Final = 2


# -- updateTopic, updateTopicList --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TopicChange:
    """A topic that was created or changed."""

    config: TopicConfig
    brokers: list[Outcome]
    order_conf: str | None = None


def _config_of(args: ParsedArgs) -> TopicConfig:
    return TopicConfig(
        topic_name=args.text("topic"),
        read_queue_nums=args.number("readQueueNums", 8),
        write_queue_nums=args.number("writeQueueNums", 8),
        perm=_perm_of(args),
        topic_sys_flag=(_UNIT if args.truth("unit") else 0) | (_UNIT_SUB if args.truth("hasUnitSub") else 0),
        order=args.truth("order"),
        attributes=attribute_changes(args.text("attributes")),
    )


def _perm_of(args: ParsedArgs) -> int:
    """The permission, 6 by default. UsageError in Apache's wording."""
    perm = args.number("perm", 6)
    if not 0 <= perm < 8:
        raise UsageError(
            f"CODE: 16  DESC: topicPermission value: {perm} is invalid; 2 is write, 4 read, 6 both"
        )
    return perm


def attribute_changes(text: str) -> dict[str, str]:
    """Changes of attributes, `+key=value,-key`. UsageError in Apache's wording."""
    changes: dict[str, str] = {}
    for change in text.split(",") if text else ():
        key, equals, new = change.partition("=")
        if equals and "+" not in key:
            raise UsageError(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise UsageError(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise UsageError(f"key duplication: {key}")
        changes[key] = new
    return changes


async def _update_topic(call: Call) -> _TopicChange:
    config = _config_of(call.args)
    addresses = await chosen_masters(call)
    brokers = await create_topic_on(call.admin, addresses, config)
    if not config.order:
        return _TopicChange(config, brokers)
    if "brokerAddr" in call.args:
        name = await call.admin.broker_name(addresses[0])
        await add_order_conf(call.admin, config.topic_name, name, config.write_queue_nums)
        return _TopicChange(config, brokers, f"{name}:{config.write_queue_nums}")
    masters = await call.admin.masters(call.args.text("clusterName"))
    whole = ";".join(f"{master.broker_name}:{config.write_queue_nums}" for master in masters)
    await set_order_conf(call.admin, config.topic_name, whole)
    return _TopicChange(config, brokers, whole)


def _show_topic_change(change: _TopicChange, screen: Screen) -> None:
    is_cluster = "clusterName" in screen.args
    if change.order_conf is not None and not is_cluster:
        screen.line(f"set broker orderConf. isOrder=true, orderConf=[{change.order_conf}]")
    show_outcomes(change.brokers, screen, lambda address: f"create topic to {address} success.")
    if change.order_conf is not None and is_cluster:
        screen.write(f"set cluster orderConf. isOrder=true, orderConf=[{change.order_conf}]")
        if not screen.is_v4:
            screen.line()
    screen.write(topic_config(change.config, is_v4=screen.is_v4))
    if not screen.is_v4:
        screen.line()


def _read_configs(path: Path) -> list[TopicConfig]:
    if not path.is_file():
        raise ConfigError(f"the file path {path} does not exists")
    try:
        configs = decode_body(path.read_bytes(), list[TopicConfig])
    except (OSError, ProtocolError) as error:
        raise ConfigError(f"{path}: not a JSON list of topics: {error}") from None
    if not configs or not all(config.topic_name for config in configs):
        raise ConfigError(f"{path}: must be a list of objects, each with a topicName")
    return configs


async def _update_topics(call: Call) -> list[Outcome]:
    configs = _read_configs(Path(call.args.text("filename")))
    return await create_topics_on(call.admin, await chosen_masters(call), configs)


def _show_topics_change(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(
        outcomes,
        screen,
        lambda address: f"submit batch of topic config to {address} success, please check the result later.",
    )


# -- deleteTopic, updateTopicPerm --------------------------------------------------------------------


async def _delete_topic(call: Call) -> TopicDeletion:
    return await delete_topic(call.admin, call.args.text("topic"), call.args.text("clusterName"))


def show_deletion(deletion: TopicDeletion, screen: Screen) -> None:
    """Print the result of a deletion on each broker and name server."""
    for outcomes, where in (
        (deletion.brokers, f"cluster [{deletion.cluster}]"),
        (deletion.namesrvs, "NameServer"),
    ):
        if all(outcome.is_done for outcome in outcomes):
            screen.line(f"delete topic [{deletion.topic}] from {where} success.")
        for outcome in outcomes:
            if outcome.problem:
                screen.trouble(f"delete topic [{deletion.topic}] from {where}: {outcome.problem}")


async def _change_perm(call: Call) -> PermChange:
    check_either(call)
    topic, perm = call.args.text("topic"), _perm_of(call.args)
    if (broker := call.args.get("brokerAddr")) is not None:
        return await change_topic_perm_on_broker(call.admin, topic, perm, broker)
    return await change_topic_perm_in_cluster(call.admin, topic, perm, call.args.text("clusterName"))


def _show_perm_change(change: PermChange, screen: Screen) -> None:
    if change.is_same:
        screen.line("new perm equals to the old one!")
        return
    what = f"update topic perm from {change.old_perm} to {change.config.perm}"
    show_outcomes(change.brokers, screen, lambda address: f"{what} in {address} success.")
    if "brokerAddr" in screen.args:
        screen.line(f"{topic_config(change.config, is_v4=screen.is_v4)}.")


# -- updateOrderConf ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OrderConf:
    """The order configuration of a topic, and the operation on it."""

    topic: str
    method: str
    order_conf: str
    namesrvs: list[Outcome]


async def _order_conf(call: Call) -> _OrderConf:
    topic, method = call.args.text("topic"), call.args.text("method")
    if method == "get":
        return _OrderConf(topic, method, await order_conf(call.admin, topic), [])
    if method == "put":
        conf = call.args.text("orderConf")
        if not conf:
            raise UsageError("please set orderConf with option -v.")
        return _OrderConf(topic, method, conf, await set_order_conf(call.admin, topic, conf))
    if method == "delete":
        return _OrderConf(topic, method, "", await delete_order_conf(call.admin, topic))
    raise UsageError(f"-m {method}: must be get, put or delete")


def _show_order_conf(conf: _OrderConf, screen: Screen) -> None:
    if conf.method == "get":
        screen.write(f"get orderConf success. topic=[{conf.topic}], orderConf=[{conf.order_conf}] ")
    elif conf.method == "put":
        screen.write(f"update orderConf success. topic=[{conf.topic}], orderConf=[{conf.order_conf}]")
    else:
        screen.write(f"delete orderConf success. topic=[{conf.topic}]")
    for outcome in conf.namesrvs:
        if outcome.problem:
            screen.trouble(outcome.problem)


TOPIC_CHANGE_COMMANDS: Final = (
    AdminCommand(
        name="updateTopic",
        about="Create a topic on a broker or on all masters of a cluster, or change it.",
        example="updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders -r 8 -w 8",
        options=(
            *BROKER_OR_CLUSTER,
            _TOPIC,
            value("r", "readQueueNums", "queues to read from (default: 8)"),
            value("w", "writeQueueNums", "queues to write to (default: 8)"),
            value("p", "perm", "2: write, 4: read, 6: both (default)"),
            value("o", "order", "true: its queues stay the same when brokers fail"),
            value("u", "unit", "true: a topic of a unit"),
            value("s", "hasUnitSub", "true: other units subscribe to it"),
            value("a", "attributes", "changes of attributes, such as +message.type=FIFO,-reserve.time"),
        ),
        ask=_update_topic,
        show=_show_topic_change,
    ),
    AdminCommand(
        name="updateTopicList",
        about="Create or change all topics listed in a JSON file.",
        example="updateTopicList -n 127.0.0.1:9876 -c DefaultCluster -f topics.json",
        options=(
            *BROKER_OR_CLUSTER,
            required(
                "f",
                "filename",
                'file like [{"topicName": "Orders", "readQueueNums": 8, "writeQueueNums": 8}]',
            ),
        ),
        ask=_update_topics,
        show=_show_topics_change,
    ),
    AdminCommand(
        name="deleteTopic",
        about="Delete a topic from the brokers of a cluster and from the name servers.",
        example="deleteTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders",
        options=(_TOPIC, required("c", "clusterName", "cluster to delete it from")),
        ask=_delete_topic,
        show=show_deletion,
        question=lambda args: (
            f"Delete topic {args.text('topic')} with all its messages "
            f"from cluster {args.text('clusterName')}?"
        ),
    ),
    AdminCommand(
        name="updateTopicPerm",
        about="Change the read and write permission of a topic.",
        example="updateTopicPerm -n 127.0.0.1:9876 -c DefaultCluster -t Orders -p 4",
        options=(*EITHER, _TOPIC, required("p", "perm", "2: write, 4: read, 6: both")),
        ask=_change_perm,
        show=_show_perm_change,
    ),
    AdminCommand(
        name="updateOrderConf",
        about="Show, set or delete the number of queues per broker of an ordered topic.",
        example="updateOrderConf -n 127.0.0.1:9876 -t Orders -m put -v 'broker-a:4;broker-b:4'",
        options=(
            _TOPIC,
            required("m", "method", "get, put or delete"),
            value("v", "orderConf", "for put: queues per broker, such as 'broker-a:4;broker-b:4'"),
        ),
        ask=_order_conf,
        show=_show_order_conf,
        question=lambda args: (
            f"Delete the order configuration of topic {args.text('topic')}?"
            if args.text("method") == "delete"
            else None
        ),
    ),
)
