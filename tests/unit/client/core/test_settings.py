"""Hooks that are none are refused when a client is made, not when it starts or sends."""

from __future__ import annotations

from typing import Any

import pytest

from kourou import AsyncProducer, AsyncPushConsumer, Producer, PushConsumer, TransactionProducer
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer_hooks import ProducerHook, SendContext
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook


class AsyncHook(ProducerHook):
    async def before_send(self, context: SendContext) -> None:  # type: ignore[override]
        """Nobody would await it."""


class AsyncConsumerHook(ConsumerHook):
    async def after_consume(self, context: ConsumeHookContext) -> None:  # type: ignore[override]
        """Nobody would await it."""


class Duck:
    """Has the methods, whatever it is derived from."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...

    def end_transaction(self, context: object) -> None: ...


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ([1], "hooks has 1, which has no method before_send: derive it from ProducerHook"),
        ([ProducerHook], r"objects of a ProducerHook, not the class: ProducerHook\(\)"),
        ([ConsumerHook()], "has no method before_send"),
        ([AsyncHook()], "AsyncHook.before_send is async"),
        (ProducerHook(), "hooks is a list of ProducerHook objects"),
        ("trace", "hooks is a list of ProducerHook objects"),
    ],
)
def test_producers_say_what_is_wrong_with_a_hook(hooks: Any, problem: str) -> None:
    for kind in (Producer, AsyncProducer):
        with pytest.raises(TypeError, match=problem):
            kind("producers", hooks=hooks)
    with pytest.raises(TypeError, match=problem):
        TransactionProducer("tx", check=lambda message: TransactionState.COMMIT, hooks=hooks)


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ([1], "has no method before_consume: derive it from ConsumerHook"),
        ([ConsumerHook], r"not the class: ConsumerHook\(\)"),
        ([AsyncConsumerHook()], "AsyncConsumerHook.after_consume is async"),
        (7, "hooks is a list of ConsumerHook objects, not 7"),
    ],
)
def test_consumers_say_what_is_wrong_with_a_hook(hooks: Any, problem: str) -> None:
    for kind in (PushConsumer, AsyncPushConsumer):
        with pytest.raises(TypeError, match=problem):
            kind("billing", hooks=hooks)


def test_whatever_has_the_methods_is_a_hook() -> None:
    Producer("producers", hooks=[Duck(), ProducerHook()])  # type: ignore[list-item]
    PushConsumer("billing", hooks=(ConsumerHook(),))
