"""Keys of access control: what goes together, what no request may change, what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.config.access_settings import AccessSettings
from kourou.config.broker import BrokerConfig
from kourou.config.broker_loader import load_broker_config
from kourou.config.component import ComponentConfig
from kourou.config.inner_credentials import InnerCredentialsSettings
from kourou.config.keys import ValueType, settings_of
from kourou.config.namesrv import NamesrvConfig
from kourou.errors import ConfigError

PACKAGE = "org.apache.rocketmq.auth."
APACHE = f"""\
authenticationEnabled=true
authenticationProvider={PACKAGE}authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider={PACKAGE}authentication.provider.LocalAuthenticationMetadataProvider
authenticationStrategy={PACKAGE}authentication.strategy.StatelessAuthenticationStrategy
authorizationEnabled=true
authorizationProvider={PACKAGE}authorization.provider.DefaultAuthorizationProvider
authorizationMetadataProvider={PACKAGE}authorization.provider.LocalAuthorizationMetadataProvider
authorizationStrategy={PACKAGE}authorization.strategy.StatelessAuthorizationStrategy
initAuthenticationUser={{"username":"admin","password":"hush-hush"}}
innerClientAuthenticationCredentials={{"accessKey":"inner","secretKey":"hush-hush"}}
authenticationWhitelist=34, 105
userCacheMaxNum=7
"""


def load(folder: Path, text: str) -> tuple[BrokerConfig, list[str]]:
    path = folder / "broker.conf"
    path.write_text(text + f"rocketmqHome={folder}\n")
    return load_broker_config(path)


def test_a_file_for_apache_is_taken_as_it_is(tmp_path: Path) -> None:
    config, notes = load(tmp_path, APACHE)
    assert config.authentication_enabled and config.authorization_enabled
    assert config.authentication_whitelist == "34, 105"
    assert all("has no effect: users and policies are" in note for note in notes)


def test_access_control_of_rocketmq_4_is_switched_on(tmp_path: Path) -> None:
    assert load(tmp_path, "aclEnable=true\n")[0].acl_enable


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"acl_enable": True, "authentication_enabled": True}, "exclude each other"),
        ({"acl_enable": True, "authorization_enabled": True}, "exclude each other"),
        ({"authorization_enabled": True}, "needs authenticationEnabled=true"),
    ],
)
def test_dangerous_combinations_are_refused(tmp_path: Path, values: dict[str, bool], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig(**values)  # type: ignore[arg-type]
    attributes = {attribute: name for name, (attribute, _) in settings_of(AccessSettings).items()}
    lines = "".join(f"{attributes[attribute]}=true\n" for attribute in values)
    with pytest.raises(ConfigError, match=problem):
        load(tmp_path, lines)


@pytest.mark.parametrize(
    "line",
    [
        "authenticationProvider=com.example.LdapProvider",
        "authorizationMetadataProvider=com.example.Database",
        "authenticationWhitelist=send",
        'initAuthenticationUser={"username":"admin"}',
        "initAuthenticationUser=hush-hush",
    ],
)
def test_what_is_not_there_is_not_promised(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, line + "\n")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("config", [BrokerConfig(), NamesrvConfig()])
def test_no_request_changes_access_control_secrets_or_paths(config: ComponentConfig) -> None:
    """The exploits behind CVE-2023-33246 and CVE-2023-37582, and §8.2: `authenticationEnabled=false`."""
    access = {*settings_of(AccessSettings), *settings_of(InnerCredentialsSettings)}
    for key in config.known_keys():
        is_access = key.name in access
        is_path = key.type is ValueType.STRING and ("path" in key.name.lower() or key.name.endswith("Home"))
        if (is_access or is_path or key.secret) and not key.instead:
            assert key.name in config.black_list, key.name


@pytest.mark.parametrize("config_type", [BrokerConfig, NamesrvConfig])
def test_secrets_are_never_shown(config_type: type[ComponentConfig]) -> None:
    keyed: type = config_type
    secrets = {key.name: attribute for attribute, key in settings_of(keyed).values() if key.secret}
    words = ("password", "secret", "credential", "initauth")
    named = {key.name for key in config_type.known_keys() if any(word in key.name.lower() for word in words)}
    assert named <= set(secrets) | {key.name for key in config_type.known_keys() if key.instead}
    inner = '{"accessKey":"inner","secretKey":"hush-hush"}'
    user = '{"username":"inner","password":"hush-hush"}'
    texts = {"innerClientAuthenticationCredentials": inner, "initAuthenticationUser": user}
    values = {attribute: texts.get(name, "hush-hush") for name, attribute in secrets.items()}
    config = config_type(**values)
    assert "hush" not in config.to_properties() + repr(config) + str(config.texts())
