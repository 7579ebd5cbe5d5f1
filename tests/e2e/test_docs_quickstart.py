"""docs/quickstart.md, from its start to its stop: every program and command runs, and does what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client.doc_programs import NAMESRV, PROJECT, run_program, sections
from tests.e2e.runbooks import run, wait_for
from tests.e2e.server_process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DOCUMENT = "docs/quickstart.md"


def commands(title: str) -> list[str]:
    """The command lines of a section."""
    (section,) = re.findall(rf"^## {title}\n(.*?)^## ", (PROJECT / DOCUMENT).read_text(), re.S | re.M)
    return [
        line for block in re.findall(r"^```\n(.*?)^```", section, re.S | re.M) for line in block.splitlines()
    ]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's, whose home is the test's."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "ROCKETMQ_"))}
    return {**kept, "HOME": str(tmp_path)}


async def test_word_by_word(tmp_path: Path, environ: dict[str, str]) -> None:
    start, ready = commands("Start")
    free = ["--namesrv-port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    server = ServerProcess("kourou.cli.main", [*start.split()[1:], *free], environ, tmp_path / "server")
    try:
        line = server.wait_first_line()
        assert re.sub(r"\d+\.0\.0\.1:\d+|store .*\)", "", line) == re.sub(
            r"\d+\.0\.0\.1:\d+|store .*\)", "", ready
        )
        namesrv = re.findall(r"namesrvAddr=(\S+)", line)[0]
        by_title = {section.title: section for section in sections(DOCUMENT)}
        for title in ("Send", "Consume"):
            (program,) = by_title[title].programs
            await run_program(program, namesrv, tmp_path)
        _look(namesrv, environ)
        (program,) = by_title["Consume"].programs
        await run_program(program, namesrv, tmp_path)  # everything again
        _without_a_program({**environ, "NAMESRV_ADDR": namesrv})
        run("mqshutdown standalone", namesrv, environ)
        assert (server.wait_end(), server.errors) == (0, "")
    finally:
        server.kill()


def _look(namesrv: str, environ: dict[str, str]) -> None:
    status, progress, by_key, back = commands("Look at it")
    assert all(NAMESRV in line for line in (status, progress, by_key, back))
    assert "broker-a" in run(status, namesrv, environ)
    assert re.search(r"Diff Total: 0\b", run(progress, namesrv, environ))
    assert "Message" in run(by_key, namesrv, environ)
    run(back, namesrv, environ)
    assert re.search(r"Diff Total: 3\b", run(progress, namesrv, environ))


def _without_a_program(environ: dict[str, str]) -> None:
    producer, consumer = commands("Without a program")
    sent = run(producer, "", environ)
    assert sent.count("SEND_OK") == 3
    words = [sys.executable, "-m", "kourou.cli.main", *consumer.split()[1:]]
    out = Path(environ["HOME"]) / "consumed"
    with out.open("w") as file, subprocess.Popen(words, env=environ, stdout=file) as process:
        try:
            wait_for(lambda: out.read_text().count("Receive New Messages") == 3, "three messages")
            process.send_signal(signal.SIGINT)
            process.wait(30)
        finally:
            process.kill()
