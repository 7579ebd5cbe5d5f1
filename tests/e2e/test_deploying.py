"""docker/ and systemd/: what their files say is what the commands take, as far as it can be seen here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server_process import ServerProcess
from tests.interop.kit.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "docker" / "Dockerfile"
UNITS = sorted((PROJECT / "systemd").glob("*.service"))
READ_YAML = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
KOUROU = [sys.executable, "-m", "kourou.cli.main"]
INSTALLED = "/opt/kourou/bin/kourou"


def compose() -> dict[str, Any]:
    """The compose file, by whatever Python has a YAML reader."""
    text = (PROJECT / "docker" / "compose.yaml").read_text()
    for python in (sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        ran = subprocess.run([str(python), "-c", READ_YAML], input=text, capture_output=True, text=True)
        if ran.returncode == 0:
            found: dict[str, Any] = json.loads(ran.stdout)
            return found
        assert "ModuleNotFoundError" in ran.stderr, ran.stderr
    pytest.skip("no Python here has a YAML reader (PyYAML)")


def printed_config(command: list[str], home: Path) -> dict[str, str]:
    """What a server's command comes to."""
    environ = {**os.environ, "ROCKETMQ_HOME": str(home), "HOME": str(home)}
    ran = subprocess.run(
        [*KOUROU, *command, "-p"], env=environ, cwd=home, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return dict(line.partition("=")[::2] for line in ran.stdout.splitlines())


def understood(check: list[str]) -> bool:
    """Whether `kourou ready` accepts the options of a health check; no server responds."""
    ran = subprocess.run([*KOUROU, *check[1:]], capture_output=True, text=True, timeout=60)
    return check[:2] == ["kourou", "ready"] and ran.returncode == 1 and "cannot connect" in ran.stderr


# -- docker ------------------------------------------------------------------------------------------


def test_the_compose_file_has_two_name_servers_and_two_masters(tmp_path: Path) -> None:
    services = compose()["services"]
    assert sorted(services) == ["broker-a", "broker-b", "namesrv-1", "namesrv-2"]
    for name in ("namesrv-1", "namesrv-2"):
        assert printed_config(services[name]["command"], tmp_path)["listenPort"] == "9876"
    for name, port in (("broker-a", "10911"), ("broker-b", "10921")):
        command = [
            word.replace("${KOUROU_HOST:-" + name + "}", "localhost") for word in services[name]["command"]
        ]
        assert "localhost" in command
        config = printed_config(command, tmp_path)
        assert (config["brokerName"], config["listenPort"], config["brokerIP1"]) == (name, port, "localhost")
        assert config["namesrvAddr"] == "namesrv-1:9876;namesrv-2:9876"
        assert services[name]["ports"] == [f"{port}:{port}"]
        assert set(services[name]["depends_on"]) == {"namesrv-1", "namesrv-2"}


def test_what_the_compose_file_checks_is_readiness() -> None:
    services = compose()["services"]
    checks = {name: service["healthcheck"]["test"] for name, service in services.items()}
    for name, check in checks.items():
        assert check == ["CMD", "kourou", "ready", "--http", "127.0.0.1:8080"]
        command = services[name]["command"]
        assert command[command.index("--http-port") + 1] == "8080"
    assert understood(["kourou", "ready", "--http", "127.0.0.1:1"])  # an unused port


def test_servers_in_containers_can_do_little() -> None:
    for service in compose()["services"].values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert [volume.partition(":")[2] for volume in service["volumes"]] == ["/var/lib/kourou"]


def test_the_image_is_small_not_run_as_root_and_requires_the_kernel() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM python:3.12 AS build",  # has a C compiler
        "FROM python:3.12-slim",
    ]
    assert any(line.startswith("RUN KOUROU_KERNEL=1 pip wheel ") for line in lines)
    assert not re.search(r"apt|build-essential|--platform", DOCKERFILE.read_text())
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    assert all((PROJECT / word).exists() and f"!{word}" in ignored for word in copied)


def test_what_the_image_starts_becomes_ready(tmp_path: Path) -> None:
    found = re.findall(r"^(?:CMD|ENTRYPOINT) (\[.*\])$", DOCKERFILE.read_text(), re.M)
    entrypoint, command = (json.loads(line) for line in found)
    assert entrypoint == ["kourou"]
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE.read_text(), re.M)
    assert json.loads(check)[1:] == [
        "ready",
        "--http",
        f"127.0.0.1:{command[command.index('--http-port') + 1]}",
    ]
    command = [word.replace("/var/lib/kourou", str(tmp_path)) for word in command]
    port = free_port()
    free = ["--namesrv-port", "0", "--broker-port", "0", "--http-port", str(port)]
    server = ServerProcess("kourou.cli.main", [*command, *free], dict(os.environ), tmp_path / "out")
    try:
        ready = re.search(r"namesrvAddr=(\S+) \(broker (\S+);", server.wait_first_line())
        assert ready is not None, server.output
        words = ["-n", ready[1], "-b", ready[2], "--http", f"127.0.0.1:{port}"]
        asked = subprocess.run([*KOUROU, "ready", *words], capture_output=True, text=True, timeout=60)
        assert (asked.returncode, asked.stderr) == (0, "")
        assert server.stop() == 0
    finally:
        server.kill()


def test_the_image_can_be_built_and_becomes_healthy() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker daemon here")
    build = ["docker", "build", "-q", "-f", str(DOCKERFILE), str(PROJECT)]
    image = subprocess.run(build, capture_output=True, text=True, check=True, timeout=900).stdout.strip()
    run = ["docker", "run", "-d", "--rm", image]
    container = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    try:
        check = ["docker", "exec", container, "kourou", "ready", "--wait", "60", "-n", "127.0.0.1:9876"]
        servers = ["-b", "127.0.0.1:10911", "--http", "127.0.0.1:8080"]
        subprocess.run([*check, *servers], check=True, timeout=120)
        version = ["docker", "exec", container, "kourou", "version", "--json"]
        said = subprocess.run(version, capture_output=True, text=True, check=True, timeout=60).stdout
        assert json.loads(said)["kernel"]["inUse"]
    finally:
        subprocess.run(["docker", "stop", container], capture_output=True, timeout=120)


# -- systemd -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(INSTALLED, sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # Units of this machine that it pulls in may have faults of their own.
    assert [line for line in ran.stderr.splitlines() if "kourou" in line] == []
    assert ran.returncode == 0 or unit.name not in ran.stderr


@pytest.mark.parametrize(
    ("unit", "sample", "port"),
    [("kourou-broker", "broker.conf", "10911"), ("kourou-namesrv", "namesrv.properties", "9876")],
)
def test_the_command_of_a_unit_takes_the_sample_configuration(
    unit: str, sample: str, port: str, tmp_path: Path
) -> None:
    text = (PROJECT / "systemd" / f"{unit}.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    words = shlex.split(start.replace(f"/etc/kourou/{sample}", str(PROJECT / "conf" / sample)))
    assert words[0] == INSTALLED
    # The sample leaves the name servers to the operator; without any the broker says so.
    command = [*words[1:], *(["-n", "127.0.0.1:9876"] if sample == "broker.conf" else [])]
    assert printed_config(command, tmp_path)["listenPort"] == port
    (post,) = re.findall(r"^ExecStartPost=(.*)$", text, re.M)
    check = shlex.split(post.replace(INSTALLED, "kourou").replace(f":{port}", ":1"))
    check[check.index("--wait") + 1] = "0"
    assert understood(check)


def test_there_are_units() -> None:
    assert [unit.stem for unit in UNITS] == ["kourou-broker", "kourou-namesrv"]
