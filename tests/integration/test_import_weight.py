"""What is not loaded: each in a process of its own, since modules stay loaded."""

from __future__ import annotations

import re
import subprocess
import sys


def test_importing_kourou_stays_light() -> None:
    program = "import sys, kourou; print([m for m in ('asyncio', 'msgspec', 'numpy') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_servers_load_only_the_keys_of_their_component() -> None:
    program = (
        "import sys, kourou.cli.mqnamesrv, kourou.config.namesrv_loader, kourou.cli.main\n"
        "names = ('broker', 'broker_settings', 'reference')\n"
        "print([name for name in names if f'kourou.config.{name}' in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "[]\n"


def test_the_command_line_itself_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from kourou.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = 'kourou.admin kourou.client kourou.transport numpy pydantic pyspark rich typer'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout.splitlines()[-1], ran.stderr) == ("[]", "")


def test_only_what_exists_is_listed_and_servers_first() -> None:
    # In a process of its own: groups of commands stay loaded.
    words = [sys.executable, "-m", "kourou.cli.main", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    listed = shown.partition("Commands:\n")[2]
    assert re.findall(r"^  (\w+)", listed, re.M) == [
        "standalone",
        "broker",
        "namesrv",
        "proxy",
        "console",
        "demo",
        "ready",
        "version",
        "topic",
        "group",
        "send",
        "tail",
        "trace",
        "context",
        "completion",
        "admin",
        "bench",
        "pipeline",
        "quickstart",
        "store",
    ]
