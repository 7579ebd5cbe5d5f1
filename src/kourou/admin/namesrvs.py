"""Name servers: their configuration, their KV configuration, and write permissions of brokers.

Name servers do not communicate with each other, so changes are sent to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kourou.admin.session import Admin
from kourou.admin.targets import ConfigUpdate, Outcome, call_each, on_each, update_config_on_each
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import ConfigError, KourouError, ProtocolError
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of one server, by its keys."""

    address: str
    config: dict[str, str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WritePermChange:
    """The result of a change of write permission on one name server."""

    namesrv: str
    topics: int
    """The number of changed topics."""
    problem: str = ""


def properties_of(body: bytes) -> dict[str, str]:
    """The keys of a configuration in a response; ProtocolError if it is not text."""
    try:
        return properties_dict(parse_properties(body.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise ProtocolError(f"configuration: {error}") from None


# -- configuration -----------------------------------------------------------------------------------


async def namesrv_configs(admin: Admin) -> list[ServerConfig]:
    """The configuration of each name server."""

    async def ask(address: str) -> dict[str, str]:
        return properties_of((await admin.call(address, RequestCode.GET_NAMESRV_CONFIG)).body)

    return server_configs(await call_each(admin.namesrvs, ask))


def server_configs(answers: Sequence[tuple[str, dict[str, str] | KourouError]]) -> list[ServerConfig]:
    """The responses of servers, or their errors."""
    return [
        ServerConfig(address, {}, str(answer))
        if isinstance(answer, KourouError)
        else ServerConfig(address, answer)
        for address, answer in answers
    ]


async def update_namesrv_config(admin: Admin, key: str, value: str) -> list[ConfigUpdate]:
    """Change one key on all name servers."""
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    return await update_config_on_each(admin, admin.namesrvs, code, key, value)


# -- KV configuration --------------------------------------------------------------------------------


async def get_kv_config(admin: Admin, namespace: str, key: str) -> str:
    """The value of a key. ResponseError QUERY_NOT_FOUND if there is none."""
    header = GetKVConfigRequestHeader(namespace=namespace, key=key)
    answer = await admin.call_namesrv(RequestCode.GET_KV_CONFIG, header)
    return answer.header(GetKVConfigResponseHeader).value or ""


async def put_kv_config(admin: Admin, namespace: str, key: str, value: str) -> list[Outcome]:
    """Write a value to all name servers."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    return await on_each(
        admin.namesrvs, lambda address: admin.call(address, RequestCode.PUT_KV_CONFIG, header)
    )


async def delete_kv_config(admin: Admin, namespace: str, key: str) -> list[Outcome]:
    """Delete a key from all name servers."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    return await on_each(
        admin.namesrvs, lambda address: admin.call(address, RequestCode.DELETE_KV_CONFIG, header)
    )


# -- write permission --------------------------------------------------------------------------------


async def wipe_write_perm(admin: Admin, broker: str) -> list[WritePermChange]:
    """Stop producers from using a broker, given by name or address; consumers continue."""
    name = await admin.broker_name(broker)
    header = WipeWritePermOfBrokerRequestHeader(broker_name=name)

    async def ask(address: str) -> int:
        answer = await admin.call(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count

    return await _checked(admin, name, _changes(await call_each(admin.namesrvs, ask)))


async def add_write_perm(admin: Admin, broker: str) -> list[WritePermChange]:
    """Let producers use a broker again, given by name or address."""
    name = await admin.broker_name(broker)
    header = AddWritePermOfBrokerRequestHeader(broker_name=name)

    async def ask(address: str) -> int:
        answer = await admin.call(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count

    return await _checked(admin, name, _changes(await call_each(admin.namesrvs, ask)))


async def _checked(admin: Admin, broker_name: str, changes: list[WritePermChange]) -> list[WritePermChange]:
    """The changes. ConfigError if there were none because the broker is unknown."""
    if not any(change.topics or change.problem for change in changes):
        names = sorted({broker.broker_name for broker in await admin.brokers()})
        if broker_name not in names:
            raise ConfigError(f"broker {broker_name}: no broker has that name; there are: {', '.join(names)}")
    return changes


def _changes(answers: Sequence[tuple[str, int | KourouError]]) -> list[WritePermChange]:
    return [
        WritePermChange(address, 0, str(answer))
        if isinstance(answer, KourouError)
        else WritePermChange(address, answer)
        for address, answer in answers
    ]
