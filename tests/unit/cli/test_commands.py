"""The commands: options, one-line errors, exit codes, printed configuration. Nothing is served."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kourou import __version__
from kourou.cli import mqbroker, mqnamesrv, mqproxy, mqshutdown
from kourou.cli.broker import BrokerOptions
from kourou.cli.main import app
from kourou.cli.namesrv import default_log
from kourou.cli.problems import run_command
from kourou.cli.serving import ServerOptions, log_path
from kourou.cli.usage import OneLineGroup
from kourou.config import NamesrvConfig
from kourou.config.proxy import ProxyConfig
from kourou.errors import ConfigError
from kourou.store.disk.file_lock import FileLock


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
    assert exit_code(lambda: mqnamesrv.main(["-x"])) == 2
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
    assert notes[2].endswith(f"set kvConfigPath={home}/namesrv/kvConfig.json to keep using Apache's")


def test_options_of_kourou_namesrv_become_keys(home: Path) -> None:
    options = ["--host", "127.0.0.1", "--port", "19876", "--home", str(home / "rmq"), "-p"]
    result = CliRunner().invoke(app, ["namesrv", *options])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert {"bindAddress=127.0.0.1", "listenPort=19876", f"rocketmqHome={home}/rmq"} <= set(lines)


def test_a_bad_option_of_kourou_namesrv_is_one_line() -> None:
    result = CliRunner().invoke(app, ["namesrv", "--port", "70000"])
    assert result.exit_code == 1
    assert result.stderr == "kourou namesrv: --port 70000: must be a whole number from 0 to 65535\n"


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
        overrides={"namesrvAddr": "x:1;y:2"},
        option_names={"namesrvAddr": "-n"},
        settings={"brokerName": "a"},
        print_config=True,
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
        (
            ["broker", "-n", "nowhere"],
            "kourou broker: -n nowhere: must be host:port, several separated by ; as in "
            "127.0.0.1:9876;192.168.0.1:9876",
        ),
        (
            ["broker", "--set", "traceOn=1", "--port", "x"],
            "kourou broker: --set traceOn=1: must be true or false\n"
            "kourou broker: --port x: must be a whole number from 0 to 65535",
        ),
        (
            ["broker", "--set", "listenPort=x"],
            "kourou broker: --set listenPort=x: must be a whole number from 0 to 65535",
        ),
        (
            ["broker", "--set", "brokerRole=SLAVE"],
            "kourou broker: --set brokerRole=SLAVE: a slave needs a brokerId above 0, which is the master's",
        ),
        (
            ["standalone", "--namesrv-port", "99999"],
            "kourou standalone: --namesrv-port 99999: must be from 0 to 65535; 0 picks a free one",
        ),
        (["standalone", "--brokers", "0"], "kourou standalone: --brokers 0: must be from 1 to 26"),
        (
            ["standalone", "--broker-port", "65530", "--brokers", "2"],
            "kourou standalone: --broker-port 65530: the last broker would need port 65540",
        ),
        (
            ["standalone", "--namesrv-port", "10911"],
            "kourou standalone: --namesrv-port and --broker-port are both 10911; choose different ports",
        ),
        (
            ["standalone", "--http-port", "9876"],
            "kourou standalone: --namesrv-port and --http-port are both 9876; choose different ports",
        ),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (1, line + "\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["broker", "--set", "brokerName"], "kourou broker: --set brokerName: must be KEY=VALUE"),
        (
            ["standalone", "--namesrv-port", "abc"],
            "kourou standalone: --namesrv-port abc: must be a whole number",
        ),
        (["send", "T", "-p", "a", "b"], "kourou send: --property a: must be NAME=VALUE"),
        (["send", "T", "b", "-t", "x", "-t", "y"], "kourou send: --tag x --tag y: a message has one tag"),
        (
            ["send", "T", "b", "--delay", "1s", "--delay-level", "1"],
            "kourou send: give --delay or --delay-level, not both",
        ),
        (
            ["tail", "T", "--from", "latest", "--last", "3"],
            "kourou tail: give --from or --last, not both",
        ),
    ],
)
def test_a_value_that_cannot_be_parsed_is_exit_code_2(arguments: list[str], line: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (2, line + "\n")


def test_a_log_file_size_that_holds_no_message_is_refused() -> None:
    result = CliRunner().invoke(app, ["broker", "--set", "mappedFileSizeCommitLog=1000"])
    assert (result.exit_code, result.stderr) == (
        1,
        "kourou broker: --set mappedFileSizeCommitLog=1000: "
        "must be a whole number from 65536 to 2147483647\n",
    )


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["broker", "--home", "HERE"], "broker: --home HERE"),
        (["broker", "--store", "HERE"], "broker: --store HERE"),
        (["namesrv", "--home", "HERE"], "namesrv: --home HERE"),
        (["standalone", "--store", "HERE"], "standalone: --store HERE"),
    ],
)
def test_a_folder_that_is_a_file_is_refused(home: Path, words: list[str], given: str) -> None:
    file = home / "file"
    file.write_text("")
    result = CliRunner().invoke(app, [word.replace("HERE", str(file)) for word in words])
    assert (result.exit_code, result.stderr) == (
        1,
        f"kourou {given.replace('HERE', str(file))}: is a file, not a folder; "
        "give a folder, which is created if it does not exist\n",
    )


def test_the_users_data_folder_that_is_a_file_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home / "file"))
    assert exit_code(lambda: mqbroker.main(["-m"])) == 1
    assert capsys.readouterr().err == (
        f"mqbroker: rocketmqHome={home}/file: is a file, not a folder; "
        "give a folder, which is created if it does not exist\n"
    )


@pytest.mark.parametrize(
    ("arguments", "beginning", "end"),
    [
        (["demo", "--seconds", "x"], "kourou demo: ", "; see kourou demo --help\n"),
        (
            ["broker", "--nothing"],
            "kourou broker: No such option",  # versions of click write its name differently
            "; see kourou broker --help\n",
        ),
        (
            ["broker", "--port"],
            "kourou broker: Option '--port' requires an argument",
            "; see kourou broker --help\n",
        ),
        (
            ["pipeline", "sql", "-n"],
            "kourou pipeline sql: Option '-n' requires an argument",
            "; see kourou pipeline sql --help\n",
        ),
        (
            ["store", "inspect", "somewhere", "--topic"],
            "kourou store inspect: Option '--topic' requires an argument",
            "; see kourou store inspect --help\n",
        ),
        (
            ["broker", "--log-level", "INFO"],
            "kourou broker: Invalid value for '--log-level': 'INFO' is not one of 'debug', ",
            "'error'; see kourou broker --help\n",
        ),
        (
            ["ready", "--wait", "x"],
            "kourou ready: Invalid value for '--wait': 'x' must be a number from 0",
            "; see kourou ready --help\n",
        ),
        (
            ["bench", "producer", "--seconds", "nan"],
            "kourou bench producer: Invalid value for '--seconds': 'nan' must be a number from 0",
            "; see kourou bench producer --help\n",
        ),
        (
            ["quickstart", "producer", "--count", "x"],
            "kourou quickstart producer: Invalid value for '--count': 'x' must be an integer from 1",
            "; see kourou quickstart producer --help\n",
        ),
        (["nothing"], "kourou: No such command 'nothing'", "; see kourou --help\n"),
        (["store", "check"], "kourou store check: Missing argument", "; see kourou store check --help\n"),
    ],
)
def test_what_cannot_be_read_at_all_is_one_line_too(arguments: list[str], beginning: str, end: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(beginning) and result.stderr.endswith(end)


def test_a_mistyped_group_of_commands_is_recognised() -> None:
    result = CliRunner().invoke(app, ["pipelin"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("kourou: No such command 'pipelin'. Did you mean 'pipeline'?")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["broker", "--prot", "1"], "kourou broker: No such option '--prot'. Did you mean '--port'?"),
        (["namesrv", "--prot", "1"], "kourou namesrv: No such option '--prot'. Did you mean '--port'?"),
        (
            ["standalone", "--prot", "1"],
            "kourou standalone: No such option '--prot'. "
            "Did you mean '--namesrv-port', '--broker-port', '--http-port', '--grpc-port' or "
            "'--console-port'?",
        ),
        (
            ["standalone", "--port", "1"],
            "kourou standalone: No such option '--port'. "
            "Did you mean '--namesrv-port', '--broker-port', '--http-port', '--grpc-port' or "
            "'--console-port'?",
        ),
        (["doctor"], "kourou: No such command 'doctor'. Did you mean 'kourou admin doctor'?"),
        (["topiclist"], "kourou: No such command 'topiclist'. Did you mean 'kourou admin topicList'?"),
        (["docter"], "kourou: No such command 'docter'. Did you mean 'kourou admin doctor'?"),
        (["stroe"], "kourou: No such command 'stroe'. Did you mean 'store'?"),
        (["status"], "kourou: No such command 'status'. Did you mean 'kourou ready'?"),
        (
            ["tail", "T", "--no-folow"],
            "kourou tail: No such option '--no-folow'. Did you mean '--no-follow'?",
        ),
        (["stop"], "kourou: No such command 'stop'. Did you mean 'mqshutdown standalone'?"),
        (["shutdown"], "kourou: No such command 'shutdown'. Did you mean 'mqshutdown standalone'?"),
        (["start"], "kourou: No such command 'start'. Did you mean 'kourou standalone'?"),
        (["help", "topik"], "kourou: No such command 'topik'. Did you mean 'topic'?"),
        (["context", "rm", "x"], "kourou context: No such command 'rm'. Did you mean 'remove'?"),
        (["topic", "rm", "x"], "kourou topic: No such command 'rm'. Did you mean 'delete'?"),
        (["group", "ls"], "kourou group: No such command 'ls'. Did you mean 'list'?"),
        (
            ["pipeline", "check", "x.yaml"],
            "kourou pipeline: No such command 'check'. Did you mean 'kourou pipeline run --check'?",
        ),
        (
            ["group", "create", "x"],
            "kourou group: No such command 'create'. Did you mean 'kourou admin updateSubGroup'?",
        ),
        (["topic", "foo"], "kourou topic: No such command 'foo'; see kourou topic --help"),
        (["store", "chek"], "kourou store: No such command 'chek'. Did you mean 'check'?"),
    ],
)
def test_what_a_mistyped_option_or_command_means_is_suggested(words: list[str], line: str) -> None:
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line + "\n")


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["help"], ["--help"]),
        (["help", "topic"], ["topic", "--help"]),
        (["topic", "help", "create"], ["topic", "create", "--help"]),
        (["help", "admin", "topicList"], ["admin", "topicList", "--help"]),
    ],
)
def test_the_word_help_shows_the_help(words: list[str], same: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and result.stdout.lower().startswith("usage: kourou")
    assert result.stdout == CliRunner().invoke(app, same).stdout


def test_without_arguments_there_is_help() -> None:
    result = CliRunner().invoke(app, [])
    assert "standalone" in result.output and "Run a broker." in result.output
    assert "mqshutdown standalone (or broker, namesrv, proxy) stops servers" in " ".join(
        result.output.split()
    )


def test_help_shows_what_holds_without_an_option() -> None:
    words = " ".join(CliRunner().invoke(app, ["standalone", "--help"]).stdout.split())
    assert "0 picks one. [default: 9876]" in words and "Minimum log level. [default: info]" in words
    words = " ".join(CliRunner().invoke(app, ["bench", "producer", "--help"]).stdout.split())
    assert (
        "Threads. [default: 64; 1<=x<=10000]" in words
        and "Set a key on messages: the current second. [default: false]" in words
    )


@pytest.mark.parametrize("command", ["standalone", "broker", "namesrv", "demo"])
def test_help_shows_options_whole_and_flags_without_a_type(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "…" not in result.stdout and "BOOL" not in result.stdout.upper()
    assert command not in ("broker", "namesrv") or "--print-important-config" in result.stdout


def test_a_store_in_use_is_found_before_anything_is_logged(home: Path) -> None:
    with FileLock.acquire(made(home / "s" / "broker-a") / "lock"):
        result = CliRunner().invoke(app, ["standalone", "--store", str(home / "s")])
        assert result.exit_code == 1
        assert f"{home}/s/broker-a/lock: the store is in use by process {os.getpid()}" in result.stderr
        result = CliRunner().invoke(app, ["broker", "-n", "x:1", "--store", str(home / "s" / "broker-a")])
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert "the store is in use by process" in result.stderr
    assert list(home.rglob("*.log")) == []


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_store_that_cannot_be_made_is_one_line() -> None:
    result = CliRunner().invoke(app, ["standalone", "--store", "/dev/null/x"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "kourou standalone: --store /dev/null/x: /dev/null is a file, not a folder; "
        "give a folder, which is created if it does not exist\n"
    )


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"kourou {__version__}\n")


def test_the_version_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is in use, in words and as JSON."""
    monkeypatch.setenv("KOUROU_KERNEL", "0")
    problem, cure = "KOUROU_KERNEL=0 in the environment", "unset it and restart the broker"
    python, system = f"CPython {platform.python_version()}", f"{sys.platform} {platform.machine()}"
    words = CliRunner().invoke(app, ["version"])
    assert words.exit_code == 0
    assert words.stdout.splitlines() == [
        f"kourou {__version__}, {python}, {system}",
        f"compiled kernel not in use: {problem}; {cure}",
    ]
    facts = CliRunner().invoke(app, ["version", "--json"])
    assert json.loads(facts.stdout) == {
        "version": __version__,
        "python": python,
        "platform": system,
        "kernel": {"inUse": False, "problem": problem, "cure": cure},
    }


