"""The files of the shop's pages: they load only what is there, and have words for what services answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.console.page_files import PAGES
from webshop.errors import Code
from webshop.events import Kind
from webshop.gateway.domain import SENTENCES
from webshop.money import FREE_SHIPPING_FROM, SHIPPING
from webshop.payments.domain import PaymentState
from webshop.running.catalogue import GOODS
from webshop.settings import Way

OWN = Path(__file__).parents[3] / "examples" / "shop" / "webshop" / "gateway" / "pages"
SCRIPTS = sorted((OWN / "js").glob("*.js"))
_IMPORT = re.compile(r"""(?:\bfrom\s+|\bimport\s+)"([^"]+)\"""")

# Not for buyers: the provider's mistakes, and requests that no page makes.
INTERNAL = {
    *(Code.BAD_REQUEST, Code.AWAY, Code.ORDER_DIFFERS, Code.WRONG_AMOUNT, Code.WRONG_SIGNATURE),
    *(Code.PAYMENT_UNKNOWN, Code.PAYMENT_DIFFERS),
}


def file_of(address: str, beside: Path) -> Path:
    """The file that the gateway serves at an address."""
    if address.startswith("/static/"):
        return PAGES / address.removeprefix("/static/")
    return OWN / address.removeprefix("/shop/") if address.startswith("/shop/") else beside / address


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_only_files_that_are_there_and_adds_no_html(path: Path) -> None:
    code = path.read_text("utf-8")
    for address in _IMPORT.findall(code):
        assert file_of(address, path.parent).is_file(), address
    assert "innerHTML" not in code and "insertAdjacentHTML" not in code and "eval(" not in code


def test_the_page_loads_only_files_that_are_there_and_has_no_inline_code() -> None:
    page = (OWN / "index.html").read_text("utf-8")
    for address in re.findall(r"""(?:src|href)="([^"]+)\"""", page):
        assert file_of(address, OWN).is_file(), address
    assert "<style" not in page and not re.search(r"<script[^>]*>\s*[^<\s]", page)


def names_of(constant: str) -> set[str]:
    """The names of an object in words.js."""
    code = (OWN / "js" / "words.js").read_text("utf-8")
    [body] = re.findall(rf"export const {constant} = {{(.*?)}};\n", code, re.DOTALL)
    return set(re.findall(r"(?:^|[{,])\s*(\w+): [{\"]", body, re.MULTILINE)) - {
        "label",
        "title",
        "next",
        "kind",
    }


def test_there_are_words_for_every_event_state_and_way() -> None:
    assert names_of("EVENTS") == set(Kind)
    assert names_of("PAYMENT_STATES") == set(PaymentState)
    assert names_of("WAYS") == set(Way)


def test_there_is_a_drawing_for_all_goods_of_a_new_shop() -> None:
    code = (OWN / "js" / "pictures.js").read_text("utf-8")
    drawings = set(re.findall(r"^  (\w+): \[", code, re.MULTILINE))
    assert drawings == {picture for _, _, picture, _, _ in GOODS}


def test_there_is_a_sentence_for_every_refusal_that_a_buyer_can_see() -> None:
    assert set(SENTENCES) == set(Code) - INTERNAL


def test_pages_and_services_charge_the_same_shipping() -> None:
    code = (OWN / "js" / "money.js").read_text("utf-8")
    found = {
        name: int(cents.replace("_", "")) for name, cents in re.findall(r"const (\w+) = ([\d_]+);", code)
    }
    assert found == {"SHIPPING": SHIPPING, "FREE_SHIPPING_FROM": FREE_SHIPPING_FROM}
