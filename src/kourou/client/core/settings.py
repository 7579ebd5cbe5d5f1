"""ClientSettings: the options that every client takes; defaults are the Java client's.

Also here: how keyword options are split, checked, and listed in the docstring of a client for `help()`.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import os
import socket
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar

from kourou.argument_types import check_field_types
from kourou.client.core.credentials import Credentials
from kourou.transport.settings import ClientTlsConfig, ConnectionLimits, RemotingClientConfig
from kourou.wording import nearest

_ClassT = TypeVar("_ClassT", bound=type[Any])

_INDENT: Final = "    "
_WIDTH: Final = 100


def lists_options(*options: type[Any]) -> Callable[[_ClassT], _ClassT]:
    """Append the options of these dataclasses, with their defaults, to the docstring of a client."""

    def append(client: _ClassT) -> _ClassT:
        if client.__doc__ is not None:  # absent under -OO
            listed = ", ".join(text for each in options for text in _options_of(each))
            text = f"Options, with their defaults (docs/client-options.md describes each): {listed}."
            lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
            client.__doc__ = "\n".join(
                [client.__doc__.rstrip(), "", *(_INDENT + line for line in lines), _INDENT]
            )
        return client

    return append


def _options_of(options: type[Any]) -> list[str]:
    return [
        option.name if option.default is MISSING else f"{option.name}={_shown(option.default)}"
        for option in fields(options)
        if not option.name.startswith("_")
    ]


def _shown(default: object) -> str:
    """The default as source text; the type for an object that has none."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return f"{type(default).__name__}()" if repr(default).startswith("<") else repr(default)


def check_hooks(hooks: object, kind: type, *, optional: Collection[str] = ()) -> None:
    """TypeError unless each of `hooks` has the methods of `kind`, except for `optional` ones, and none of
    them is async."""
    methods = [name for name in vars(kind) if not name.startswith("_")]
    if isinstance(hooks, str) or not isinstance(hooks, Collection):
        raise TypeError(f"hooks is a list of {kind.__name__} objects, not {hooks!r}")
    for hook in hooks:
        if isinstance(hook, type):
            raise TypeError(f"hooks has objects of a {kind.__name__}, not the class: {hook.__name__}()")
        for name in methods:
            method = getattr(hook, name, None)
            if method is None and name in optional:
                continue
            if not callable(method):
                raise TypeError(
                    f"hooks has {hook!r}, which has no method {name}: derive it from {kind.__name__}"
                )
            if inspect.iscoroutinefunction(method):
                raise TypeError(
                    f"{type(hook).__name__}.{name} is async and would not be awaited; make it a sync method"
                )


DEFAULT_INSTANCE: Final = "DEFAULT"
_numbers = itertools.count(1)
OptionsT = TypeVar("OptionsT")


