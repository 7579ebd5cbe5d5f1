"""Saved contexts: clusters by name, and which of them a command connects to.

`$XDG_CONFIG_HOME/kourou/contexts.json`, readable by its owner only:

    {"current": "prod", "contexts": {"prod": {"namesrv": "10.0.0.1:9876", "acl": "/…/tools.yml"}}}

Access keys and TLS keys stay in their files; a context only has the paths. Not here: connecting with a
context (admin/connecting.py), the commands (daily/context.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kourou.config.home import config_home
from kourou.config.properties_file import replace_file
from kourou.errors import ConfigError
from kourou.transport.addresses import parse_addresses
from kourou.wording import suggestion

VARIABLE: Final = "KOUROU_CONTEXT"
"""The environment variable that names a context."""
CLUSTER_VARIABLES: Final = ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN")
"""Environment variables that name a cluster, as every client reads them."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Context(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One cluster, and how to connect to it."""

    namesrv: str
    """`host:port`, several separated by `;`."""
    acl: str | None = None
    """A file with accessKey and secretKey."""
    tls: bool = False
    """Encrypted; any certificate is trusted."""
    tls_config: str | None = None
    """Encrypted with the settings in this file."""


class Contexts(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All contexts of a user. Mutating methods return a new object and write nothing."""

    contexts: dict[str, Context] = {}
    current: str | None = None

    def get(self, name: str) -> Context:
        """The context with this name. ConfigError with the nearest name if there is none."""
        found = self.contexts.get(name)
        if found is not None:
            return found
        hint = suggestion(name, self.contexts)
        if not hint:
            saved = ", ".join(sorted(self.contexts))
            hint = (
                f"; saved contexts: {saved}" if saved else "; kourou context add NAME -n host:9876 saves one"
            )
        raise ConfigError(f"there is no context {name!r}{hint}")

    def add(self, name: str, context: Context, *, is_current: bool, replaces: bool = False) -> Contexts:
        """With another context, which becomes the current one if it is the first."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"context {name!r}: a name may have letters, digits, '.', '_' and '-', and must "
                "start with a letter or a digit"
            )
        if name in self.contexts and not replaces:
            raise ConfigError(f"context {name!r} already exists; --replace overwrites it")
        if not parse_addresses(context.namesrv):
            raise ConfigError(f"context {name!r}: no name server given; use -n host:9876")
        is_first = not self.contexts
        return Contexts({**self.contexts, name: context}, name if is_current or is_first else self.current)

    def use(self, name: str | None) -> Contexts:
        """With another current context, or none."""
        if name is not None:
            self.get(name)
        return Contexts(self.contexts, name)

    def remove(self, name: str) -> Contexts:
        """Without a context. If it was the current one, there is none afterwards."""
        self.get(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts(left, None if self.current == name else self.current)


def contexts_path(environ: Mapping[str, str]) -> Path:
    """The path of a user's contexts."""
    return config_home(environ) / "contexts.json"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """A user's contexts; empty without a file. ConfigError if it cannot be read."""
    path = contexts_path(environ)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: cannot read it: {error}; fix it, or delete it and add the contexts again"
        ) from None


def write_contexts(environ: Mapping[str, str], contexts: Contexts) -> None:
    """Replace a user's contexts; on return they are on disk."""
    raw = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
    replace_file(contexts_path(environ), raw.decode() + "\n")


def chosen_context(
    environ: Mapping[str, str], *, name: str | None = None, is_cluster_given: bool = False
) -> tuple[str, Context] | None:
    """The context that a command uses, and its name; None for no context. The only place that decides this.

    In order of precedence: `-n` or `--config` (`is_cluster_given`), then `--context` (`name`),
    KOUROU_CONTEXT, NAMESRV_ADDR or an address service of the environment, the current context. With `-n`,
    `--context` adds its keys and TLS; other contexts are not used then, so that a key is only sent to its own
    cluster.
    """
    if not name and not is_cluster_given:
        name = environ.get(VARIABLE)
    if name:
        return name, read_contexts(environ).get(name)
    if is_cluster_given or any(map(environ.get, CLUSTER_VARIABLES)):
        return None
    contexts = read_contexts(environ)
    return None if contexts.current is None else (contexts.current, contexts.get(contexts.current))
