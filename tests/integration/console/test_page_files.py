"""The files of the pages: types, compression, caching, and nothing outside of their folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from kourou.console.page_files import PageFiles


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    folder = tmp_path / "pages"
    (folder / "js").mkdir(parents=True)
    (folder / "js" / "main.js").write_text("let x = 1;\n" * 200)
    (tmp_path / "secret").write_text("not for others")
    (folder / "link").symlink_to(tmp_path / "secret")
    app = Starlette(routes=[Route("/static/{path:path}", PageFiles(folder).respond)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        yield client


async def test_a_file_is_compressed_and_not_sent_twice(http: httpx.AsyncClient, tmp_path: Path) -> None:
    answer = await http.get("/static/js/main.js")
    assert (answer.headers["content-type"], answer.headers["content-encoding"]) == (
        "text/javascript; charset=utf-8",
        "gzip",
    )
    assert answer.text.startswith("let x = 1;")
    plain = await http.get("/static/js/main.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content and "content-encoding" not in plain.headers
    etag = {"If-None-Match": answer.headers["etag"]}
    assert (await http.get("/static/js/main.js", headers=etag)).status_code == 304
    (tmp_path / "pages" / "js" / "main.js").write_text("let x = 2;\n")
    changed = await http.get("/static/js/main.js", headers=etag)
    assert (changed.status_code, changed.text) == (200, "let x = 2;\n")
    assert "content-encoding" not in changed.headers


@pytest.mark.parametrize(
    "path", ["none.js", "js", "", "..%2Fsecret", "js/..%2F..%2Fsecret", "%2Fetc%2Fpasswd", "link", "a%00b"]
)
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(f"/static/{path}")).status_code == 404
