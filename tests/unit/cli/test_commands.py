"""The commands: options, one-line errors, exit codes, printed configuration. Nothing is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kourou import __version__
from kourou.cli import mqadmin, mqbroker, mqnamesrv, mqshutdown
from kourou.cli.broker import BrokerOptions
from kourou.cli.main import app
from kourou.cli.namesrv import default_log
from kourou.cli.problems import run_command
from kourou.cli.serving import ServerOptions, log_path
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    for name in ("ROCKETMQ_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def exit_code(action: Callable[[], None]) -> int:
    with pytest.raises(SystemExit) as caught:
        action()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "a.conf", "-n", "x:1", "-p"],
        ["--configFile", "a.conf", "--namesrvAddr", "x:1", "--printConfigItem"],
        ["--configFile=a.conf", "--namesrvAddr=x:1", "-printConfigItem"],
        ["-configFile", "a.conf", "-namesrvAddr", "x:1", "-p"],
        ["-c=a.conf", "-n=x:1", "-p"],
        ["-ca.conf", "-nx:1", "-p"],
    ],
)
def test_mqnamesrv_takes_apaches_spellings(arguments: list[str]) -> None:
    expected = ServerOptions(config_file=Path("a.conf"), namesrv_addr="x:1", print_config=True)
    assert mqnamesrv.parse(arguments) == expected


def test_mqnamesrv_without_options_has_the_defaults() -> None:
    assert mqnamesrv.parse([]) == ServerOptions()
    assert mqnamesrv.parse(["-m"]) == ServerOptions(print_important_config=True)


def test_an_unknown_option_is_one_line_and_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqnamesrv.main(["-x"])) == 1
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert first == "mqnamesrv: unrecognized arguments: -x" and second.startswith("usage: mqnamesrv ")


def test_help_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqnamesrv.main(["-h"])) == 0
    assert "--configFile" in capsys.readouterr().out


def test_the_configuration_is_printed_to_the_end(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "ns.conf"
    path.write_text("listenPort=19876\n")
    mqnamesrv.main(["-c", str(path), "-p"])
    out, err = capsys.readouterr()
    assert out.startswith("bindAddress=0.0.0.0\n") and "\nlistenPort=19876\n" in out
    assert f"\nkvConfigPath={home}/.local/share/kourou/namesrv/kvConfig.json\n" in out
    assert err == ""
    assert [entry.name for entry in home.iterdir()] == ["ns.conf"]  # printing leaves nothing behind


def test_the_important_part_is_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mqnamesrv.main(["-m"])
    keys = [line.partition("=")[0] for line in capsys.readouterr().out.splitlines()]
    assert keys == ["bindAddress", "configStorePath", "kvConfigPath", "listenPort", "rocketmqHome"]


def test_every_problem_of_a_file_is_a_line_without_a_stack_trace(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "ns.conf"
    path.write_text("listenPort=x\nclusterTest=1\n")
    assert exit_code(lambda: mqnamesrv.main(["-c", str(path)])) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"mqnamesrv: {path}:1: listenPort=x: must be a whole number from 0 to 65535",
        f"mqnamesrv: {path}:2: clusterTest=1: must be true or false",
    ]


def test_a_file_that_is_not_there_is_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqnamesrv.main(["-c", str(home / "no.conf")])) == 1
    assert (
        capsys.readouterr().err == f"mqnamesrv: {home}/no.conf: cannot be read: No such file or directory\n"
    )


def test_notes_go_to_stderr(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "ns.conf"
    path.write_text("listnPort=1\n")
    (home / "namesrv").mkdir()
    (home / "namesrv" / "kvConfig.json").write_text("{}")
    mqnamesrv.main(["-c", str(path), "-n", "10.0.0.1:9876", "-m"])
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 3
    assert notes[0] == f"note: {path}:1: unknown key listnPort is ignored; did you mean listenPort?"
    assert notes[1].startswith("note: -n 10.0.0.1:9876 is ignored: ")
    assert notes[2].endswith(f"set kvConfigPath={home}/namesrv/kvConfig.json to go on with Apache's")


def test_options_of_kourou_namesrv_become_keys(home: Path) -> None:
    options = ["--host", "127.0.0.1", "--port", "19876", "--home", str(home / "rmq"), "-p"]
    result = CliRunner().invoke(app, ["namesrv", *options])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert {"bindAddress=127.0.0.1", "listenPort=19876", f"rocketmqHome={home}/rmq"} <= set(lines)


def test_a_bad_option_of_kourou_namesrv_is_one_line() -> None:
    result = CliRunner().invoke(app, ["namesrv", "--port", "70000"])
    assert result.exit_code == 1
    assert (
        result.stderr == "kourou namesrv: option: listenPort=70000: must be a whole number from 0 to 65535\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "b.conf", "-n", "x:1;y:2", "-p", "--set", "brokerName=a"],
        ["--configFile=b.conf", "-namesrvAddr", "x:1;y:2", "--printConfigItem", "--set=brokerName=a"],
    ],
)
def test_mqbroker_takes_apaches_spellings(arguments: list[str]) -> None:
    assert mqbroker.parse(arguments) == BrokerOptions(
        config_file=Path("b.conf"),
        namesrv_addr="x:1;y:2",
        print_config=True,
        overrides={"brokerName": "a"},
    )


def test_mqbroker_prints_its_configuration(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "broker.conf"
    path.write_text("brokerName=broker-x\nlistenPort=20911\n")
    mqbroker.main(["-c", str(path), "-n", "x:1", "-p"])
    out, err = capsys.readouterr()
    assert {"brokerName=broker-x", "listenPort=20911", "namesrvAddr=x:1", "slaveReadEnable=false"} <= set(
        out.splitlines()
    )
    assert err == ""
    assert [entry.name for entry in home.iterdir()] == ["broker.conf"]
    mqbroker.main(["-c", str(path), "-n", "x:1", "-m"])
    assert "slaveReadEnable" not in capsys.readouterr().out


def test_a_broker_without_name_servers_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    mqbroker.main(["-m"])
    assert capsys.readouterr().err.startswith("note: no name server is configured")


def test_options_of_kourou_broker_become_keys(home: Path) -> None:
    options = [
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--store",
        str(home / "s"),
        "--set",
        "traceOn=false",
        "-p",
    ]
    result = CliRunner().invoke(app, ["broker", "-n", "x:1", *options])
    assert result.exit_code == 0
    lines = set(result.stdout.splitlines())
    assert {"brokerIP1=127.0.0.1", "listenPort=0", f"storePathRootDir={home}/s", "traceOn=false"} <= lines


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["broker", "--set", "brokerName"], "kourou broker: --set brokerName: write key=value"),
        (
            ["broker", "-n", "nowhere"],
            "kourou broker: option: namesrvAddr=nowhere: must be host:port, several separated by ; as in "
            "127.0.0.1:9876;192.168.0.1:9876",
        ),
        (["standalone", "--brokers", "0"], "kourou standalone: --brokers 0: must be from 1 to 26"),
        (
            ["standalone", "--broker-port", "65530", "--brokers", "2"],
            "kourou standalone: --broker-port 65530: the last broker would need port 65540",
        ),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (1, line + "\n")


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"kourou {__version__}\n")


def test_only_what_exists_is_listed() -> None:
    assert sorted(command.callback.__name__ for command in app.registered_commands if command.callback) == [
        "broker",
        "demo",
        "namesrv",
        "standalone",
    ]


def test_a_part_that_is_not_here_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(mqadmin.main) == 1
    err = capsys.readouterr().err
    assert (
        "the administration" in err
        and f"not in this version of Kourou ({__version__})" in err
        and err.count("\n") == 1
    )


@pytest.mark.parametrize("component", ["namesrv", "broker", "standalone"])
def test_nothing_to_shut_down(component: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqshutdown.main([component])) == 1
    assert capsys.readouterr().out == f"No mq{component} running.\n"


def test_mqshutdown_names_what_it_can_stop(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqshutdown.main(["proxy"])) == 1
    assert "namesrv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("port", "asked", "path"),
    [
        (9876, None, "/home/logs/namesrv.log"),
        (9877, None, "/home/logs/namesrv-9877.log"),
        (9876, "/var/log/ns.log", "/var/log/ns.log"),
        (9876, "-", None),
    ],
)
def test_where_the_log_goes(port: int, asked: str | None, path: str | None) -> None:
    config = NamesrvConfig(listen_port=port, rocketmq_home="/home")
    assert log_path(default_log(config), asked) == (path and Path(path))


def test_two_servers_on_free_ports_do_not_share_a_log() -> None:
    path = default_log(NamesrvConfig(listen_port=0, rocketmq_home="/home"))
    assert path.name.startswith("namesrv-pid")


def test_our_errors_become_lines_and_others_pass(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ConfigError("one", "two")

    assert exit_code(lambda: run_command("x", fail)) == 1
    assert capsys.readouterr().err == "x: one\nx: two\n"
    with pytest.raises(ZeroDivisionError):
        run_command("x", lambda: print(1 // 0))


def test_an_interrupt_is_no_stack_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert exit_code(lambda: run_command("x", interrupt)) == 1
    assert capsys.readouterr().err == "x: interrupted\n"
