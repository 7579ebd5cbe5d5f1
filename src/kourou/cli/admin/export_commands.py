"""Commands that export a cluster's metadata, configuration and metrics to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kourou.admin.exports import (
    BrokerMetrics,
    ClusterConfigs,
    Metadata,
    broker_metadata,
    cluster_configs,
    cluster_metadata,
    cluster_metrics,
)
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import flag, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError
from kourou.protocol.bodies import encode_body
from kourou.protocol.bodies.shape import Body
from kourou.store import pretty_json

DEFAULT_FOLDER: Final = "/tmp/rocketmq/export"
"""The default of Apache's tools."""
_FOLDER: Final = value("f", "filePath", f"folder for the file (default: {DEFAULT_FOLDER})")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that was written."""

    path: str


def _write(call: Call, name: str, tree: dict[str, Any]) -> ExportedFile:
    """Write the file. ConfigError if it cannot be written."""
    path = Path(call.args.text("filePath", DEFAULT_FOLDER)) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pretty_json.write(tree))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be written: {reason}; choose another folder with -f") from None
    return ExportedFile(str(path))


def _show_line(exported: ExportedFile, screen: Screen) -> None:
    screen.line(f"export {exported.path} success")


def _show(exported: ExportedFile, screen: Screen) -> None:
    screen.write(f"export {exported.path} success")


# -- exportMetadata ----------------------------------------------------------------------------------


async def _export_metadata(call: Call) -> ExportedFile:
    args = call.args
    broker, cluster = args.get("brokerAddr"), args.get("clusterName")
    report, with_retries = call.screen.progress, args.flag("specialTopic")
    if broker is not None:
        found = await broker_metadata(call.admin, broker, with_retries=with_retries, report=report)
    elif cluster is not None:
        found = await cluster_metadata(call.admin, cluster, with_retries=with_retries, report=report)
    else:
        raise UsageError("Missing required option: give a broker with -b, or a cluster with -c")
    if args.flag("topic"):
        return _write(call, "topic.json", _metadata_tree(found, call.is_v4, groups=False))
    if args.flag("subscriptionGroup"):
        return _write(call, "subscriptionGroup.json", _metadata_tree(found, call.is_v4, topics=False))
    return _write(call, "metadata.json", _metadata_tree(found, call.is_v4))


def _metadata_tree(
    found: Metadata, is_v4: bool, *, topics: bool = True, groups: bool = True
) -> dict[str, Any]:
    tree: dict[str, Any] = {"exportTime": found.export_time_ms}
    if topics:
        tree["topicConfigTable"] = _table(found.topics, is_v4)
    if groups:
        tree["subscriptionGroupTable"] = _table(found.groups, is_v4)
    return tree


def _table(bodies: Mapping[str, Body], is_v4: bool) -> dict[str, Any]:
    return {name: json.loads(encode_body(body, v4=is_v4)) for name, body in bodies.items()}


# -- exportConfigs -----------------------------------------------------------------------------------


async def _export_configs(call: Call) -> ExportedFile:
    found = await cluster_configs(call.admin, call.args.text("clusterName"))
    return _write(call, "configs.json", _configs_tree(found))


def _configs_tree(found: ClusterConfigs) -> dict[str, Any]:
    return {
        "clusterScale": {
            "namesrvSize": found.namesrv_size,
            "masterBrokerSize": found.master_broker_size,
            "slaveBrokerSize": found.slave_broker_size,
        },
        "brokerConfigs": found.broker_configs,
    }


# -- exportMetrics -----------------------------------------------------------------------------------


async def _export_metrics(call: Call) -> ExportedFile:
    found = await cluster_metrics(call.admin, call.args.text("clusterName"), report=call.screen.progress)
    return _write(call, "metrics.json", _metrics_tree(found))


def _metrics_tree(brokers: list[BrokerMetrics]) -> dict[str, Any]:
    return {
        "totalData": {
            "totalTps": {
                "totalNormalInTps": sum(broker.normal_in_tps for broker in brokers),
                "totalNormalOutTps": sum(broker.normal_out_tps for broker in brokers),
                "totalTransInTps": sum(broker.trans_in_tps for broker in brokers),
                "totalScheduleInTps": sum(broker.schedule_in_tps for broker in brokers),
            },
            "totalOneDayNum": {
                "normalOneDayInNum": sum(broker.normal_one_day_in_num for broker in brokers),
                "normalOneDayOutNum": sum(broker.normal_one_day_out_num for broker in brokers),
                "transOneDayInNum": sum(broker.trans_one_day_in_num for broker in brokers),
                "scheduleOneDayInNum": sum(broker.schedule_one_day_in_num for broker in brokers),
            },
        },
        "evaluateReport": {broker.broker_name: _broker_tree(broker) for broker in brokers},
    }


def _broker_tree(broker: BrokerMetrics) -> dict[str, Any]:
    return {
        "runtimeEnv": {"cpuNum": broker.cpu_num},
        "runtimeQuota": {
            "diskRatio": {
                "commitLogDiskRatio": broker.commit_log_disk_ratio,
                "consumeQueueDiskRatio": broker.consume_queue_disk_ratio,
            },
            "tps": {
                "normalInTps": broker.normal_in_tps,
                "normalOutTps": broker.normal_out_tps,
                "transInTps": broker.trans_in_tps,
                "scheduleInTps": broker.schedule_in_tps,
            },
            "oneDayNum": {
                "normalOneDayInNum": broker.normal_one_day_in_num,
                "normalOneDayOutNum": broker.normal_one_day_out_num,
                "transOneDayInNum": broker.trans_one_day_in_num,
                "scheduleOneDayInNum": broker.schedule_one_day_in_num,
            },
            "messageAverageSize": broker.message_average_size,
            "topicSize": broker.topic_size,
            "groupSize": broker.group_size,
        },
        "runtimeVersion": {"rocketmqVersion": broker.rocketmq_version, "clientInfo": broker.client_info},
    }


_CLUSTER: Final = required("c", "clusterName", "cluster")

EXPORT_COMMANDS: Final = (
    AdminCommand(
        name="exportMetadata",
        about="Export the topics and consumer groups of a cluster or broker to metadata.json.",
        example="exportMetadata -n 127.0.0.1:9876 -c DefaultCluster -f ./export",
        options=(
            value("c", "clusterName", "cluster"),
            value("b", "brokerAddr", "address or name of one broker"),
            _FOLDER,
            flag("t", "topic", "topics only, to topic.json"),
            flag("g", "subscriptionGroup", "groups only, to subscriptionGroup.json"),
            flag("s", "specialTopic", "include retry and dead-letter topics"),
        ),
        ask=_export_metadata,
        show=_show_line,
    ),
    AdminCommand(
        name="exportConfigs",
        about="Export a cluster's size and its brokers' main settings to configs.json.",
        example="exportConfigs -n 127.0.0.1:9876 -c DefaultCluster -f ./export",
        options=(_CLUSTER, _FOLDER),
        ask=_export_configs,
        show=_show,
    ),
    AdminCommand(
        name="exportMetrics",
        about="Export the load of a cluster's brokers to metrics.json.",
        example="exportMetrics -n 127.0.0.1:9876 -c DefaultCluster -f ./export",
        options=(_CLUSTER, _FOLDER),
        ask=_export_metrics,
        show=_show,
    ),
)