class ClientOptions(TypedDict, total=False):
    """The keyword arguments that every client takes besides its own; see ClientSettings."""

    namesrv: str | Sequence[str] | None
    config_file: str | Path | None
    instance_name: str | None
    unit_name: str | None
    client_ip: str | None
    namespace: str | None
    credentials: Credentials | None
    tls: bool | ClientTlsConfig
    connect_timeout_ms: int
    request_timeout_ms: int
    start_timeout_ms: int
    poll_namesrv_interval_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where a client connects to, its identity, and its timeouts."""

    namesrv: str | Sequence[str] | None = None
    """`host:port`, several as a list or separated by `;`; None: from file, environment or address service."""
    config_file: str | Path | None = None
    """A properties file with RocketMQ's keys (`rocketmq.namesrv.addr` …)."""
    instance_name: str | None = None
    """Distinguishes clients on one machine (`instanceName`); None: generated from process id and a number."""
    unit_name: str | None = None
    """The unit of a cluster that is split into units (`unitName`)."""
    client_ip: str | None = None
    """The address that brokers and tools show (`clientIP`); None: detected."""
    namespace: str | None = None
    """Prefix of every topic and group on the wire (`namespace`)."""
    credentials: Credentials | None = None
    """`Credentials(access_key, secret_key)`: every request is signed."""
    tls: bool | ClientTlsConfig = False
    """True: encrypted, any certificate is accepted, as by default in Apache's client."""
    connect_timeout_ms: int = 3_000
    """For one attempt to connect."""
    request_timeout_ms: int = 3_000
    """For requests such as routes and heartbeats (`mqClientApiTimeout`)."""
    start_timeout_ms: int = 10_000
    """For `start`: a name server has to respond within this time."""
    poll_namesrv_interval_ms: int = 30_000
    """How often routes are refreshed (`pollNameServerInterval`)."""
    heartbeat_interval_ms: int = 30_000
    """How often heartbeats are sent to brokers (`heartbeatBrokerInterval`)."""
    _number: int = field(default_factory=lambda: next(_numbers), repr=False)

    def __post_init__(self) -> None:
        if self.credentials is not None and not isinstance(self.credentials, Credentials):
            raise TypeError(
                f"credentials are Credentials(access_key, secret_key), not {type(self.credentials).__name__}"
            )
        check_field_types(self)
        for name in ("connect", "request", "start"):
            if getattr(self, f"{name}_timeout_ms") <= 0:
                raise ValueError(f"{name}_timeout_ms is a number of milliseconds above 0")

    def client_id(self, *, is_shared: bool = False) -> str:
        """The id that brokers know: `ip@instance`, with the unit. A shared id is the same after a restart;
        other ids contain process id and a number."""
        instance = self.instance_name or DEFAULT_INSTANCE
        if instance == DEFAULT_INSTANCE and not is_shared:
            instance = f"{os.getpid()}#{self._number}"
        words = [self.client_ip or local_ip(), instance, *([self.unit_name] if self.unit_name else [])]
        return "@".join(words)

    def remoting_config(self) -> RemotingClientConfig:
        tls = self.tls if isinstance(self.tls, ClientTlsConfig) else ClientTlsConfig(enable=self.tls)
        return RemotingClientConfig(
            connect_timeout_ms=self.connect_timeout_ms,
            limits=ConnectionLimits(write_high_bytes=1024 * 1024),
            tls=tls,
        )


def split_options(
    keywords: Mapping[str, Any], options_type: type[OptionsT], whose: str
) -> tuple[OptionsT, ClientSettings]:
    """A client's own options, and the common settings. TypeError names an unknown keyword, and the one that
    was probably meant."""
    own = {option.name for option in fields(options_type)}  # type: ignore[arg-type]
    check_option_names(keywords, own, options_type, whose)
    options = {name: given for name, given in keywords.items() if name in own}
    others = {name: given for name, given in keywords.items() if name not in own}
    return options_type(**options), ClientSettings(**others)


def check_option_names(
    keywords: Iterable[str], own: Iterable[str], options_type: type[Any], whose: str
) -> None:
    """TypeError for a keyword that is neither an option of this client nor a common one."""
    names = sorted({*own, *ClientOptions.__annotations__})
    for name in keywords:
        if name not in names:
            near = _option_of_java(name, options_type) or nearest(name, names)
            hint = f"did you mean {near}?" if near else "docs/client-options.md lists all"
            raise TypeError(f"{name!r} is not an option of {whose}; {hint}")


def _option_of_java(name: str, options_type: type[Any]) -> str | None:
    """The option that RocketMQ calls `name`: descriptions have RocketMQ's name in parentheses."""
    from kourou.client.reference import meanings  # reads source; needed for errors only

    try:
        described = meanings(options_type) | meanings(ClientSettings)
    except OSError:  # installed without source
        return None
    return next((option for option, meaning in described.items() if f"(`{name}`)" in meaning), None)


def local_ip() -> str:
    """The address of this machine on its default route; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only the route is looked up
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address
