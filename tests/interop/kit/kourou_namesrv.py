"""Our name server as a process of its own, started as a user starts it: `mqnamesrv -c FILE`.

With KOUROU_INTEROP_BASELINE=1 Apache's name server runs in its place. That run shows that a test asks of ours
exactly what Apache's own does: a test that fails there is wrong, whatever ours does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.interop.kit import apache
from tests.interop.kit.ports import free_port
from tests.interop.kit.process import ServerProcess

IS_BASELINE: Final = os.environ.get("KOUROU_INTEROP_BASELINE") == "1"
"""Whether Apache's name server stands in for ours."""

_READY_TIMEOUT_S: Final = 20


def launch_namesrv_under_test(apache_version: str, work_dir: Path) -> ServerProcess:
    """Launch our name server; apache_version says which of Apache's stands in for it in a baseline run."""
    if IS_BASELINE:
        return apache.start_namesrv(apache_version, work_dir, wait=False)
    return launch_kourou_namesrv(work_dir)


def launch_kourou_namesrv(work_dir: Path) -> ServerProcess:
    """Launch our name server on a free port; all that it writes stays below work_dir."""
    port = free_port()
    work_dir.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="kourou-namesrv-", dir=work_dir.absolute()))
    conf = home / "namesrv.conf"
    conf.write_text(f"listenPort={port}\nrocketmqHome={home}\nkvConfigPath={home}/namesrv/kvConfig.json\n")
    return ServerProcess(
        "our namesrv",
        [sys.executable, "-m", "kourou.cli.mqnamesrv", "-c", str(conf)],
        port=port,
        log_path=home / "console.log",
        ready_timeout_s=_READY_TIMEOUT_S,
        environment={"HOME": str(home)},
    )
