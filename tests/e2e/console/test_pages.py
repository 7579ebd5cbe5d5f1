"""Every page opens without an error, in both themes and languages, and is usable without seeing it."""

from __future__ import annotations

import pytest

from tests.e2e.console.kit.browser import Visitor, check_accessibility
from tests.e2e.console.kit.pages import DETAILS, LISTS, path_of
from tests.e2e.console.kit.story import Shop

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.mark.parametrize("name", [*LISTS, *DETAILS])
def test_a_page_opens_and_has_no_serious_finding_of_accessibility(
    name: str, visitor: Visitor, shop: Shop
) -> None:
    page = visitor.open(path_of(name, shop))

    check_accessibility(page)

    assert page.title()
