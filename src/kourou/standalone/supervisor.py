"""Standalone with several brokers: the name server here, each broker a process of its own.

One process is one core; more brokers use the others. A broker that ends by itself stops all: half a cluster
that looks whole would lose messages from sight. Where masters have slaves, messages stay in sight: then it is
reported and started again at the same address, after a pause that grows while it does not stay up.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import TYPE_CHECKING, Final

from kourou.config.host import LOOPBACK
from kourou.errors import KourouError
from kourou.namesrv.server import NameServer
from kourou.standalone.following import wait_followed
from kourou.standalone.http import start_http
from kourou.standalone.one_process import start_namesrv
from kourou.standalone.options import (
    Replica,
    StandaloneOptions,
    broker_config,
    broker_overrides,
    config_file,
    namesrv_config,
)
from kourou.store.kernel import choose_kernel
from kourou.transport.addresses import join_address, parse_address

if TYPE_CHECKING:
    from kourou.config import BrokerConfig
    from kourou.metrics.families import Family
    from kourou.transport.http_server import HttpHandler, HttpServer

_log = logging.getLogger(__name__)

# By name: the layers below commands do not import them, but a child is one.
_BROKER_COMMAND: Final = ("-m", "kourou.cli.mqbroker", "--supervised")
_BOOTED: Final = re.compile(r"The broker\[(?P<name>.+), (?P<address>\S+)\] boot success")
_PROBED: Final = re.compile(r"health checks: http://(?P<address>\S+)/readyz")
# A child is on this machine, and answers a readiness probe at once or not at all.
_PROBE_TIMEOUT_MS: Final = 2_000
# A large store that was not closed has to be recovered first.
_START_TIMEOUT_S: Final = 600.0
# A slave that copies is connected within milliseconds; one that cannot says why in its log.
_FOLLOW_TIMEOUT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
# A broker that has run for so long is not one that fails to start.
_STABLE_S: Final = 60.0


class BrokerProcess:
    """One child: a broker that stops when we do. Create it on the running loop."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self._process = process
        loop = asyncio.get_running_loop()
        self.started_s = loop.time()
        self._booted: asyncio.Future[str] = loop.create_future()
        self.probe_address: str | None = None
        # Ends with the exit code.
        self.ended = asyncio.create_task(self._watch(), name=f"watch-{name}")

    @classmethod
    async def spawn(
        cls, options: StandaloneOptions, replica: Replica, namesrv_addr: str, *, port: int | None = None
    ) -> BrokerProcess:
        """Start a broker, at its own port if none is given. It has a session of its own: Ctrl-C is for the
        supervisor, which stops it in order."""
        name = replica.label
        keys = broker_overrides(options, replica, namesrv_addr)
        if port is not None:
            keys["listenPort"] = str(port)
        if options.is_measured:
            keys |= {"httpPort": "0", "httpBindAddress": LOOPBACK}  # for the supervisor's own probes
        arguments = [f"--logFile={options.log_folder / name}.log"]
        arguments += [f"--set={key}={text}" for key, text in keys.items()]
        if config_file(options, replica).exists():
            arguments.append(f"--configFile={config_file(options, replica)}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, *_BROKER_COMMAND, *arguments, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        return cls(name, process)

    async def _watch(self) -> int:
        """Read its output to the end; the boot line has its address."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            text = line.decode(errors="replace")
            if booted := _BOOTED.match(text):
                self._booted.set_result(booted["address"])
            elif probed := _PROBED.match(text):
                self.probe_address = probed["address"]
        if not self._booted.done():
            self._booted.set_result("")
        return await self._process.wait()

    async def wait_booted_or_ended(self) -> bool:
        """Wait until it serves; False if it ended before. It reports failures on stderr."""
        return bool(await asyncio.shield(self._booted))

    async def wait_booted(self) -> None:
        """Wait until it serves. KourouError if it ended before."""
        if not await self.wait_booted_or_ended():
            raise KourouError(f"{self.name} did not start: {describe_exit(await asyncio.shield(self.ended))}")

    async def why_not_ready(self) -> str | None:
        """Why clients cannot use it now; None: they can."""
        if self.ended.done():
            return f"{self.name} has ended and is being restarted"
        if self.probe_address is None:
            return f"{self.name} is starting"
        from kourou.transport.http_probe import ask_readyz

        why_not = await ask_readyz(self.probe_address, _PROBE_TIMEOUT_MS)
        return why_not and f"{self.name}: {why_not}"

    @property
    def address(self) -> str:
        """The advertised address, once it serves; empty if it ended before."""
        return self._booted.result()

    @property
    def port(self) -> int:
        """Its port, once it serves."""
        return parse_address(self.address)[1]

    async def stop(self) -> None:
        """Ask it to stop and wait for that."""
        is_running = self._process.returncode is None
        if is_running:
            self._process.send_signal(signal.SIGTERM)
        # One that does not serve yet may be ended by the signal, or say itself why it does not start.
        is_serving = is_running and self._booted.done() and bool(self._booted.result())
        code = await asyncio.shield(self.ended)
        if is_serving and code:
            _log.error("%s did not stop in order: %s", self.name, describe_exit(code))

    def kill(self) -> None:
        """End it now; its store will be recovered at the next start."""
        if self._process.returncode is None:
            self._process.kill()


class RestartPauses:
    """How long to wait before a broker is started again: longer each time, unless it stayed up."""

    def __init__(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def next_s(self, lived_s: float) -> float:
        """The pause after a broker that has run for so long."""
        pause_s = _FIRST_PAUSE_S if lived_s >= _STABLE_S else self._next_s
        self._next_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return pause_s


class Supervisor:
    """A name server and the processes of its brokers. `start` and `stop` it once."""

    def __init__(self, options: StandaloneOptions) -> None:
        options.check()
        self._options = options
        self._namesrv: NameServer | None = None
        self._brokers: dict[Replica, BrokerProcess] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._http: HttpServer | None = None
        self._is_stopping = False
        # What the operator should know of the name server; each broker speaks for itself.
        self.notes: list[str] = []

    async def start(self) -> None:
        """On return every broker serves, and every slave follows its master. If a broker does not start, none
        is left."""
        config, self.notes = namesrv_config(self._options)
        for note in self.notes:
            _log.info("note: %s", note)
        try:
            self._http = await start_http(self._options, self.why_not_ready, self.metrics_routes)
            self._namesrv = await start_namesrv(NameServer(config, has_metrics=self._options.is_measured))
            await self._start_brokers()
        except BaseException:
            await self.stop()
            raise

    async def _start_brokers(self) -> None:
        for replica in self._options.replicas:
            self._brokers[replica] = await self._spawn(replica)
        async with asyncio.timeout(_START_TIMEOUT_S):
            await asyncio.gather(*(broker.wait_booted() for broker in self._brokers.values()))
        if self._options.slaves:
            await self._wait_followed()
            self._keepers = [
                asyncio.create_task(
                    self._keep_running(replica, self._brokers[replica].port), name="keep-broker"
                )
                for replica in self._brokers
            ]

    async def _spawn(self, replica: Replica, *, port: int | None = None) -> BrokerProcess:
        assert self._namesrv is not None
        address = self._options.namesrv_address(self._namesrv.port)
        return await BrokerProcess.spawn(self._options, replica, address, port=port)

    async def _wait_followed(self) -> None:
        """Wait until every master has its slaves; a send to a SYNC_MASTER needs one."""
        masters = {
            self._options.namesrv_address(broker.port): broker.name
            for replica, broker in self._brokers.items()
            if not replica.is_slave
        }
        for address in await wait_followed(masters, self._options.slaves, _FOLLOW_TIMEOUT_S):
            _log.warning(
                "not all slaves of %s follow it yet; the logs of the slaves say why", masters[address]
            )

    async def _keep_running(self, replica: Replica, port: int) -> None:
        """Start a broker again whenever it has ended."""
        loop, pauses = asyncio.get_running_loop(), RestartPauses()
        while True:
            broker = self._brokers[replica]
            end = describe_exit(await asyncio.shield(broker.ended))
            pause_s = pauses.next_s(loop.time() - broker.started_s)
            _log.error("%s ended by itself (%s); restarting it in %g s", broker.name, end, pause_s)
            await asyncio.sleep(pause_s)
            try:
                restarted = self._brokers[replica] = await self._spawn(replica, port=port)
            except OSError as error:  # no memory, no process left; tried again
                _log.error("%s cannot be started: %s", broker.name, error.strerror or error)
                continue
            if await restarted.wait_booted_or_ended():
                _log.info("%s serves again at %s", restarted.name, restarted.address)

    async def stop(self, timeout_ms: int = 3_000) -> None:
        """Stop the slaves together, then the masters, then the name server."""
        self._is_stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        try:
            await self._stop_servers(timeout_ms)
        finally:
            if self._http is not None:
                await self._http.stop()

    async def _stop_servers(self, timeout_ms: int) -> None:
        try:
            for is_slave in (True, False):
                brokers = [
                    broker for replica, broker in self._brokers.items() if replica.is_slave is is_slave
                ]
                await asyncio.gather(*(broker.stop() for broker in brokers))
        except asyncio.CancelledError:
            for broker in self._brokers.values():
                broker.kill()
            raise
        finally:
            if self._namesrv is not None:
                await self._namesrv.stop(timeout_ms)

    async def why_not_ready(self) -> str | None:
        """Why clients cannot work now, in one line; None: name server and every broker are ready."""
        if self._is_stopping:
            return "all brokers are stopping"
        if self._namesrv is None or len(self._brokers) < len(self._options.replicas):
            return "the brokers are starting"
        whys = [
            await self._namesrv.why_not_ready(),
            *await asyncio.gather(*(broker.why_not_ready() for broker in self._brokers.values())),
        ]
        return "; ".join(why for why in whys if why) or None

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._http is None else self._http.address

    def metrics_routes(self) -> dict[str, HttpHandler]:
        """Answers with the metrics of all, by path."""
        from kourou.transport.metrics_http import EXPORTER_METRICS, METRICS, merged_handler, metrics_handler

        async def own() -> list[Family]:
            return [] if self._namesrv is None else await self._namesrv.metric_families()

        async def none() -> list[Family]:
            return []

        def addresses() -> list[str]:
            return [broker.probe_address for broker in self._brokers.values() if broker.probe_address]

        return {
            METRICS: merged_handler(metrics_handler(own), addresses, METRICS),
            EXPORTER_METRICS: merged_handler(metrics_handler(none), addresses, EXPORTER_METRICS),
        }

    async def wait_failed(self) -> None:
        """Raise when a broker has ended that is not restarted, or the name server died of something."""
        assert self._namesrv is not None, "standalone is not started"
        failed = asyncio.create_task(self._namesrv.wait_failed(), name="wait-namesrv")
        try:
            if self._keepers:
                await asyncio.wait((*self._keepers, failed), return_when=asyncio.FIRST_COMPLETED)
                for keeper in self._keepers:
                    if keeper.done():
                        keeper.result()
            else:
                await self._wait_ended(failed)
            failed.result()
        finally:
            failed.cancel()
            await asyncio.gather(failed, return_exceptions=True)

    async def _wait_ended(self, failed: asyncio.Task[None]) -> None:
        """KourouError when a broker ends."""
        ends = [broker.ended for broker in self._brokers.values()]
        await asyncio.wait((*ends, failed), return_when=asyncio.FIRST_COMPLETED)
        for broker in self._brokers.values():
            if broker.ended.done():
                end = describe_exit(broker.ended.result())
                raise KourouError(f"{broker.name} ended by itself ({end}); stopping all")

    async def address_warning(self) -> str | None:
        """Each broker checks its own address, and warns on the shared stderr."""
        return None

    @property
    def address(self) -> str:
        """The name server as clients write it, `namesrvAddr`."""
        assert self._namesrv is not None, "standalone is not started"
        return join_address(self._options.advertised, self._namesrv.port)

    @property
    def broker_addresses(self) -> list[str]:
        """The advertised addresses of the brokers, each master followed by its slaves."""
        return [broker.address for broker in self._brokers.values()]

    @property
    def broker_texts(self) -> list[str]:
        """The advertised addresses; with slaves, each with its role."""
        if not self._options.slaves:
            return self.broker_addresses
        roles = [config.broker_role for config in self._configs]
        return [f"{address} {role}" for address, role in zip(self.broker_addresses, roles, strict=True)]

    @property
    def _configs(self) -> list[BrokerConfig]:
        """The configurations of the brokers, as they read them."""
        return [broker_config(self._options, replica, self.address)[0] for replica in self._brokers]

    @property
    def kernel_lines(self) -> list[str]:
        """Whether the brokers use the compiled kernel: one line if it is the same for all."""
        # They choose by this environment and by their own keys, as here.
        lines = [str(choose_kernel(is_enabled=config.compiled_kernel_enable)) for config in self._configs]
        if len(set(lines)) == 1:
            return lines[:1]
        return [f"{broker.name}: {line}" for broker, line in zip(self._brokers.values(), lines, strict=True)]


def describe_exit(code: int) -> str:
    """How a process ended.

    >>> describe_exit(1), describe_exit(-9)
    ('exit code 1', 'killed by SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
