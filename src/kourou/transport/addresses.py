"""`host:port` texts, as RocketMQ writes them, with and without IPv6 brackets."""

from __future__ import annotations

from kourou.errors import ConfigError

SocketName = tuple[str, int] | tuple[str, int, int, int]


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`; the host of an IPv6 address may stand in brackets.

    >>> parse_address("127.0.0.1:9876"), parse_address("[::1]:9876")
    (('127.0.0.1', 9876), ('::1', 9876))
    """
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"'{text}' is not an address; write host:port, for example 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_addresses(text: str) -> list[str]:
    """Split a list of addresses at `;` or `,` and check each.

    >>> parse_addresses("10.0.0.1:9876; 10.0.0.2:9876")
    ['10.0.0.1:9876', '10.0.0.2:9876']
    """
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        parse_address(address)
    return addresses


def format_address(name: SocketName | None) -> str:
    """`ip:port` of a socket name; IPv4 addresses mapped into IPv6 are written as IPv4.

    >>> format_address(("::ffff:10.0.0.1", 1, 0, 0)), format_address(("::1", 2, 0, 0))
    ('10.0.0.1:1', '[::1]:2')
    """
    if not name:
        return "unknown"
    return join_address(name[0].removeprefix("::ffff:") if "." in name[0] else name[0], name[1])


def join_address(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
