"""The commands without a cluster: contexts, mistakes in options, help, what a shell completes."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from kourou.cli.main import _DAILY, app
from tests.unit.cli.daily.command_line import run_kourou


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts."""
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "KOUROU_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    context = click.Context(app)
    for name, (_, _, line) in _DAILY.items():
        command = app.get_command(context, name)
        assert command is not None and command.get_short_help_str(100) == line


def test_contexts_from_the_first_to_none(config_home: Path) -> None:
    assert run_kourou("context", "show", "--json").json["namesrv"] == "127.0.0.1:9876"
    keys = config_home / "tools.yml"
    keys.touch()
    added = run_kourou("context", "add", "prod", "-n", "10.0.0.1:9876", "--acl", str(keys))
    assert (added.exit_code, added.stdout) == (0, "context prod saved and selected\n")
    assert run_kourou("context", "add", "test", "-n", "x:1", "--tls").stdout == (
        "context test saved; kourou context use test selects it\n"
    )
    listed = run_kourou("context", "list")
    assert listed.lines == [
        "   NAME  NAME SERVERS   ACL" + " " * (len(str(keys)) - 3) + "  TLS",
        f"*  prod  10.0.0.1:9876  {keys}  -",
        f"   test  x:1            -{' ' * (len(str(keys)) - 1)}  yes",
    ]
    assert [entry["current"] for entry in run_kourou("context", "list", "--json").json] == [True, False]
    assert run_kourou("context", "use", "test").stdout == "current context: test\n"
    assert run_kourou("context", "show").lines == [
        "name        test",
        "namesrv     x:1",
        "tls         True",
        "because     it is current",
    ]
    assert run_kourou("context", "remove", "test").exit_code == 0
    assert run_kourou("context", "use", "--none").stdout == "current context: none\n"
    assert json.loads((config_home / "kourou" / "contexts.json").read_text())["contexts"].keys() == {"prod"}
    assert run_kourou("context", "show", "prod").lines[0] == "name        prod"


def test_a_variable_is_named_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    run_kourou("context", "add", "prod", "-n", "x:1")
    monkeypatch.setenv("NAMESRV_ADDR", "y:1")
    assert run_kourou("context", "show", "--json").json == {
        "name": None,
        "namesrv": "y:1",
        "acl": None,
        "tls": False,
        "tls_config": None,
        "because": "the environment variable NAMESRV_ADDR",
    }
    monkeypatch.setenv("KOUROU_CONTEXT", "prod")
    assert run_kourou("context", "show", "--json").json["because"] == (
        "the environment variable KOUROU_CONTEXT"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("context", "add", "prod"), "kourou context add: no name server given; use -n host:9876"),
        (("context", "use"), "kourou context use: give the name of a context, or --none"),
        (("context", "add", "p", "-n", "x:1", "--acl", "gone"), "--acl gone: no such file"),
        (("topic", "list", "--context", "gone"), "kourou topic list: there is no context 'gone'"),
        (("send", "Orders", "x", "-f", "y"), "give the body as an argument or by --file, not both"),
        (("send", "Orders", "x", "-p", "color"), "--property color: must be NAME=VALUE"),
        (("send", "Orders", "x", "-p", "KEYS=a"), "property 'KEYS' is reserved by RocketMQ"),
        (("send", "Orders", "x", "--delay", "5"), "--delay 5: must be a time such as 30s, 5m, 1h or 2d"),
        (
            ("send", "Orders", "x", "--delay", "5s", "--delay-level", "2"),
            "give --delay or --delay-level, not both",
        ),
        (("send", "Or ders", "x"), "topic 'Or ders' contains ' '"),
        (("tail", "Orders", "--raw", "--json"), "give --raw or --json, not both"),
        (("tail", "Orders", "--from", "-5m", "--last", "3"), "give --from or --last, not both"),
        (("tail", "Orders", "--from", "noon"), "--from noon: must be earliest, latest, a time before now"),
        (("tail", "Orders", "--sql", "a ="), "SQL92 expression"),
        (("group", "reset", "billing", "--to", "noon"), "--to noon: must be earliest"),
        (("group", "reset", "billing"), "Missing option '--to'; see kourou group reset --help"),
        (("tail", "Orders", "--form", "-5m"), "No such option '--form'. Did you mean '--from'?"),
        (("topics", "list"), "Did you mean 'topic'?"),
        (("tail",), "Missing argument 'TOPIC'; see kourou tail --help"),
        (("topic", "list", "--timeout", "0"), "--timeout 0: must be a number of milliseconds above 0"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(words: tuple[str, ...], problem: str) -> None:
    result = run_kourou(*words)
    assert problem in result.problem and result.stdout == ""
