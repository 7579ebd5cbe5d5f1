"""README and the guides, top to bottom on one broker: every program and command prints what the page says.

Not here: pages that need Spark (tests/spark/test_docs_*.py), runbooks (test_runbooks.py), pip
(client/test_docs_client.py), Java (tests/interop/test_client_quickstart.py).
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kourou.transport.tls import throw_away_certificate
from tests.e2e.doc_programs import (
    LIMIT_S,
    PROJECT,
    Step,
    is_like,
    read_lines,
    run_step,
    start_step,
    steps,
    user_environ,
)
from tests.e2e.server_process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGES = (
    *("README.md", "docs/quickstart.md", "docs/client.md", "docs/exactly-once.md", "docs/testing.md"),
    *("docs/embedding.md", "docs/grpc.md"),
)
NOT_RUN = {
    "kourou standalone": "it is the broker of this test",
    "kourou namesrv": "test_namesrv_command.py",
    "kourou broker": "test_sample_configurations.py",
    "kourou proxy": "test_grpc_commands.py",
    "mqbroker ": "the same",
    "mqshutdown broker": "the same",
}
# What commands have to show, where the page says so in words.
SHOWN = {
    "mqadmin clusterList": "broker-a",
    "mqadmin topicStatus": "broker-a",
    "mqadmin consumerProgress": "Diff Total: 0",
    "mqadmin queryMsgByKey": "order-1",
}


def is_run(step: Step) -> bool:
    """Whether it runs here."""
    if step.is_program:
        return step.file_name is None  # test files of docs/testing.md: test_docs_testing.py
    return not step.text.startswith(tuple(NOT_RUN))


def tls_commands() -> str:
    """The commands of the section about TLS, without that which creates a certificate: it takes seconds."""
    section = (PROJECT / "docs/client.md").read_text().partition("\n## TLS\n")[2]
    openssl, _, rest = section.partition("```\n")[2].partition("```\n")[0].partition("\n")
    assert openssl.startswith("openssl req ")
    return rest


class Standalone:
    """`kourou standalone` in a user's home, on free ports, with the certificate of the section about TLS."""

    def __init__(self, home: Path) -> None:
        self.environ = user_environ(home)
        certificate, key = throw_away_certificate()
        (home / "ca.pem").write_bytes(certificate)
        (home / "key.pem").write_bytes(key)
        subprocess.run(
            ["bash", "-eu"], input=tls_commands(), text=True, cwd=home, env=self.environ, check=True
        )
        free = ["standalone", "--namesrv-port", "0", "--broker-port", "0", "--console", "--console-port", "0"]
        self.process = ServerProcess("kourou.cli.main", free, self.environ, home / "server")

    def wait_ready(self, home: Path) -> str:
        """Wait for the line of the pages; returns the name server's address."""
        self.process.wait_output("compiled kernel ")
        found = re.search(r"namesrvAddr=(\S+)", self.process.wait_first_line())
        assert found is not None, self.process.output
        as_shown = self.process.output.replace(str(home), "/home/ann").splitlines()
        without_console = [line for line in as_shown if not line.startswith("console: ")]
        for page, command, shown in (
            ("README.md", "kourou standalone --console", as_shown),
            ("docs/quickstart.md", "kourou standalone", without_console),
        ):
            (start,) = [step for step in steps(page) if step.text == command]
            assert start.output is not None
            expected = tuple(re.sub(r":\d+", ":…", line) for line in start.output)
            # Whether there is a kernel depends on the machine.
            assert is_like(shown, (*expected[:-1], "compiled kernel …")), shown
        return found[1]


class KeptRunning:
    """`consume.py` of the quick start: it runs while the group is looked at, and prints all again after
    `resetOffsetByTime`."""

    PAGE = "docs/quickstart.md"
    SECTION = "Consume"
    UNTIL = "Inspect"

    def __init__(self, step: Step, process: asyncio.subprocess.Process) -> None:
        self._step = step
        self._process = process

    @classmethod
    async def started(cls, step: Step, namesrv: str, folder: Path, environ: Mapping[str, str]) -> KeptRunning:
        """Start it, and wait until it has printed what the page shows."""
        kept = cls(step, await start_step(step, namesrv, folder, environ))
        await kept.wait_printed()
        return kept

    async def wait_printed(self) -> None:
        """Wait until it has printed what the page shows, or that once more."""
        assert self._step.output is not None
        printed: list[str] = []
        async with asyncio.timeout(LIMIT_S):
            await read_lines(self._process, len(self._step.output), printed)
        assert is_like(printed, self._step.output), printed

    async def stop(self) -> None:
        """Stop it as Ctrl-C does. The reset of each queue's offset is all that it may have logged."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
        printed, errors = await self._process.communicate()
        assert (self._process.returncode, printed) == (0, b""), errors
        assert all("Greetings" in line for line in errors.decode().splitlines()), errors


class Reader:
    """A user who reads the pages in order and does what they say."""

    def __init__(self, namesrv: str, folder: Path, environ: Mapping[str, str]) -> None:
        self._at = (namesrv, folder, environ)
        self._kept: KeptRunning | None = None
        self.failures: list[str] = []

    async def read(self, page: str) -> None:
        """Run what is in a page."""
        for step in filter(is_run, steps(page)):
            try:
                await self._do(step)
            except (AssertionError, TimeoutError) as error:
                self.failures.append(f"{step.where}: {error!r}")

    async def _do(self, step: Step) -> None:
        if self._kept is not None and step.section != KeptRunning.UNTIL:
            kept, self._kept = self._kept, None
            await kept.wait_printed()
            await kept.stop()
        if (step.page, step.section) == (KeptRunning.PAGE, KeptRunning.SECTION):
            self._kept = await KeptRunning.started(step, *self._at)
        elif "consumerProgress" in step.text:
            await self._until_stored(step)
        else:
            await self._run(step)

    async def _run(self, step: Step) -> None:
        printed = await run_step(step, *self._at)
        for command, words in SHOWN.items():
            if step.text.startswith(command):
                assert words in "\n".join(printed), printed

    async def _until_stored(self, step: Step) -> None:
        """Consumers store their offsets every 5 s: until then there is no progress to show."""
        failure: AssertionError | None = None
        for _ in range(20):
            try:
                return await self._run(step)
            except AssertionError as error:
                failure = error
                await asyncio.sleep(0.5)
        assert failure is not None
        raise failure


async def test_every_page_in_order_on_one_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("ann")  # on a disk: `doctor` reports a store in memory
    standalone = Standalone(home)
    try:
        reader = Reader(standalone.wait_ready(home), home, standalone.environ)
        for page in PAGES:
            await reader.read(page)
        assert not reader.failures, "\n".join(reader.failures)
        assert (standalone.process.stop(), standalone.process.errors) == (0, "")
    finally:
        standalone.process.kill()
