"""The YAML of a file of accounts: read with every scalar as text, and written back.

Numbers stay text, as they were written: `secretKey: 0123` is four digits. Written back are the same values;
comments are lost, as with RocketMQ. Errors never quote the file, which has secrets.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from kourou.errors import ConfigError

Document = dict[str, Any]
"""The mapping of a file: texts, None, lists and mappings."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Room for some 100,000 accounts; a larger file is the wrong one."""
_INSTALL: Final = "plain_acl.yml is YAML and needs PyYAML: pip install 'kourou[acl]'"
_TYPES: Final = ("bool", "int", "float", "timestamp", "binary")


def parse_document(raw: bytes, where: str) -> Document:
    """The mapping of a file; empty for an empty one. ConfigError if it is not YAML, or not a mapping."""
    yaml, loader = _yaml()
    try:
        document = yaml.load(raw.decode(), Loader=loader)
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}{_position(error)}") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: must be a mapping with globalWhiteRemoteAddresses and accounts")
    return document


def read_bytes(path: Path) -> bytes:
    """The content of a file. FileNotFoundError; ConfigError if it cannot be read, or is too large."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes; this is no file of accounts")
    return raw


def format_document(document: Document) -> str:
    """The text of a file, which `parse_document` reads back."""
    yaml, _ = _yaml()
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def _position(error: Any) -> str:
    """Line and problem of a mistake in the syntax, without the text around it."""
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    return f"{line}: is not valid YAML: {getattr(error, 'problem', None) or 'unreadable characters'}"


@cache
def _yaml() -> tuple[Any, Any]:
    """PyYAML, and a loader that leaves scalars as they were written."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(_INSTALL) from error
    loader: Any = type("TextLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    for kind in _TYPES:
        loader.add_constructor(f"tag:yaml.org,2002:{kind}", loader.construct_scalar)
    return yaml, loader
