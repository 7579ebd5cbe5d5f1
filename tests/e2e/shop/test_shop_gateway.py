"""The gateway without any service: what it serves and refuses, and what it says about parts that are away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.needed import need_module

pytestmark = pytest.mark.integration

httpx = need_module("httpx")
need_module("fastapi")
need_module("psycopg")

from webshop.gateway.service import make_app  # noqa: E402
from webshop.settings import Settings  # noqa: E402

NOWHERE = "127.0.0.1:1"
URL = "http://127.0.0.1:8080"
ORDER = {"order_id": "0" * 32}


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    names = ("goods", "coupons", "users", "orders", "payments", "points", "log", "provider", "control")
    settings = Settings(
        namesrv=NOWHERE,
        database=f"postgresql://{NOWHERE}/shop",
        services={"gateway": "127.0.0.1:8080", **dict.fromkeys(names, NOWHERE)},
        provider_secret="secret",
        folder="unused",
        pay_within_s=20,
    )
    transport = httpx.ASGITransport(make_app(settings))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/orders/7", "text/html"),
        ("/shop/js/main.js", "javascript"),
        ("/static/js/lib/html.js", "javascript"),
        ("/static/css/base.css", "text/css"),
    ],
)
async def test_pages_and_the_parts_of_the_console_are_served_under_a_strict_policy(
    client: Any, path: str, kind: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200 and kind in answer.headers["content-type"]
    assert "script-src 'self';" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-cache"


async def test_the_texts_of_the_parts_do_not_speak_of_a_console(client: Any) -> None:
    texts = (await client.get("/static/lang/en.json")).json()
    assert texts["common"] and "console" not in str(texts["api"])


@pytest.mark.parametrize("path", ["/static/..%2f__init__.py", "/shop/none.js", "/api/nothing"])
async def test_what_is_not_there_is_not_found(client: Any, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_only_the_shops_own_pages_may_change_something(client: Any) -> None:
    refused = await client.post("/api/orders", json=ORDER, headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403 and "evil.example" in refused.json()["error"]["message"]
    other_name = await client.get("/api/shop", headers={"Host": "evil.example"})
    assert other_name.status_code == 400


@pytest.mark.parametrize("path", ["/api/orders/7", "/api/operator/states"])
async def test_a_part_that_is_away_can_be_tried_again(client: Any, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("AWAY", "The shop cannot show this at the moment.")
    assert error["hint"] and "try again" not in error["hint"]


async def test_figures_without_any_part_say_that_the_state_of_spark_is_not_known(client: Any) -> None:
    answer = (await client.get("/api/figures")).json()
    assert answer["spark"] == "unknown" and len(answer["problems"]) == 1 and "sales" not in answer


async def test_pages_know_how_long_an_order_can_be_paid(client: Any) -> None:
    assert (await client.get("/api/shop")).json()["pay_within_s"] == 20


async def test_a_request_that_cannot_be_read_names_the_field(client: Any) -> None:
    answer = await client.get("/api/coupons")
    assert answer.status_code == 422 and "user_id" in answer.json()["error"]["message"]
