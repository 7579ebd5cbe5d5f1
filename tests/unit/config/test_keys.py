"""Values of every type, with what an error says is allowed; tables and their nearest names."""

from __future__ import annotations

import pytest

from kourou.config.broker import BrokerConfig, without_effect_keys
from kourou.config.keys import BadValueError, Key, Value, ValueType, format_value, settings_of
from kourou.config.namesrv import NamesrvConfig
from kourou.config.other_keys import OTHER_KEYS

ALL_TABLES = {
    "namesrv": [key for _, key in settings_of(NamesrvConfig).values()],
    "broker": [*(key for _, key in settings_of(BrokerConfig).values()), *without_effect_keys()],
    "other": OTHER_KEYS,
}


@pytest.mark.parametrize(
    ("value_type", "text", "value"),
    [
        (ValueType.BOOL, "true", True),
        (ValueType.BOOL, " TRUE ", True),
        (ValueType.BOOL, "False", False),
        (ValueType.INT, "9876", 9876),
        (ValueType.INT, " -1\t", -1),
        (ValueType.INT, "+7", 7),
        (ValueType.INT, "2147483647", 2**31 - 1),
        (ValueType.LONG, "17179869184", 2**34),
        (ValueType.DOUBLE, "0.8", 0.8),
        (ValueType.STRING, " /opt/store ", "/opt/store"),
    ],
)
def test_values_that_are_allowed(value_type: ValueType, text: str, value: Value) -> None:
    parsed = Key("k", value_type).parse(text)
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize(
    ("value_type", "text", "allowed"),
    [
        (ValueType.BOOL, "yes", "must be true or false"),
        (ValueType.BOOL, "", "must be true or false"),
        (ValueType.INT, "9876x", "must be a whole number from -2147483648 to 2147483647"),
        (ValueType.INT, "", "must be a whole number"),
        (ValueType.INT, "2147483648", "must be a whole number"),
        (ValueType.INT, "+-1", "must be a whole number"),
        (ValueType.INT, "1_000", "must be a whole number"),
        (ValueType.INT, "٣", "must be a whole number"),
        (ValueType.INT, "9" * 5000, "must be a whole number"),
        (ValueType.INT, "9876 # port", "a comment needs a line of its own"),
        (ValueType.DOUBLE, "much", "must be a number"),
    ],
)
def test_values_that_are_not(value_type: ValueType, text: str, allowed: str) -> None:
    with pytest.raises(BadValueError, match=allowed):
        Key("k", value_type).parse(text)


def test_a_choice_is_found_in_any_case_and_named_when_it_is_not() -> None:
    key = Key("flushDiskType", ValueType.ENUM, choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    assert key.parse("sync_flush ") == "SYNC_FLUSH"
    with pytest.raises(BadValueError, match="must be ASYNC_FLUSH or SYNC_FLUSH"):
        key.parse("FLUSH")


def test_a_clamped_number_is_moved_and_another_refused() -> None:
    ratio = Key("diskMaxUsedSpaceRatio", ValueType.INT, 75, low=10, high=95, clamped=True)
    assert ratio.clamp(ratio.parse("99")) == 95
    assert ratio.clamp(ratio.parse("88")) == 88
    port = Key("listenPort", ValueType.INT, 9876, low=0, high=65_535)
    with pytest.raises(BadValueError, match="from 0 to 65535"):
        port.parse("70000")


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (0, "0"), (0.8, "0.8"), (None, "")]
)
def test_values_are_printed_as_java_does(value: Value, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("listenport", "listenPort"),
        ("lisenPort", "listenPort"),
        ("kvConfigpath", "kvConfigPath"),
        ("scanNotActiveBrokerIntervall", "scanNotActiveBrokerInterval"),
        ("zzz", None),
    ],
)
def test_the_nearest_name(typed: str, nearest: str | None) -> None:
    assert NamesrvConfig.known_keys().nearest(typed) == nearest


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
        ("transactionMsgTimeout", "transactionTimeOut"),
        ("checkTransactionMessageTimerInterval", "transactionCheckInterval"),
        ("haSlaveFallbehindMax", "haMaxGapNotInSync"),
        ("isEnableBatchPush", "enableBatchPush"),
        ("rocketmq.namesrv.addr", "namesrvAddr"),
        ("rocketmq.namesrv.domain", "rmqAddressServerDomain"),
        ("rocketmq.namesrv.domain.subgroup", "rmqAddressServerSubGroup"),
    ],
)
def test_old_spellings_mean_the_key_of_today(old: str, name: str) -> None:
    key = BrokerConfig.known_keys().find(old)
    assert key is not None and key.name == name


@pytest.mark.parametrize(
    "name",
    [
        "storePathConsumeQueue",
        "storePathIndex",
        "storeCheckpoint",
        "abortFile",
        "checkTransactionMessageEnable",
        "filterServerNums",
        "delayOffsetStorePath",
    ],
)
def test_keys_of_old_documents_say_what_happens_instead(name: str) -> None:
    key = BrokerConfig.known_keys().find(name)
    assert key is not None and key.instead


@pytest.mark.parametrize("table", ALL_TABLES)
def test_tables_have_no_name_twice(table: str) -> None:
    names = [name for key in ALL_TABLES[table] for name in (key.name, *key.old_names)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("table", ALL_TABLES)
def test_every_default_is_a_value_its_key_allows(table: str) -> None:
    for key in ALL_TABLES[table]:
        if key.default is not None:
            assert key.parse(format_value(key.default)) == key.default, key.name


def test_reasons_are_one_line_without_a_full_stop() -> None:
    for table in ALL_TABLES.values():
        for key in table:
            assert "\n" not in key.instead and not key.instead.endswith("."), key.name
