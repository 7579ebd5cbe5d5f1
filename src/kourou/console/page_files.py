"""PageFiles: the files of the pages, kept in memory, compressed once.

A page needs some 60 small files, which would otherwise be read in threads and compressed for each request. A
file that has changed since is read again, so that a developer only reloads the page.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from kourou.console.api_errors import not_found
from kourou.console.responses import error_response

PAGES: Final = Path(__file__).parent / "pages"
INDEX: Final = "index.html"
_MIN_GZIP_BYTES: Final = 1_024
_TYPES: Final = {".js": "text/javascript", ".svg": "image/svg+xml", ".md": "text/plain"}


class _File(NamedTuple):
    modified_ns: int
    content: bytes
    compressed: bytes | None
    etag: str
    media_type: str


class PageFiles:
    """Answers requests for files below a folder."""

    def __init__(self, folder: Path = PAGES) -> None:
        self._folder = folder.resolve()
        self._files: dict[str, _File] = {}

    async def respond(self, request: Request) -> Response:
        """The file that the path names; 404 if there is none."""
        return self.response(request, request.path_params["path"])

    async def index(self, request: Request) -> Response:
        """The empty page; its script shows what the path names."""
        return self.response(request, INDEX)

    def response(self, request: Request, name: str) -> Response:
        """One file; 304 if the browser has it."""
        file = self._file(name)
        if file is None:
            return error_response(not_found(f"there is no {request.url.path}"))
        # Browsers ask again each time, so that a new version shows at once.
        headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(file.compressed, headers=headers, media_type=file.media_type)
        return Response(file.content, headers=headers, media_type=file.media_type)

    def _file(self, name: str) -> _File | None:
        path = self._folder / name
        try:
            # Neither `..` nor a link leads out of the folder.
            if not path.resolve().is_relative_to(self._folder):
                return None
            modified_ns = path.stat().st_mtime_ns
            known = self._files.get(name)
            if known is None or known.modified_ns != modified_ns:
                known = self._files[name] = _read(path, modified_ns)
        except (OSError, ValueError):  # a folder, no such file, a name with a zero byte
            return None
        return known


def _read(path: Path, modified_ns: int) -> _File:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    compressed = gzip.compress(content, mtime=0) if len(content) >= _MIN_GZIP_BYTES else None
    etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    return _File(modified_ns, content, compressed, etag, media_type)
