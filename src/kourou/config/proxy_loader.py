"""A proxy's configuration from `rmq-proxy.json`, options and the environment.

Order of precedence: options, file, environment, defaults. The file is one JSON object, as Apache's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kourou.config.component import attributes_of
from kourou.config.home import ROCKETMQ_HOME, data_home
from kourou.config.keys import settings_of
from kourou.config.properties import Property
from kourou.config.properties_file import read_text
from kourou.config.proxy import ProxyConfig
from kourou.config.settings import SettingsReader
from kourou.errors import ConfigError

NAMESRV_ADDR: Final = "NAMESRV_ADDR"


def load_proxy_config(
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    option_names: Mapping[str, str] | None = None,
) -> tuple[ProxyConfig, list[str]]:
    """Read the configuration; also returns notes for the operator, one line each.

    `overrides` are RocketMQ keys with their text, from options; `option_names` gives the option of a
    key that was not set by --set. ConfigError holds every problem.
    """
    environ = environ or {}
    reader = SettingsReader(ProxyConfig.known_keys(), ProxyConfig.other_keys)
    if path is not None:
        reader.read_file(_entries(path), str(path))
    reader.read_options(overrides or {}, option_names or {})
    settings = reader.settings
    settings.check_folder("rocketmqHome", environ.get(ROCKETMQ_HOME))
    settings.check()
    values = settings.values
    values.setdefault("rocketmqHome", str(data_home(environ)))
    values["rocketmqHome"] = str(Path(str(values["rocketmqHome"])).absolute())
    if not values.get("namesrvAddr") and environ.get(NAMESRV_ADDR):
        reader.read_values({"namesrvAddr": environ[NAMESRV_ADDR]}, NAMESRV_ADDR)
        settings.check()
    known = settings_of(ProxyConfig)
    own = {name: value for name, value in values.items() if name in known}
    return ProxyConfig(**attributes_of(ProxyConfig, own), extra=settings.extra), settings.notes


def _entries(path: Path) -> Iterator[Property]:
    """The members of the object, as text, with their lines. `null` stands for the default."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f'{path}: must be one JSON object, as in {{"grpcServerPort": 8081}}')
    for name, value in content.items():
        if value is not None:
            line = text.count("\n", 0, max(0, text.find(json.dumps(name)))) + 1
            yield Property(name, value if isinstance(value, str) else json.dumps(value), line)
