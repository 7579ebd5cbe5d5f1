"""Saved contexts, and which cluster a command connects to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.cli.admin.connecting import client_options
from kourou.cli.admin.options import ParsedArgs
from kourou.cli.contexts import (
    Context,
    Contexts,
    chosen_context,
    contexts_path,
    read_contexts,
    write_contexts,
)
from kourou.client.core.credentials import Credentials
from kourou.errors import ConfigError

PROD = Context("10.0.0.1:9876;10.0.0.2:9876")
TEST = Context("10.1.0.1:9876")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


@pytest.fixture
def saved(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user with two contexts, of which `prod` is current."""
    contexts = Contexts().add("prod", PROD, is_current=False).add("test", TEST, is_current=False)
    write_contexts(environ, contexts)
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "KOUROU_CONTEXT", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", environ["XDG_CONFIG_HOME"])
    return environ


def test_what_is_saved_is_read_again_and_readable_by_its_owner_only(saved: dict[str, str]) -> None:
    path = contexts_path(saved)
    assert read_contexts(saved) == Contexts({"prod": PROD, "test": TEST}, "prod")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["contexts.json"]


def test_the_first_context_is_current_and_another_by_choice() -> None:
    contexts = Contexts().add("prod", PROD, is_current=False)
    assert contexts.current == "prod"
    assert contexts.add("test", TEST, is_current=False).current == "prod"
    assert contexts.add("test", TEST, is_current=True).current == "test"
    assert contexts.remove("prod") == Contexts()
    assert contexts.use(None).current is None


def test_mistakes_say_what_to_do() -> None:
    contexts = Contexts().add("prod", PROD, is_current=False)
    with pytest.raises(ConfigError, match=r"^there is no context 'prdo'; did you mean prod\?$"):
        contexts.use("prdo")
    with pytest.raises(ConfigError, match=r"^there is no context 'xyz'; saved contexts: prod$"):
        contexts.remove("xyz")
    with pytest.raises(ConfigError, match="kourou context add NAME -n host:9876 saves one"):
        Contexts().get("prod")
    with pytest.raises(ConfigError, match="exists; --replace overwrites it"):
        contexts.add("prod", TEST, is_current=False)
    assert contexts.add("prod", TEST, is_current=False, replaces=True).get("prod") == TEST
    for name in ("", "-x", "a b", "a/b"):
        with pytest.raises(ConfigError, match="a name may have letters"):
            contexts.add(name, TEST, is_current=False)
    with pytest.raises(ConfigError, match="is not an address"):
        contexts.add("test", Context("nowhere"), is_current=False)


def test_a_file_that_cannot_be_read_is_named(environ: dict[str, str]) -> None:
    path = contexts_path(environ)
    assert read_contexts(environ) == Contexts()
    path.parent.mkdir()
    path.write_text('{"contexts": {"prod": {"namesrv": 1}}}')
    with pytest.raises(ConfigError, match=r"contexts\.json: cannot read it: Expected `str`, got `int`"):
        read_contexts(environ)


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ({}, {}, PROD.namesrv),
        ({"context": "test"}, {}, TEST.namesrv),
        ({}, {"KOUROU_CONTEXT": "test"}, TEST.namesrv),
        ({"context": "prod"}, {"KOUROU_CONTEXT": "test"}, PROD.namesrv),
        ({"context": "test"}, {"NAMESRV_ADDR": "x:1"}, TEST.namesrv),
        ({}, {"KOUROU_CONTEXT": "test", "NAMESRV_ADDR": "x:1"}, TEST.namesrv),
        # The client reads the environment itself.
        ({}, {"NAMESRV_ADDR": "x:1"}, None),
        ({}, {"ROCKETMQ_NAMESRV_DOMAIN": "x"}, None),
        ({"namesrvAddr": "y:1"}, {"NAMESRV_ADDR": "x:1"}, "y:1"),
        ({"namesrvAddr": "y:1", "context": "test"}, {"KOUROU_CONTEXT": "prod"}, "y:1"),
    ],
)
def test_which_cluster_is_meant(
    options: dict[str, str],
    variables: dict[str, str],
    expected: str | None,
    saved: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert client_options(ParsedArgs(options), default_namesrv="127.0.0.1:9876").get("namesrv") == expected


def test_the_default_is_for_commands_without_any_cluster(
    saved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_contexts(saved, Contexts({"prod": PROD}, None))
    assert client_options(ParsedArgs({}), default_namesrv="127.0.0.1:9876") == {"namesrv": "127.0.0.1:9876"}
    assert client_options(ParsedArgs({})) == {}  # mqadmin's


def test_keys_of_a_context_go_to_its_own_cluster_only(
    saved: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: ak\nsecretKey: sk\n")
    write_contexts(saved, Contexts({"prod": Context("x:1", acl=str(keys), tls=True)}, "prod"))
    credentials = Credentials("ak", "sk")
    assert client_options(ParsedArgs({})) == {"namesrv": "x:1", "credentials": credentials, "tls": True}
    assert client_options(ParsedArgs({"namesrvAddr": "y:1"})) == {"namesrv": "y:1"}
    both = client_options(ParsedArgs({"namesrvAddr": "y:1", "context": "prod"}))
    assert both == {"namesrv": "y:1", "credentials": credentials, "tls": True}
    monkeypatch.setenv("NAMESRV_ADDR", "z:1")
    assert client_options(ParsedArgs({})) == {}
    keys.unlink()
    with pytest.raises(ConfigError, match=f"the context's file of keys, {keys}: no such file"):
        client_options(ParsedArgs({"context": "prod"}))


def test_a_context_that_is_gone_is_an_error_and_not_another_cluster(saved: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="there is no context 'gone'"):
        chosen_context({**saved, "KOUROU_CONTEXT": "gone"})
