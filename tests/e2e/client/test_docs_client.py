"""docs/client.md and the client's part of README: every program in them runs and prints what they say."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import kourou
from kourou.config import NamesrvConfig
from kourou.embed import Broker, NameServer
from kourou.testing.cluster import broker_config, cluster
from kourou.transport.tls import throw_away_certificate
from tests.e2e.client.doc_programs import PROJECT, Section, run_program, sections
from tests.e2e.client.push_kit import make_topic
from tests.e2e.server_process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENT_GUIDE = [pytest.param(section, id=section.title) for section in sections("docs/client.md")]
README_TITLE = "A Python client"


@contextlib.asynccontextmanager
async def serving(section: Section, folder: Path) -> AsyncIterator[str]:
    """The servers that a section needs; the name server's address."""
    if section.title == "TLS":
        async with serving_tls(folder) as namesrv:
            yield namesrv
        return
    async with cluster(folder / "stores") as running:
        for topic in section.topics:
            await make_topic(running, topic)
        yield running.namesrv_addr


@contextlib.asynccontextmanager
async def serving_tls(folder: Path) -> AsyncIterator[str]:
    """Servers that take TLS only; who trusts ca.pem trusts them."""
    certificate, key = throw_away_certificate()
    (folder / "ca.pem").write_bytes(certificate)
    (folder / "key.pem").write_bytes(key)
    tls = {
        "tls_server_cert_path": str(folder / "ca.pem"),
        "tls_server_key_path": str(folder / "key.pem"),
    }
    enforced = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, tls_server_mode="enforcing", **tls)
    async with NameServer(enforced) as namesrv:
        config = broker_config(folder / "stores", 0, namesrv.address, tls_enable=True, **tls)
        async with Broker(config):
            yield namesrv.address


@pytest.mark.parametrize("section", CLIENT_GUIDE)
async def test_the_programs_of_the_client_guide(section: Section, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    async with serving(section, folder) as namesrv:
        for program in section.programs:
            await run_program(program, namesrv, folder)


async def test_the_first_five_minutes_of_the_readme(tmp_path: Path) -> None:
    """`kourou standalone`, then the programs, one after the other."""
    readme = (PROJECT / "README.md").read_text()
    assert "pip install .\nkourou standalone\n" in readme
    (section,) = [section for section in sections("README.md") if section.title == README_TITLE]
    free = ["standalone", "--namesrv-port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    server = ServerProcess("kourou.cli.main", free, {**os.environ, "HOME": str(tmp_path)}, tmp_path / "out")
    try:
        ready = re.search(r"namesrvAddr=(\S+)", server.wait_first_line())
        assert ready is not None, server.output
        for program in section.programs:
            await run_program(program, ready[1], tmp_path)
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
def test_pip_installs_what_the_readme_uses(tmp_path: Path) -> None:
    """`pip install .`, into a folder of its own; dependencies are those of the tests."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(site), str(PROJECT)], check=True, timeout=300)
    found = "import kourou; print(kourou.Producer, kourou.PushConsumer, kourou.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(site)}
    for command in ([sys.executable, "-c", found], [str(site / "bin" / "kourou"), "standalone", "--help"]):
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert str(site) in ran.stdout or "--namesrv-port" in ran.stdout


def test_every_client_is_in_the_guide() -> None:
    guide = (PROJECT / "docs" / "client.md").read_text()
    clients = [name for name in kourou.__all__ if name.endswith(("Producer", "Consumer", "Reader"))]
    assert len(clients) == 11
    assert [name for name in clients if name.removeprefix("Async") not in guide] == []
