"""The account of a server's own requests: read from RocketMQ's form, never shown."""

from __future__ import annotations

import pytest

from kourou.access.inner_keys import inner_keys
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.config.inner_credentials import parse_inner_credentials
from kourou.errors import ConfigError

GIVEN = '{"accessKey":"inner","secretKey":"very secret"}'


def test_keys_are_read_from_the_form_of_rocketmq() -> None:
    keys = inner_keys(BrokerConfig(inner_client_authentication_credentials=GIVEN))
    assert keys is not None
    assert (keys.access_key, keys.secret_key) == ("inner", "very secret")
    assert inner_keys(NamesrvConfig()) is None


@pytest.mark.parametrize(
    "text",
    [
        "inner:secret",
        "[]",
        '{"accessKey":"inner"}',
        '{"accessKey":"","secretKey":"very secret"}',
        '{"accessKey":"inner","secretKey":5}',
    ],
)
def test_another_form_is_refused_without_showing_it(text: str) -> None:
    assert parse_inner_credentials(text) is None
    with pytest.raises(ConfigError) as error:
        BrokerConfig(inner_client_authentication_credentials=text)
    assert "accessKey" in str(error.value) and "very secret" not in str(error.value)


def test_they_are_neither_shown_nor_changed_by_a_request() -> None:
    config = BrokerConfig(inner_client_authentication_credentials=GIVEN)
    assert "very secret" not in config.to_properties() + repr(config) + repr(inner_keys(config))
    assert "innerClientAuthenticationCredentials" in config.black_list
