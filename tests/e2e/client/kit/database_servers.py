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

_START_S = 30
_POSTGRES_USER = "postgres"


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
def postgresql() -> Iterator[int]:
    """The port of a PostgreSQL with the user `shop`; it does not run as root, so as its own user there."""
    initdb, postgres = (shutil.which(name, path=_postgres_path()) for name in ("initdb", "postgres"))
    need("a PostgreSQL server", initdb and postgres)
    dbapi = need_module("pg8000.dbapi")
    user = {"user": _POSTGRES_USER} if os.getuid() == 0 else {}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kourou-pg-") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, _POSTGRES_USER)
        data = str(folder / "data")
        subprocess.run(
            [str(initdb), "-D", data, "-U", "shop", "-A", "trust", "--no-sync"],
            check=True, capture_output=True, cwd=folder, **user,
        )  # fmt: skip
        words = [str(postgres), "-D", data, "-p", str(port), "-k", name, "-h", "127.0.0.1", "-F"]
        words += ["-c", "deadlock_timeout=100ms"]
        with running(
            words,
            lambda: dbapi.connect(user="shop", host="127.0.0.1", port=port, database="postgres").close(),
            stop=signal.SIGINT,  # without waiting for clients
            cwd=folder,
            **user,
        ):
            yield port


def _postgres_path() -> str:
    """Debian keeps the server's programs out of the way."""
    found = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return os.pathsep.join([os.environ.get("PATH", ""), *found])


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
