"""Names, ids and contents that are markup, wherever a client may choose them: pages show them as text.

Topics and groups have few characters, `%` among them: a name that is decoded once too often is markup.
Everything else is free: client ids, keys, tags, properties, bodies, values of the KV configuration.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from kourou import ConsumeContext, ConsumeResult, Message, MessageExt, Producer, PushConsumer
from kourou.admin.namesrvs import put_kv_config
from kourou.admin.session import Admin
from kourou.admin.topics import topic_status
from kourou.errors import ResponseError
from kourou.protocol.names import dlq_topic
from kourou.testing import LocalCluster
from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.changes import preview
from tests.e2e.console.kit.console_process import run_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# Each sets the title in its own way, if the page takes it for markup.
SCRIPT: Final = '<script>document.title="owned"</script>'
IMAGE: Final = "<img/src=x/onerror=\"document.title='owned'\">"  # keys are separated by spaces
LINK: Final = 'javascript:document.title="owned"'
TOPIC: Final = "%3Cscript%3Edocument%7Ctitle%3C%2Fscript%3E"
GROUP: Final = "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E"
BODY: Final = f"</pre></code>{IMAGE}{SCRIPT}<svg onload='document.title=`owned`'>"
WAIT_S: Final = 30


@dataclass(frozen=True)
class Attack:
    """A cluster with such contents."""

    namesrv: str
    msg_id: str
    client_id: str

    def paths(self) -> list[str]:
        """Every page that shows them."""
        topic, group = quote(TOPIC, safe=""), quote(GROUP, safe="")
        key = quote(IMAGE, safe="")
        return [
            "/",
            "/topics",
            f"/topics/{topic}",
            f"/topics/{topic}?tab=consumers",
            f"/topics/{topic}?tab=route",
            "/groups",
            f"/groups/{group}",
            f"/groups/{group}?tab=members",
            f"/groups/{group}?tab=subscriptions",
            f"/groups/{group}/clients/{quote(self.client_id, safe='')}",
            "/producers",
            f"/messages?topic={topic}",
            f"/messages?tab=key&topic={topic}&key={key}",
            f"/messages/{topic}/{self.msg_id}",
            f"/dead-letters?group={group}",
            f"/trace?id={self.msg_id}",
            f"/trace?topic={topic}&key={key}",
            "/delayed",
            "/namesrvs",
            "/doctor",
        ]


@pytest.fixture
def attack(browser: Browser) -> Iterator[Attack]:
    """In a thread of its own: Playwright occupies the event loop of the main thread."""
    with ExitStack() as stack, ThreadPoolExecutor(1, "attack") as thread:
        yield thread.submit(_fill, stack).result()
        thread.submit(stack.close).result()


def _fill(stack: ExitStack) -> Attack:
    namesrv = stack.enter_context(LocalCluster()).namesrv
    producer = stack.enter_context(Producer("%3Cb%3Eshop", namesrv=namesrv, trace=True, instance_name=IMAGE))
    message = Message(
        TOPIC,
        BODY.encode(),
        tags=SCRIPT,
        keys=[IMAGE],
        properties={"note": BODY, SCRIPT: LINK, "href": LINK},
    )
    msg_id = producer.send(message).msg_id
    producer.send(Message(TOPIC, BODY.encode(), keys=[IMAGE], delay_time_ms=3_600_000))
    consumer = PushConsumer(GROUP, namesrv=namesrv, consume_from="first", instance_name=IMAGE, trace=True)

    def fail(received: MessageExt, context: ConsumeContext) -> ConsumeResult:
        context.delay_level = -1  # to the dead letters at once
        return ConsumeResult.LATER

    consumer.subscribe(TOPIC, SCRIPT, fail)
    stack.enter_context(consumer)

    async def settle() -> None:
        async with Admin(namesrv=namesrv) as admin, asyncio.timeout(WAIT_S):
            while not await _has_dead_letter(admin):  # noqa: ASYNC110  # a broker knows
                await asyncio.sleep(0.05)
            await put_kv_config(admin, "ORDER_TOPIC_CONFIG", TOPIC, IMAGE)

    asyncio.run(settle())
    return Attack(namesrv, msg_id, consumer.client_id)


async def _has_dead_letter(admin: Admin) -> bool:
    try:
        status = await topic_status(admin, dlq_topic(GROUP))
    except ResponseError:
        return False
    return sum(queue.max_offset for queue in status.queues) > 0


def _check(visitor: Visitor, path: str) -> None:
    """Nothing became an element, and nothing ran."""
    page = visitor.page
    assert page.locator("main img, main script, dialog img, dialog script").count() == 0, path
    assert page.locator("[onerror], [onload]").count() == 0, path
    assert page.locator("a[href^='javascript:' i]").count() == 0, path
    assert page.title() != "owned", path


def test_markup_is_text_on_every_page(visit: Visit, attack: Attack, tmp_path: Path) -> None:
    with run_console(attack.namesrv, tmp_path) as console:
        visitor = visit(console.url)
        for path in attack.paths():
            visitor.open(path)
            _check(visitor, path)
        page = visitor.open(f"/messages/{quote(TOPIC, safe='')}/{attack.msg_id}")
        assert page.get_by_role("main").get_by_text(SCRIPT).count() >= 3  # tag, property, body
        for action in (_search, _send):
            action(visitor)
            _check(visitor, action.__name__)
        _store_value(console.url)
        visitor.open("/audit")
        page.get_by_role("main").get_by_role("row").filter(has_text=IMAGE).first.click()
        page.get_by_role("dialog").get_by_text("document.title").first.wait_for()
        _check(visitor, "/audit")


def _search(visitor: Visitor) -> None:
    page = visitor.open(f"/messages?tab=search&topic={quote(TOPIC, safe='')}")
    page.get_by_label("Body contains").fill(SCRIPT)
    page.get_by_role("button", name="Search").click()
    page.get_by_text("Done", exact=True).wait_for()
    assert page.get_by_role("table", name="Messages").get_by_role("rowheader").count() == 1


def _store_value(url: str) -> None:
    """By the API: the audit log has the body of the request."""
    with urlopen(f"{url}/api/session") as answer:
        token = json.load(answer)["csrf_token"]
    change = json.dumps({"namespace": "ops", "key": IMAGE, "value": SCRIPT}).encode()
    headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
    with urlopen(Request(f"{url}/api/namesrvs/kv", change, headers, method="PUT")) as answer:
        assert answer.status == 200


def _send(visitor: Visitor) -> None:
    """Previews and the audit log have it, too."""
    page = visitor.open(f"/topics/{quote(TOPIC, safe='')}")
    page.get_by_role("button", name="Send message").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tag").fill(SCRIPT)
    dialog.get_by_label("Keys").fill(IMAGE)
    dialog.get_by_role("textbox", name="Body").fill(BODY)
    preview(page)
    _check(visitor, "preview")
    dialog.get_by_role("button", name="Send", exact=True).click()
    dialog.get_by_text("The broker has stored the message.").wait_for()
