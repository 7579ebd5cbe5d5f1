"""Our broker as a process of its own, started as a user starts it: `mqbroker -c FILE`.

With KOUROU_INTEROP_BASELINE=1 Apache's broker runs in its place (of KOUROU_INTEROP_BASELINE_VERSION, else
5.5.0). That run shows that a test asks of ours exactly what Apache's own does: a test that fails there is
wrong, whatever ours does. At 4.9.7 four tests fail with the client of 5.5.0: it does not know the requests of
the lite pull consumer, and keeps other ids of a batch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.interop.kit import apache
from tests.interop.kit.kourou_namesrv import IS_BASELINE
from tests.interop.kit.ports import free_broker_port
from tests.interop.kit.process import ServerProcess

BASELINE_VERSION: Final = os.environ.get("KOUROU_INTEROP_BASELINE_VERSION", "5.5.0")
"""Which of Apache's brokers stands in for ours in a baseline run."""
BROKER_NAME: Final = "broker-a"
"""The name of a broker under test unless its properties say otherwise."""

_READY_TIMEOUT_S: Final = 120


def launch_broker_under_test(
    work_dir: Path, namesrvs: Sequence[str], properties: Mapping[str, str] | None = None
) -> ServerProcess:
    """Launch our broker, or Apache's in a baseline run; `.wait_ready()` waits until it serves."""
    if IS_BASELINE:
        name = (properties or {}).get("brokerName", BROKER_NAME)
        return apache.start_broker(
            BASELINE_VERSION, work_dir, namesrvs, broker_name=name, properties=properties, wait=False
        )
    return launch_kourou_broker(work_dir, namesrvs, properties)


def launch_kourou_broker(
    work_dir: Path,
    namesrvs: Sequence[str],
    properties: Mapping[str, str] | None = None,
    *,
    python: str = sys.executable,
) -> ServerProcess:
    """Launch our broker; all that it writes stays below work_dir. Properties go over what is set here.
    Another `python` runs the Kourou that is installed there."""
    work_dir.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="kourou-broker-", dir=work_dir.absolute()))
    settings = {
        "brokerName": BROKER_NAME,
        "brokerClusterName": "DefaultCluster",
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(free_broker_port()),
        "namesrvAddr": ";".join(namesrvs),
        **apache.store_settings(home),
        **(properties or {}),
    }
    conf = home / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return ServerProcess(
        "our broker",
        [python, "-m", "kourou.cli.mqbroker", "-c", str(conf)],
        port=int(settings["listenPort"]),
        log_path=home / "console.log",
        ready_timeout_s=_READY_TIMEOUT_S,
        environment={"HOME": str(home)},
    )
