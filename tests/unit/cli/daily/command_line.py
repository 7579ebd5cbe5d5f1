"""A whole command line of `kourou` in this process, from its words to its exit code."""

from __future__ import annotations

import io
import os
import sys
from unittest import mock

from kourou.cli.main import app
from tests.unit.admin.command_line import Result


def run_kourou(*words: str, stdin: bytes = b"") -> Result:
    """Run `kourou WORDS` with this standard input, which may not be larger than a pipe."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    errors = io.StringIO()
    exit_code = 0
    with (
        _pipe_with(stdin) as piped,
        mock.patch.object(sys, "stdin", piped),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", errors),
    ):
        try:
            app(list(words), prog_name="kourou")
        except SystemExit as end:
            exit_code = end.code if isinstance(end.code, int) else 1
    return Result(out.buffer.getvalue().decode(), errors.getvalue(), exit_code)  # type: ignore[attr-defined]


def _pipe_with(content: bytes) -> io.TextIOWrapper:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return os.fdopen(reading)