@pytest.mark.parametrize(
    ("component", "name"), [("namesrv", "mqnamesrv"), ("broker", "mqbroker"), ("standalone", "standalone")]
)
def test_nothing_to_shut_down(component: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqshutdown.main([component])) == 1
    assert capsys.readouterr().out == f"No {name} running.\n"


def test_mqshutdown_names_what_it_can_stop(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: mqshutdown.main(["controller"])) == 2
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


def test_an_interrupt_before_a_command_runs_is_no_stack_trace_either() -> None:
    group = OneLineGroup("group")

    @group.command()
    def slow_import() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, ["slow-import"])
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_the_end_of_an_input_within_a_command_is_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(**_: object) -> None:
        raise EOFError("the peer has closed")

    monkeypatch.setattr("kourou.cli.demo.command.run_demo", lost)
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, EOFError) and str(result.exception) == "the peer has closed"


def test_an_interrupt_is_no_stack_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert exit_code(lambda: run_command("x", interrupt)) == 130
    assert capsys.readouterr().err == "x: interrupted\n"


def test_help_of_a_proxy_has_its_defaults() -> None:
    text = " ".join(CliRunner().invoke(app, ["proxy", "--help"]).stdout.split())
    defaults = ProxyConfig()
    assert f"(bindAddress); default: {defaults.bind_address}" in text
    assert f"(grpcServerPort); default: {defaults.grpc_server_port}" in text


def test_mqproxy_takes_apaches_spellings() -> None:
    expected = ServerOptions(
        config_file=Path("p.json"), overrides={"namesrvAddr": "n:1"}, option_names={"namesrvAddr": "-n"}
    )
    assert mqproxy.parse(["-n", "n:1", "-pc", "p.json"]) == expected
    assert mqproxy.parse(["-n=n:1", "--proxyConfigPath", "p.json", "-pm", "cluster"]) == expected


@pytest.mark.parametrize("arguments", [["-pm", "local"], ["-bc", "broker.conf"]])
def test_mqproxy_leaves_local_mode_to_mqbroker(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match="mqbroker --enable-proxy"):
        mqproxy.parse(arguments)


def test_mqbroker_takes_the_options_of_a_proxy() -> None:
    given = mqbroker.parse(["-n", "n:1", "--enable-proxy", "-pc", "p.json"])
    assert given.has_proxy and given.proxy_config_file == Path("p.json")
    assert not mqbroker.parse([]).has_proxy
