"""A collector of spans, OTLP over HTTP with JSON, whose answers a test chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Collector:
    """The spans that were accepted, and the answers to give first."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], Any]] = []
        """Codes, headers and bodies of the next answers; then 200."""
        self.headers: list[dict[str, str]] = []
        self.spans: list[dict[str, Any]] = []
        self.services: list[str] = []
        self.url = ""

    def take(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        self.headers.append(headers)
        code, answer_headers, answer = self.answers.pop(0) if self.answers else (200, {}, {})
        if code == 200:
            for resource in json.loads(body)["resourceSpans"]:
                attributes = {each["key"]: each["value"] for each in resource["resource"]["attributes"]}
                for scope in resource["scopeSpans"]:
                    self.spans += scope["spans"]
                    self.services += [attributes["service.name"]["stringValue"]] * len(scope["spans"])
        return code, answer_headers, answer

    def span(self, name: str, msg_id: str) -> dict[str, Any]:
        """The only span with this name of a message."""
        id_of_message = {"key": "messaging.message.id", "value": {"stringValue": msg_id}}
        (found,) = (
            span for span in self.spans if span["name"] == name and id_of_message in span["attributes"]
        )
        return found


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/v1/traces":
                self.send_error(404)
                return
            code, headers, answer = collector.take(dict(self.headers.items()), body)
            encoded = json.dumps(answer).encode()
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(encoded))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
