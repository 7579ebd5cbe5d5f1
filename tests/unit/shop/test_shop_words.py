"""What all services of the shop share: settings, events, money, kill points."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webshop.errors import Code
from webshop.events import Kind, PaymentDue, PaymentEvent, Topic, decode, encode, message_of
from webshop.kit import kill_points
from webshop.kit.kill_points import KillPoint, arm, disarm, is_hit, kill_point, kill_point_of
from webshop.money import shown
from webshop.settings import Settings, SettingsError, Way

GIVEN = {
    "namesrv": "127.0.0.1:9876",
    "database": "postgresql://127.0.0.1/shop",
    "services": {"goods": "127.0.0.1:8101"},
    "provider_secret": "s",
    "folder": "/run",
}


def test_settings_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(**GIVEN, way="outbox", pay_within_s=2.5, kill_points="/points", figures="/figures")  # type: ignore[arg-type]
    settings.save(tmp_path / "settings.json")
    monkeypatch.setenv("SHOP_SETTINGS", str(tmp_path / "settings.json"))
    assert Settings.load() == settings
    assert str(settings.address("goods")) == "127.0.0.1:8101"
    with pytest.raises(SettingsError, match="services has no 'users'; it has goods"):
        settings.address("users")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"way": "inbox"}, "way is 'inbox'; it has to be transaction, outbox or both"),
        ({"pay_within_s": 0}, "pay_within_s is 0"),
        ({"services": {"goods": "8101"}}, "services.goods is '8101'; it has to be host:port"),
        ({"namesrv": ""}, "namesrv has to be a text"),
        ({"databse": "x"}, "unknown databse; known are .*database"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Settings.from_json(GIVEN | change)


def test_missing_settings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="database, folder missing"):
        Settings.from_json({key: GIVEN[key] for key in ("namesrv", "services", "provider_secret")})
    monkeypatch.delenv("SHOP_SETTINGS", raising=False)
    with pytest.raises(SettingsError, match="SHOP_SETTINGS is not set"):
        Settings.load()
    (tmp_path / "broken").write_text("{")
    with pytest.raises(SettingsError, match="broken"):
        Settings.load(tmp_path / "broken")


def test_with_both_ways_orders_alternate_and_an_order_keeps_its_way() -> None:
    both = Settings(**GIVEN)  # type: ignore[arg-type]
    ways = [both.way_of(f"{number:032x}") for number in range(1_000)]
    assert ways == [both.way_of(f"{number:032x}") for number in range(1_000)]
    assert 400 < ways.count(Way.OUTBOX) < 600
    assert Settings(**GIVEN, way="transaction").way_of("7") is Way.TRANSACTION  # type: ignore[arg-type]


def test_events_survive_their_json_and_a_message_names_them() -> None:
    paid = PaymentEvent(
        kind=Kind.PAYMENT_PAID, order_id="7", way=Way.TRANSACTION, payment_id="p", user_id="ada", amount=5
    )
    assert decode(encode(paid)) == paid
    message = message_of(paid)
    assert (message.topic, message.tags, list(message.keys)) == (
        "shop-payments",
        "PAYMENT_PAID",
        [paid.event_id, "7"],
    )
    due = message_of(PaymentDue(kind=Kind.PAYMENT_DUE, order_id="7", way=Way.OUTBOX), delay_ms=1500)
    assert due.topic == Topic.TIMEOUTS and "1500" in due.properties.values()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"kind":"ORDER_EATEN"}', b'{"kind":"ORDER_PAID","order_id":"7"}']
)
def test_what_is_no_event_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode(body)


def test_money_is_shown_with_a_point() -> None:
    assert [shown(cents) for cents in (0, 5, 100, 123456, -1)] == [
        "0.00",
        "0.05",
        "1.00",
        "1,234.56",
        "-0.01",
    ]


def test_codes_of_other_programs_become_bad_request() -> None:
    assert Code.of("OUT_OF_STOCK") is Code.OUT_OF_STOCK
    assert Code.of("NO_PROCESS") is Code.of(None) is Code.BAD_REQUEST


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[signal.Signals]]:
    """The signals that this process would have sent itself."""
    sent: list[signal.Signals] = []
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    yield sent
    kill_points.use_folder(None)


def test_an_armed_kill_point_kills_once(tmp_path: Path, deaths: list[signal.Signals]) -> None:
    kill_points.use_folder(str(tmp_path))
    arm(tmp_path, KillPoint.RELAY_SENT)
    kill_point(KillPoint.RELAY_CLAIMED)
    assert deaths == [] and not is_hit(tmp_path, KillPoint.RELAY_SENT)
    kill_point(KillPoint.RELAY_SENT)
    kill_point(KillPoint.RELAY_SENT)
    assert deaths == [signal.SIGKILL] and is_hit(tmp_path, KillPoint.RELAY_SENT)
    assert not disarm(tmp_path, KillPoint.RELAY_SENT)


def test_every_flow_has_kill_points_of_its_own() -> None:
    for service, kinds in (
        ("ORDERS", ("ORDER_CREATED", "ORDER_CONFIRMED", "ORDER_CANCELLED")),
        ("PAYMENTS", ("PAYMENT_CREATED", "PAYMENT_PAID", "PAYMENT_DECLINED", "PAYMENT_REFUNDED")),
    ):
        for step in ("IN_WORK", "HALF_STORED", "OUTBOX_WRITTEN", "BEFORE_COMMIT", "COMMITTED", "EMITTED"):
            assert all(f"{service}_{step}_{kind}" in KillPoint.__members__ for kind in kinds)
    for kind in ("ORDER_PAID", "REFUND_DUE", "ORDER_CANCELLED"):
        assert f"ORDERS_CONSUMED_{kind}" in KillPoint.__members__
    assert KillPoint["GOODS_BEFORE_ACK_ORDER_CANCELLED"] == "goods_before_ack_order_cancelled"


def test_a_step_of_the_kit_is_killed_for_the_kind_of_its_event(
    tmp_path: Path, deaths: list[signal.Signals]
) -> None:
    kill_points.use_folder(str(tmp_path))
    arm(tmp_path, KillPoint["ORDERS_COMMITTED_ORDER_CANCELLED"])
    kill_point_of("orders", "COMMITTED", Kind.ORDER_CONFIRMED)
    assert deaths == []
    kill_point_of("orders", "COMMITTED", Kind.ORDER_CANCELLED)
    assert deaths == [signal.SIGKILL]
