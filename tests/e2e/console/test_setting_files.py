"""Settings as a file: exported, and imported again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.changes import confirm, preview, row

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.mark.parametrize(("kind", "field"), [("topics", "topicName"), ("groups", "groupName")])
def test_settings_are_exported_and_imported_under_another_name(
    visitor: Visitor, tmp_path: Path, kind: str, field: str
) -> None:
    page = visitor.open(f"/{kind}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    entry = json.loads(download.value.path().read_text())[0]
    file = tmp_path / "settings.json"
    file.write_text(json.dumps([{**entry, field: f"Imported-{kind}"}]))

    page.get_by_role("button", name=f"Import {kind}").click()
    page.get_by_label("JSON file").set_input_files(file)
    page.get_by_text("1 entry in the file").wait_for()
    assert f"Imported-{kind}" in preview(page)[0]
    confirm(page)

    row(page, f"Imported-{kind}").wait_for()
