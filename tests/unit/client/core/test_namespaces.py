"""Namespaces of a client: names in and out, and the namespace in an address."""

from __future__ import annotations

import pytest

from kourou.client.core.namespaces import Namespace


@pytest.mark.parametrize(
    ("mine", "brokers"),
    [
        ("Orders", "shop%Orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("TBW102", "TBW102"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
    ],
)
def test_names_go_in_and_come_out(mine: str, brokers: str) -> None:
    shop = Namespace("shop")
    assert shop.wrap(mine) == brokers
    assert shop.wrap(brokers) == brokers
    assert shop.unwrap(brokers) == mine


def test_names_of_other_namespaces_stay() -> None:
    assert Namespace("shop").unwrap("other%Orders") == "other%Orders"
    assert Namespace("shop").unwrap("Orders") == "Orders"


@pytest.mark.parametrize("name", ["Orders", "a%b", "%RETRY%a%b"])
def test_without_a_namespace_names_stay(name: str) -> None:
    assert Namespace().wrap(name) == Namespace().unwrap(name) == name


@pytest.mark.parametrize(
    ("name", "namesrv", "found"),
    [
        (None, "http://MQ_INST_123_abc.example.com:8080", "MQ_INST_123_abc"),
        (None, "MQ_INST_123_abc.example.com:8080", "MQ_INST_123_abc"),
        ("shop", "http://MQ_INST_123_abc.example.com:8080", "shop"),
        (None, "127.0.0.1:9876", ""),
        ("", "", ""),
        (None, "http://example.com/MQ_INST_1_a.x", ""),
    ],
)
def test_the_namespace_may_be_in_the_address(name: str | None, namesrv: str, found: str) -> None:
    assert Namespace.of(name, namesrv) == Namespace(found)
