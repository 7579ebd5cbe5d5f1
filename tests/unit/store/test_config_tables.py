"""The tables in config/*.json, on files that Apache wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.errors import ProtocolError
from kourou.protocol.bodies import DataVersion, LogicQueueMappingItem, TopicConfig, TopicQueueMappingDetail
from kourou.store.config_tables import (
    TABLES,
    ConsumerFilterTable,
    ConsumerOffsetTable,
    ConsumerOrderInfoTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    OrderInfo,
    SubscriptionGroupTable,
    TopicConfigTable,
    TopicQueueMappingTable,
    dump_table,
    load_table,
)
from tests.golden.config_files import CONFIG_FILES, FOLDERS, name_of, strict_tree

# What 5.x has and 4.9 has not, each with the value that 5.x gives it when it is not there.
SINCE_5 = {
    "stateVersion": 0,
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "forbiddenTable": {},
}
DERIVED = {"groupTopicMap"}


def assert_reads_the_same(written: Any, golden: Any, where: str = "$") -> None:
    """Whoever reads `written` sees all of `golden`, and beyond it nothing but defaults."""
    if not isinstance(golden, dict):
        assert written == golden, where
        return
    for name in golden.keys() - DERIVED:
        assert name in written, f"{where}.{name} is lost"
        assert_reads_the_same(written[name], golden[name], f"{where}.{name}")
    for name in written.keys() - golden.keys():
        assert name in SINCE_5 and written[name] == SINCE_5[name], f"{where}.{name} is new"


def test_the_golden_files_are_all_there() -> None:
    assert [folder.name for folder in FOLDERS] == ["config-4.9.7", "config-4.9.7-crash", "config-5.5.0"]
    assert len(CONFIG_FILES) == 17


@pytest.mark.parametrize("path", CONFIG_FILES, ids=name_of)
def test_apache_reads_back_what_it_wrote(path: Path) -> None:
    golden = path.read_bytes()
    table = load_table(golden, TABLES[path.name])
    written = dump_table(table)
    assert_reads_the_same(strict_tree(written), strict_tree(golden))
    assert load_table(written, TABLES[path.name]) == table
    assert dump_table(load_table(written, TABLES[path.name])) == written


@pytest.mark.parametrize("path", [path for path in CONFIG_FILES if "5.5.0" in path.parent.name], ids=name_of)
def test_the_lines_are_those_of_apache(path: Path) -> None:
    golden = path.read_bytes()
    if path.name == "consumerOffset.json":
        golden = golden[: golden.index(b'\t"groupTopicMap"')] + golden[golden.index(b'\t"offsetTable"') :]
    written = dump_table(load_table(golden, TABLES[path.name]))
    # Names of Java's hash maps come in any order, so the last of them, without a comma, is another one.
    assert lines(written) == lines(golden)


def lines(raw: bytes) -> list[str]:
    return sorted(line.rstrip(",") for line in raw.decode().split("\n"))


def golden(version: str, shape: type[msgspec.Struct]) -> Any:
    (name,) = [name for name, each in TABLES.items() if each is shape]
    (folder,) = [folder for folder in FOLDERS if folder.name == f"config-{version}"]
    return load_table((folder / name).read_bytes(), shape)


def test_topics() -> None:
    table = golden("4.9.7", TopicConfigTable)
    assert table.data_version == DataVersion(timestamp=1794711932753, counter=64)
    assert table.topic_config_table["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    assert table.topic_config_table["%RETRY%CG_dlq"] == TopicConfig(
        topic_name="%RETRY%CG_dlq", read_queue_nums=2, write_queue_nums=2
    )


def test_groups() -> None:
    table = golden("5.5.0", SubscriptionGroupTable)
    assert table.data_version.counter == 31
    assert table.subscription_group_table["CG_pop"].consume_timeout_minute == 15
    assert table.forbidden_table == {}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_offsets_are_keyed_by_number(version: str) -> None:
    table = golden(version, ConsumerOffsetTable)
    assert table.offset_table["PropTopic@CG_sql"] == {0: 6, 1: 6, 2: 6, 3: 6}
    assert (table.data_version is None) == (version == "4.9.7")


def test_delay_offsets_are_keyed_by_level() -> None:
    assert golden("4.9.7", DelayOffsetTable).offset_table == {1: 4, 3: 2}
    assert golden("5.5.0", DelayOffsetTable).offset_table == {1: 4, 3: 2, 17: 0, 18: 0}


def test_filters_and_modes() -> None:
    filters = golden("4.9.7-crash", ConsumerFilterTable)
    found = filters.filter_data_by_topic["PropTopic"].group_filter_data["CG_sql"]
    assert found.expression == "(a BETWEEN 3 AND 15) AND region = 'hz' AND vip IS NULL"
    assert found.bloom_filter_data is not None and found.bloom_filter_data.bit_pos == [89, 104, 74]
    modes = golden("5.5.0", MessageRequestModeTable)
    assert modes.message_request_mode_map["PopTopic"]["CG_pop"].pop_share_queue_num == 8


@pytest.mark.parametrize(
    "table",
    [
        ConsumerOrderInfoTable(
            table={
                "T@G": {
                    2: OrderInfo(
                        pop_time=5,
                        invisible_time_ms=60_000,
                        offset_list=[100, 1, 2],
                        offset_next_visible_time={100: 7},
                        offset_consumed_count={101: 3},
                        last_consume_timestamp=6,
                        commit_offset_bit=5,
                        attempt_id="a-1",
                    )
                }
            }
        ),
        TopicQueueMappingTable(
            topic_queue_mapping_info_map={
                "T": TopicQueueMappingDetail(topic="T", hosted_queues={0: [LogicQueueMappingItem(bname="b")]})
            }
        ),
        ConsumerOffsetTable(
            offset_table={'odd "topic" {1:\n@gruppe-ä': {0: 2**63 - 1}}, data_version=DataVersion(1, 2, 3)
        ),
        DelayOffsetTable(),
    ],
    ids=lambda table: type(table).__name__,
)
def test_what_is_dumped_loads_as_it_was(table: msgspec.Struct) -> None:
    assert load_table(dump_table(table), type(table)) == table


def test_order_info_has_apaches_short_names() -> None:
    table = ConsumerOrderInfoTable(table={"T@G": {0: OrderInfo(offset_list=[9], attempt_id="x")}})
    entry = strict_tree(dump_table(table))["table"]["T@G"]["0"]
    assert entry == {"a": "x", "cm": 0, "l": 0, "o": [9], "oc": {}, "ot": {}, "popTime": 0}


def test_files_that_we_wrote_quoted_or_compact_load_too() -> None:
    quoted = b'{"offsetTable":{"T@G":{"0":12,"1":7}},"somethingNew":{"a":[1,{"b":null}]}}'
    assert load_table(quoted, ConsumerOffsetTable).offset_table == {"T@G": {0: 12, 1: 7}}


def test_names_are_sorted() -> None:
    table = ConsumerOffsetTable(offset_table={"b@g": {10: 1, 9: 2}, "a@g": {}})
    assert (
        dump_table(table)
        == b'{\n\t"offsetTable":{\n\t\t"a@g":{},\n\t\t"b@g":{\n\t\t\t9:2,\n\t\t\t10:1\n\t\t}\n\t}\n}'
    )


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"offsetTable":{"T@G":{"x":1}}}', b"\xff\xfe", b"\0" * 100]
)
def test_what_is_no_table_is_a_protocol_error(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="ConsumerOffsetTable"):
        load_table(raw, ConsumerOffsetTable)
