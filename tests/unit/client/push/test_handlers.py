"""What counts as a handler, how it is called, and what its answers mean."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.handlers import checked_result, handler_of
from kourou.protocol.message import MessageExt


def plain(message: MessageExt) -> None: ...


async def asynchronous(message: MessageExt) -> None: ...


def with_context(message: MessageExt, context: ConsumeContext) -> None: ...


def with_optional_context(message: MessageExt, context: ConsumeContext | None = None) -> None: ...


def with_option(message: MessageExt, retries: int = 3) -> None: ...


def starred(*arguments: Any) -> None: ...


class Callable:
    async def __call__(self, message: MessageExt) -> None: ...

    def method(self, message: MessageExt, context: ConsumeContext) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async", "takes_context"),
    [
        (plain, False, False),
        (asynchronous, True, False),
        (with_context, False, True),
        (with_optional_context, False, True),
        (with_option, False, False),
        (starred, False, False),
        (Callable(), True, False),
        (Callable().method, False, True),
        (functools.partial(asynchronous), True, False),
        (functools.partial(with_context, context=None), False, False),
        (print, False, False),
    ],
)
def test_shapes_of_handlers(function: Any, is_async: bool, takes_context: bool) -> None:
    handler = handler_of(function)
    assert (handler.is_async, handler.takes_context) == (is_async, takes_context)


@pytest.mark.parametrize("function", [None, "name", lambda: None, lambda a, b, c: None])
def test_what_cannot_take_a_message_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="message"):
        handler_of(function)


def no_argument() -> None: ...


def three_arguments(first: object, second: object, third: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "count"), [(no_argument, "no argument"), (three_arguments, "3 arguments")]
)
def test_a_wrong_signature_is_refused_by_the_name_of_the_handler(function: Any, count: str) -> None:
    with pytest.raises(TypeError) as caught:
        handler_of(function)
    assert str(caught.value) == (
        f"handler {function.__name__}() takes {count}; it must take the message, and may take a "
        "ConsumeContext as second"
    )


def test_none_is_success_and_nonsense_is_an_error() -> None:
    handler = handler_of(plain)
    assert checked_result(None, handler) is ConsumeResult.SUCCESS
    assert checked_result(ConsumeResult.LATER, handler) is ConsumeResult.LATER
    for nonsense in (True, "SUCCESS", 0):
        with pytest.raises(TypeError, match="plain returned"):
            checked_result(nonsense, handler)
