"""BrokerProcess: a broker of a standalone, as a child process."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from kourou.config.host import LOOPBACK
from kourou.errors import KourouError
from kourou.standalone.options import Replica, StandaloneOptions, config_file
from kourou.transport.addresses import parse_address

_log = logging.getLogger(__name__)

# By name: the layers below commands do not import them, but a child is one.
_BROKER_COMMAND: Final = ("-m", "kourou.cli.mqbroker", "--supervised")
_BOOTED: Final = re.compile(r"The broker\[(?P<name>.+), (?P<address>\S+)\] boot success")
_PROBED: Final = re.compile(r"health checks: http://(?P<address>\S+)/readyz")
# A child is on this machine, and answers a readiness probe at once or not at all.
_PROBE_TIMEOUT_MS: Final = 2_000


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
        cls, options: StandaloneOptions, replica: Replica, keys: dict[str, str], *, port: int | None = None
    ) -> BrokerProcess:
        """Start a broker with these keys, at its own port if none is given. It has a session of its own:
        Ctrl-C is for the supervisor, which stops it in order."""
        name = replica.label
        if port is not None:
            keys["listenPort"] = str(port)
        if options.is_measured:
            keys |= {"httpPort": "0", "httpBindAddress": LOOPBACK}  # for the supervisor's own probes
        arguments = [f"--logFile={options.log_folder / name}.log"]
        arguments += [f"--set={key}={text}" for key, text in keys.items()]
        if config_file(options, replica).exists():
            arguments.append(f"--configFile={config_file(options, replica)}")
        if options.accounts is not None:
            arguments.append(f"--keysFile={options.accounts.server_file}")
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
    def booted_address(self) -> str | None:
        """The advertised address; None if it does not serve yet."""
        return self._booted.result() if self._booted.done() else None

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
