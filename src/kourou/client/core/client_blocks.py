"""The kind of `with` block that a client needs, and the errors for the other kind or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

NOT_STARTED: Final = "this client is not started; use it in a `with` block, or call start()"
ASYNC_NOT_STARTED: Final = (
    "this client is not started; use it in an `async with` block, or call `await start()`"
)


class AsyncBlockOnly:
    """Base of asyncio clients: a `with` block raises TypeError, with what to use instead."""

    # Hidden from type checkers, which report a `with` block by themselves.
    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise _wrong_block(self, "an `async with`", "`with`")

        def __exit__(self, *exception: object) -> None:
            """Never reached; `with` looks it up before it enters."""


class SyncBlockOnly:
    """Base of sync clients: an `async with` block raises TypeError, with what to use instead."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise _wrong_block(self, "a `with`", "`async with`")

        async def __aexit__(self, *exception: object) -> None:
            """Never reached; `async with` looks it up before it enters."""


def _wrong_block(client: object, own: str, other: str) -> TypeError:
    import kourou  # needed for errors only

    public = kourou.__all__
    # An application may derive its own class.
    names = [each.__name__ for each in type(client).__mro__]
    name = next((each for each in names if each in public), names[0])
    twin = name.removeprefix("Async") if name.startswith("Async") else f"Async{name}"
    hint = f"; {other} is for {twin}" if twin in public else ""
    return TypeError(f"use {name} in {own} block{hint}")
