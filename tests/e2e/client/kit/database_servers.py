"""A PostgreSQL and a MariaDB, each started for the tests of one module, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.needed import need, need_module
from webshop.running.postgres import PostgresServer, find_programs

_START_S = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(
    words: Sequence[str], is_up: Callable[[], object], *, stop: int = signal.SIGTERM, **options: Any
) -> Iterator[None]:
    """A server until the block ends; up as soon as `is_up` raises nothing."""
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                is_up()
                break
            except Exception:
                assert time.monotonic() < deadline, f"{words[0]} is not up within {_START_S} s"
                time.sleep(0.05)
        yield
    finally:
        server.send_signal(stop)
        server.wait(30)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder for a PostgreSQL. Where tests run as root, it runs as another user, and pytest's folders are
    closed to that one."""
    with tempfile.TemporaryDirectory(prefix="kourou-pg-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def postgresql() -> Iterator[int]:
    """The port of a PostgreSQL with the superuser `shop`; no password is needed."""
    need("a PostgreSQL server", find_programs())
    port = free_port()
    with open_folder() as folder:
        server = PostgresServer.open(folder / "postgres", database="shop", has_password=False)

        def is_up() -> None:
            assert server.is_ready()

        words = server.command(port, "-c", "deadlock_timeout=100ms", is_durable=False)
        # Without waiting for clients.
        with running(words, is_up, stop=signal.SIGINT, **server.process_options):
            yield port


@contextmanager
def mariadb() -> Iterator[int]:
    """The port of a MariaDB that admits everyone, with the database `shop`. Without its system tables it is
    ready in a moment."""
    server = shutil.which("mariadbd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    need("a MariaDB server (mariadbd)", server)
    pymysql = need_module("pymysql")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kourou-mariadb-") as name:
        words = [
            *(
                str(server),
                "--no-defaults",
                "--skip-grant-tables",
                "--skip-name-resolve",
                f"--datadir={name}",
                f"--port={port}",
            ),
            *("--bind-address=127.0.0.1", f"--socket={name}/socket", f"--pid-file={name}/pid"),
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=20"),
            *(["--user=root"] if os.getuid() == 0 else []),
        ]

        def create_database() -> None:
            connection = pymysql.connect(host="127.0.0.1", port=port, user="root")
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS shop")
            connection.close()

        with running(words, create_database):
            yield port
