"""Options of catalog tables: `CREATE TABLE orders USING rocketmq OPTIONS (…)`, then SELECT and INSERT.

Spark (4.3) passes the OPTIONS of a table to a Python source only once: while it creates the table, to get its
columns, and only if the statement lists none. It mixes them with its own properties (`provider`, `owner`, …)
and with TBLPROPERTIES. Later reads and writes get only the columns. So the options are kept in the comment of
the first column, which the catalog stores and SHOW CREATE TABLE prints. Credentials are not: comments are
visible to everyone who can see the columns. Not here: what options mean (options.py, sink_options.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from kourou.errors import ConfigError
from kourou.spark.sink.sink_options import SINK_OPTION_NAMES
from kourou.spark.source.options import SOURCE_OPTION_NAMES, WHAT_TO_READ

_FORMAT: Final = "rocketmq"
_PROVIDER: Final = "provider"
"""The table property that names its format; not an option of a DataFrame."""
_OPTION_PREFIX: Final = "option."
"""The prefix of OPTIONS in the properties of a table."""
_COMMENT: Final = f"{_FORMAT} options: "
_SECRETS: Final = frozenset({"accesskey", "secretkey", "securitytoken"})
_WHERE_TO_WRITE: Final = ("namesrv", "nameserver", "topic")
_SOURCE_NAMES: Final = frozenset(name.lower() for name in SOURCE_OPTION_NAMES)
_SINK_NAMES: Final = frozenset(name.lower() for name in SINK_OPTION_NAMES)


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of the table that Spark is creating, with names in lower case; None for options of a
    DataFrame. ConfigError for credentials."""
    lowered = _lowered(options)
    if lowered.get(_PROVIDER, "").lower() != _FORMAT:
        return None
    given = {
        name.removeprefix(_OPTION_PREFIX): value
        for name, value in lowered.items()
        if name.startswith(_OPTION_PREFIX)
    }
    if "path" in lowered:  # which Spark names like a property; the source suggests the right option
        given["path"] = lowered["path"]
    if secrets := sorted(_SECRETS & given.keys()):
        raise ConfigError(
            f"{', '.join(secrets)}: credentials cannot be table options, which are visible; "
            "pass them to each query, SELECT … FROM table WITH (accessKey = '…', secretKey = '…'), or use "
            "CREATE TEMPORARY VIEW … USING rocketmq"
        )
    return given


def for_source(given: Mapping[str, str]) -> dict[str, str]:
    """The table options for the source, including unknown ones, so that the source reports them."""
    return {name: value for name, value in given.items() if name in _SOURCE_NAMES or name not in _SINK_NAMES}


def for_sink(given: Mapping[str, str]) -> dict[str, str]:
    """The table options for the sink; without `topic`, rows go to the topic that is read, if there is only
    one."""
    found = {name: value for name, value in given.items() if name in _SINK_NAMES}
    read = given.get("subscribe", "")
    if read and "," not in read:
        found.setdefault("topic", read)
    return found


def with_comment(ddl: str, given: Mapping[str, str]) -> str:
    """Columns as DDL, with the options as the comment of the first."""
    first, comma, rest = _first_column(ddl)
    text = json.dumps(dict(sorted(given.items()))).replace("'", "\\u0027")
    literal = f"{_COMMENT}{text}".replace("\\", "\\\\")
    return f"{first} COMMENT '{literal}'{comma}{rest}"


def _first_column(ddl: str) -> tuple[str, str, str]:
    depth = 0
    for position, sign in enumerate(ddl):
        depth += (sign == "<") - (sign == ">")
        if sign == "," and not depth:
            return ddl[:position], ",", ddl[position + 1 :]
    return ddl, "", ""


def source_options(options: Mapping[str, str], schema: Any) -> Mapping[str, str]:
    """The options of a read: the given ones, completed by the table's unless they say what to read."""
    lowered = _lowered(options)
    table = _commented(schema)
    if not table and not lowered:
        raise ConfigError(_LOST)
    if any(name.lower() in lowered for name in WHAT_TO_READ):
        return options
    return {**for_source(table), **lowered}


def sink_options(
    options: Mapping[str, str], schema: Any, environ: Mapping[str, str] = os.environ
) -> Mapping[str, str]:
    """The options of a write: the given ones, completed by the table's unless they say where to write.

    The columns of a DataFrame read from a table have its comment, too: options, environment and a column
    `topic` take precedence, so that its rows do not return to that table."""
    lowered = _lowered(options)
    table = for_sink(_commented(schema))
    if not table and not lowered:
        raise ConfigError(f"{_LOST}. To write a DataFrame, set at least one option, such as namesrv")
    if any(name in lowered for name in _WHERE_TO_WRITE):
        return options
    usual = environ.get("NAMESRV_ADDR", "")
    if usual and table.get("namesrv", usual) != usual:
        raise ConfigError(
            f"the columns are those of a table at {table['namesrv']}, but NAMESRV_ADDR is {usual}: "
            "set the option namesrv"
        )
    if any(name.lower() == "topic" for name in schema.names):
        table.pop("topic", None)
    return {**table, **lowered}


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _commented(schema: Any) -> dict[str, str]:
    """The options in the comment of a StructType's column; empty if there are none."""
    for field in schema.fields:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(_COMMENT):
            try:
                found = json.loads(comment.removeprefix(_COMMENT))
            except ValueError as error:
                raise ConfigError(
                    f"column {field.name}: its comment does not contain valid options: {error}"
                ) from None
            return {str(name): str(value) for name, value in found.items()}
    return {}


_LOST: Final = (
    "no options: Spark (4.3) loses those of a table that was created with a list of columns, or AS "
    "SELECT. Create it without, and list the columns in an option: CREATE TABLE … USING rocketmq OPTIONS "
    "(namesrv '…', subscribe '…', columns 'value string, tags')"
)
