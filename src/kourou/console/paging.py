"""Lists in pages: search, sort and cut on the server, so that a browser never holds 5,000 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from kourou.console.api_errors import bad_input
from kourou.wording import suggestion

MAX_LIMIT = 1_000

RowT = TypeVar("RowT")


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a list. Lists with further filters extend it."""

    search: str = ""
    """Only rows with this text in their name; case does not matter."""
    sort: str = ""
    """A column; the list's own order if empty."""
    order: str = "asc"
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] = 100


class Page(msgspec.Struct, Generic[RowT], frozen=True, kw_only=True):
    """A part of a list."""

    items: list[RowT]
    total: int
    """Rows that match the search, on all pages."""
    as_of: int = 0
    """When the data was read, in milliseconds since 1970."""
    problems: list[str] = []
    """Parts of the cluster that could not be read; the list is incomplete then."""
    commands: list[str] = []
    """Command lines that print the same: of mqadmin, if it has one."""


def cut_page(
    rows: Iterable[RowT],
    query: PageQuery,
    *,
    name: Callable[[RowT], str],
    columns: Mapping[str, Callable[[RowT], Any]],
    as_of: int = 0,
    problems: Iterable[str] = (),
    commands: Iterable[str] = (),
) -> Page[RowT]:
    """The requested page. `name` is what `search` looks at, `columns` what `sort` may name. Rows whose value
    is None come last in either order."""
    wanted = query.search.lower()
    found = [row for row in rows if wanted in name(row).lower()] if wanted else list(rows)
    if query.order not in ("asc", "desc"):
        raise bad_input("order", f"{query.order!r} is neither asc nor desc")
    if query.sort:
        found = _sorted(found, query, name, columns)
    return Page(
        items=found[query.offset : query.offset + query.limit],
        total=len(found),
        as_of=as_of,
        problems=list(problems),
        commands=list(commands),
    )


def _sorted(
    rows: list[RowT],
    query: PageQuery,
    name: Callable[[RowT], str],
    columns: Mapping[str, Callable[[RowT], Any]],
) -> list[RowT]:
    if query.sort not in columns:
        hint = suggestion(query.sort, columns) or f"; there are: {', '.join(columns)}"
        raise bad_input("sort", f"no column {query.sort!r}{hint}")
    value = columns[query.sort]
    known = sorted((row for row in rows if value(row) is not None), key=name)
    known.sort(key=value, reverse=query.order == "desc")
    return known + [row for row in rows if value(row) is None]
