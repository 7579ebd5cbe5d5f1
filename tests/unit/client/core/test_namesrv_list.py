"""Where name servers come from, in which order, and what happens when one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.settings import ClientSettings
from kourou.errors import ConfigError, NoNameServerError


def properties(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text)
    return path


async def found(settings: ClientSettings, environment: dict[str, str] | None = None) -> tuple[str, ...]:
    namesrvs = NamesrvList(settings, environment or {})
    await namesrvs.refresh()
    return namesrvs.addresses


async def test_what_the_application_gives_comes_first(tmp_path: Path) -> None:
    file = properties(tmp_path, "rocketmq.namesrv.addr=10.0.0.9:9876")
    settings = ClientSettings(namesrv="10.0.0.1:9876;10.0.0.2:9876", config_file=file)
    assert await found(settings, {"NAMESRV_ADDR": "10.0.0.8:9876"}) == ("10.0.0.1:9876", "10.0.0.2:9876")


async def test_then_the_file_then_the_environment(tmp_path: Path) -> None:
    file = properties(tmp_path, "rocketmq.namesrv.addr=10.0.0.9:9876")
    environment = {"NAMESRV_ADDR": "10.0.0.8:9876"}
    assert await found(ClientSettings(config_file=file), environment) == ("10.0.0.9:9876",)
    assert await found(ClientSettings(), environment) == ("10.0.0.8:9876",)


async def test_lists_are_taken_as_lists_and_names_once() -> None:
    settings = ClientSettings(namesrv=["ns1:9876", "http://ns2:9876", "ns1:9876"])
    assert await found(settings) == ("ns1:9876", "ns2:9876")


async def test_without_any_the_error_names_the_ways() -> None:
    with pytest.raises(NoNameServerError, match=r"namesrv='host:9876'.*NAMESRV_ADDR.*domain"):
        await found(ClientSettings())


async def test_what_cannot_be_read_is_reported() -> None:
    with pytest.raises(NoNameServerError, match="'nonsense' is not an address"):
        await found(ClientSettings(), {"NAMESRV_ADDR": "nonsense"})


async def test_a_missing_config_file_is_a_config_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        await found(ClientSettings(config_file="nope.properties"))
    path = tmp_path / "nope.properties"
    assert str(caught.value) == f"config_file {path} cannot be read: No such file or directory"


async def test_what_the_program_gives_wrongly_is_its_own_mistake() -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not an address") as caught:
        await found(ClientSettings(namesrv="nonsense"))
    assert not caught.value.retriable


async def test_a_list_that_cannot_be_read_again_stays(tmp_path: Path) -> None:
    file = properties(tmp_path, "rocketmq.namesrv.addr=10.0.0.9:9876")
    namesrvs = NamesrvList(ClientSettings(config_file=file), {})
    await namesrvs.refresh()
    file.unlink()
    await namesrvs.refresh()
    assert namesrvs.addresses == ("10.0.0.9:9876",)
    properties(tmp_path, "rocketmq.namesrv.addr=10.0.0.7:9876")
    await namesrvs.refresh()
    assert (namesrvs.addresses, namesrvs.current) == (("10.0.0.7:9876",), "10.0.0.7:9876")


async def test_a_client_stays_with_one_until_it_fails() -> None:
    namesrvs = NamesrvList(ClientSettings(namesrv="a:1;b:1;c:1"), {})
    await namesrvs.refresh()
    first = namesrvs.current
    assert namesrvs.current == first
    namesrvs.move_on(first)
    second = namesrvs.current
    assert second != first
    namesrvs.move_on(first)  # a caller that is late
    assert namesrvs.current == second
