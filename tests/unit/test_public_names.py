"""What users may import from `kourou` itself. A change here is a change of the product."""

from __future__ import annotations

import pytest

import kourou

PUBLIC = [
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "Broker",
    "ConsumeContext",
    "ConsumeResult",
    "Credentials",
    "KourouError",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "NameServer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueReader",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "TransactionState",
    "idempotent",
    "__version__",
]


def test_the_public_names_are_these() -> None:
    assert sorted(kourou.__all__) == sorted(PUBLIC)
    assert dir(kourou) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(kourou, name)
    assert name == "__version__" or value.__doc__


def test_a_mistyped_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="'kourou' has no attribute 'Mesage'; did you mean Message"):
        _ = kourou.Mesage
    with pytest.raises(AttributeError, match="'kourou' has no attribute 'xyz'; it offers AsyncLitePull"):
        _ = kourou.xyz


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Mesage", "did you mean Message?"),
        ("Consumer", "did you mean LitePullConsumer or PullConsumer or PushConsumer?"),
        ("LocalCluster", "it is in kourou.testing: from kourou.testing import LocalCluster"),
        ("SendFailedError", "it is in kourou.errors: from kourou.errors import SendFailedError"),
    ],
)
def test_an_import_of_a_name_that_kourou_does_not_have_says_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from kourou import {name}")
    assert str(caught.value) == f"cannot import name '{name}' from 'kourou'; {hint}"
    assert not hasattr(kourou, name)
