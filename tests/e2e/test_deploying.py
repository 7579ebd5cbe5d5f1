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

from kourou.admin.doctor.checks_failover import lease_bugs
from kourou.cli.service import STORE_STOP
from tests.e2e.server_process import ServerProcess
from tests.interop.kit.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "docker" / "Dockerfile"
COMPOSE_FILES = ("compose.yaml", "compose-failover.yaml")
NAMESRVS = {"namesrv-1", "namesrv-2"}
ETCDS = {"etcd-1", "etcd-2", "etcd-3"}
MEMBERS = {"broker-a-1": "10911", "broker-a-2": "10921", "broker-a-3": "10931"}
UNITS = sorted((PROJECT / "systemd").glob("*.service"))
READ_YAML = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
KOUROU = [sys.executable, "-m", "kourou.cli.main"]
INSTALLED = "/opt/kourou/bin/kourou"
DROP_IN = PROJECT / "systemd" / "kourou-broker.service.d" / "failover.conf"


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    """A compose file, by whatever Python has a YAML reader."""
    text = (PROJECT / "docker" / name).read_text()
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
    assert sorted(services) == ["broker-a", "broker-b", "namesrv-1", "namesrv-2", "proxy"]
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


def test_the_compose_file_has_a_proxy(tmp_path: Path) -> None:
    service = compose()["services"]["proxy"]
    config = printed_config(service["command"], tmp_path)
    assert (config["grpcServerPort"], service["ports"]) == ("8081", ["8081:8081"])
    assert config["namesrvAddr"] == "namesrv-1:9876;namesrv-2:9876"


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_the_compose_file_of_a_set_has_three_members_that_differ_in_address(tmp_path: Path) -> None:
    services = compose("compose-failover.yaml")["services"]
    assert set(services) == {*MEMBERS, *ETCDS, *NAMESRVS}
    for name in NAMESRVS:
        assert printed_config(services[name]["command"], tmp_path)["listenPort"] == "9876"
    for name, port in MEMBERS.items():
        command = services[name]["command"]
        assert option(command, "--advertise") == "${KOUROU_HOST:-" + name + "}"
        command[command.index("--advertise") + 1] = "localhost"
        config = printed_config(command, tmp_path)
        assert (config["brokerName"], config["brokerRole"]) == ("broker-a", "SYNC_MASTER")
        # With KOUROU_HOST only the ports differ. Replication stays within the network.
        assert (config["brokerIP1"], config["listenPort"], config["brokerIP2"]) == ("localhost", port, name)
        assert services[name]["ports"] == [f"{port}:{port}"]
        assert set(config["failoverEtcdEndpoints"].split(";")) == {f"{etcd}:2379" for etcd in ETCDS}
        assert set(config["namesrvAddr"].split(";")) == {f"{namesrv}:9876" for namesrv in NAMESRVS}
        needed = services[name]["depends_on"]
        assert {need: how["condition"] for need, how in needed.items()} == dict.fromkeys(
            ETCDS | NAMESRVS, "service_healthy"
        )


def test_the_members_of_etcd_in_the_compose_file_know_each_other() -> None:
    services = compose("compose-failover.yaml")["services"]
    for name in ETCDS:
        service = services[name]
        image, _, version = service["image"].partition(":v")
        assert image == "gcr.io/etcd-development/etcd"
        assert re.fullmatch(r"3\.\d+\.\d+", version) and lease_bugs(version) == []
        program, *words = service["command"]
        assert program == "/usr/local/bin/etcd"
        options = dict(zip(words[::2], words[1::2], strict=True))
        peers = dict(each.split("=") for each in options.pop("--initial-cluster").split(","))
        assert peers == {etcd: f"http://{etcd}:2380" for etcd in ETCDS}
        assert options == {
            "--name": name,
            "--data-dir": "/var/lib/etcd",
            "--listen-client-urls": "http://0.0.0.0:2379",
            "--advertise-client-urls": f"http://{name}:2379",
            "--listen-peer-urls": "http://0.0.0.0:2380",
            "--initial-advertise-peer-urls": peers[name],
        }
        assert "ports" not in service  # it has no users and no TLS
        assert service["healthcheck"]["test"] == ["CMD", "/usr/local/bin/etcdctl", "endpoint", "health"]


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_containers_are_restarted_and_keep_their_data_apart(file: str) -> None:
    found = compose(file)
    volumes = [service["volumes"][0].partition(":")[0] for service in found["services"].values()]
    assert sorted(volumes) == sorted(found["volumes"]) == sorted(set(volumes))
    for service in found["services"].values():
        assert service["restart"] == "unless-stopped"
        # After this time Docker kills; a broker gives up before, a handover included.
        assert int(service["stop_grace_period"].removesuffix("s")) > STORE_STOP.cut_off_ms / 1000


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_what_the_compose_file_checks_is_readiness(file: str) -> None:
    services = compose(file)["services"]
    checks = {name: service["healthcheck"]["test"] for name, service in services.items() if name not in ETCDS}
    for name, check in checks.items():
        assert check == ["CMD", "kourou", "ready", "--http", "127.0.0.1:8080"]
        command = services[name]["command"]
        assert command[command.index("--http-port") + 1] == "8080"
    assert understood(["kourou", "ready", "--http", "127.0.0.1:1"])  # an unused port


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_servers_in_containers_can_do_little(file: str) -> None:
    for name, service in compose(file)["services"].items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        data = "/var/lib/etcd" if name in ETCDS else "/var/lib/kourou"
        assert [volume.partition(":")[2] for volume in service["volumes"]] == [data]


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
@pytest.mark.parametrize("has_drop_ins", [False, True], ids=["alone", "with drop-ins"])
def test_systemd_takes_the_unit(unit: Path, has_drop_ins: bool, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    drop_ins = sorted(unit.with_name(f"{unit.name}.d").glob("*.conf")) if has_drop_ins else []
    if has_drop_ins and not drop_ins:
        pytest.skip("it has none")
    copy = tmp_path / unit.name
    for source in (unit, *drop_ins):
        target = tmp_path / source.relative_to(unit.parent)
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text().replace(INSTALLED, sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # Units of this machine that it pulls in may have faults of their own.
    assert [line for line in ran.stderr.splitlines() if "kourou" in line] == []
    assert ran.returncode == 0 or unit.name not in ran.stderr


def test_a_member_of_a_set_is_always_restarted_and_has_time_to_hand_over() -> None:
    unit = (PROJECT / "systemd" / "kourou-broker.service").read_text()
    lines = DROP_IN.read_text().splitlines()
    assert {"After=etcd.service", "Wants=etcd.service", "Restart=always"} <= set(lines)
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit + DROP_IN.read_text(), re.M)
    assert int(stop) > STORE_STOP.cut_off_ms / 1000
    # The unit's own check is replaced by one whose failure does not stop the member.
    reset, post = [line for line in lines if line.startswith("ExecStartPost=")]
    assert reset == "ExecStartPost=" and post.startswith(f"ExecStartPost=-{INSTALLED} ready --wait ")
    check = shlex.split(post.partition("=-")[2].replace(INSTALLED, "kourou").replace(":10911", ":1"))
    check[check.index("--wait") + 1] = "0"
    assert understood(check)


def test_the_command_of_the_unit_takes_the_sample_of_a_set(tmp_path: Path) -> None:
    text = (PROJECT / "systemd" / "kourou-broker.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    sample = PROJECT / "conf" / "failover" / "broker.conf"
    config = printed_config(shlex.split(start.replace("/etc/kourou/broker.conf", str(sample)))[1:], tmp_path)
    assert (config["listenPort"], config["brokerRole"]) == ("10911", "SYNC_MASTER")
    assert len(config["failoverEtcdEndpoints"].split(";")) == 3


@pytest.mark.parametrize(
    ("unit", "sample", "port"),
    [
        ("kourou-broker", "broker.conf", "10911"),
        ("kourou-namesrv", "namesrv.properties", "9876"),
        ("kourou-proxy", "rmq-proxy.json", "8082"),
    ],
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
    config = printed_config(command, tmp_path)
    assert config["httpPort" if unit == "kourou-proxy" else "listenPort"] == port
    (post,) = re.findall(r"^ExecStartPost=(.*)$", text, re.M)
    check = shlex.split(post.replace(INSTALLED, "kourou").replace(f":{port}", ":1"))
    check[check.index("--wait") + 1] = "0"
    assert understood(check)


def test_there_are_units() -> None:
    assert [unit.stem for unit in UNITS] == ["kourou-broker", "kourou-namesrv", "kourou-proxy"]
    assert list((PROJECT / "systemd").rglob("*.conf")) == [DROP_IN]
