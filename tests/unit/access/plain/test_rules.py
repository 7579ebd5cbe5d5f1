"""The decisions of RocketMQ 4, in their order and words; and what happens when files change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.access.model import AccessRefusedError, Action, RefusalKind
from kourou.access.plain.rules import PlainRules
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode
from tests.unit.access.plain.accounts_kit import (
    ACCOUNTS,
    SECRET,
    call,
    group,
    home_files,
    rules_of,
    topic,
    write,
)

PLACE = ", org.apache.rocketmq.acl.plain.PlainPermissionManager."


@pytest.fixture
def rules(tmp_path: Path) -> PlainRules:
    return rules_of(home_files(tmp_path))


def refusal(rules: PlainRules, *args: object, **options: object) -> AccessRefusedError:
    with pytest.raises(AccessRefusedError) as caught:
        rules.check(call(*args, **options))  # type: ignore[arg-type]
    return caught.value


def words(error: AccessRefusedError) -> str:
    """The text between the exception's class and the place."""
    assert error.response_code == 1
    before, _, after = error.remark.partition("AclException: ")
    assert before == "org.apache.rocketmq.acl.common."
    return after.partition(PLACE)[0]


# -- the order of decisions --------------------------------------------------------------------------


def test_exempt_address_needs_no_account(rules: PlainRules) -> None:
    assert rules.check(call(topic("secret", Action.PUB), key=None, address="10.10.103.9")) is None
    assert rules.check(call(key="unknown-key", address="10.10.103.9", admin_only=True)) is None


@pytest.mark.parametrize("key", [None, ""])
def test_no_access_key(rules: PlainRules, key: str | None) -> None:
    error = refusal(rules, key=key)
    assert words(error) == "No accessKey is configured"
    assert error.kind is RefusalKind.NO_CREDENTIALS
    assert error.remark.endswith(".validate(PlainPermissionManager.java:663)")


def test_unknown_account(rules: PlainRules) -> None:
    error = refusal(rules, key="somebody")
    assert words(error) == "No acl config for somebody"
    assert (error.kind, error.user) == (RefusalKind.UNKNOWN_USER, "somebody")


def test_account_is_exempt_from_its_own_address(rules: PlainRules) -> None:
    account = rules.check(call(topic("secret", Action.PUB), secret="wrong", address="10.0.0.7"))
    assert account is not None and account.name == "producer"
    assert words(refusal(rules, key="limited-admin", secret="wrong", address="10.0.0.7"))


def test_wrong_signature(rules: PlainRules) -> None:
    error = refusal(rules, secret="not the secret")
    assert words(error) == "Check signature failed for accessKey=producer"
    assert (error.kind, error.user) == (RefusalKind.WRONG_SIGNATURE, "producer")


def test_the_name_in_a_certificate_needs_no_signature(rules: PlainRules) -> None:
    for key in None, "producer":
        account = rules.check(
            call(topic("orders", Action.PUB), key=key, secret="wrong", certificate_user="producer")
        )
        assert account is not None and account.name == "producer"
    error = refusal(rules, topic("other", Action.PUB), key=None, certificate_user="producer")
    assert words(error) == "No default permission for topic:other"
    assert words(refusal(rules, certificate_user="stranger", key=None)) == "No acl config for stranger"
    error = refusal(rules, key="everything", certificate_user="producer")
    assert words(error) == "accessKey=everything is not the user of the client's certificate"


def test_traces_may_be_sent_by_all_but_not_read(rules: PlainRules) -> None:
    assert rules.check(call(topic("RMQ_SYS_TRACE_TOPIC", Action.PUB)))
    assert words(refusal(rules, topic("RMQ_SYS_TRACE_TOPIC", Action.SUB))).endswith(
        "topic:RMQ_SYS_TRACE_TOPIC"
    )


def test_traces_do_not_open_other_topics(rules: PlainRules) -> None:
    needs = topic("RMQ_SYS_TRACE_TOPIC", Action.PUB), topic("secret", Action.PUB)
    assert words(refusal(rules, *needs)) == "No default permission for topic:secret"


def test_administration_is_for_administrators(rules: PlainRules) -> None:
    error = refusal(rules, code=RequestCode.UPDATE_BROKER_CONFIG, admin_only=True)
    assert words(error) == "Need admin permission for request code=25, but accessKey=producer is not"
    assert error.kind is RefusalKind.NO_PERMISSION
    for key in "everything", "limited-admin":
        account = rules.check(call(key=key, admin_only=True))
        assert account is not None and account.is_admin


def test_a_signature_suffices_where_nothing_is_needed(rules: PlainRules) -> None:
    account = rules.check(call())
    assert account is not None and account.name == "producer"


def test_administrator_without_lists_may_everything(rules: PlainRules) -> None:
    assert rules.check(call(topic("any", Action.PUB), group("any"), key="everything"))


def test_administrator_with_lists_is_checked(rules: PlainRules) -> None:
    assert rules.check(call(topic("other", Action.PUB), key="limited-admin"))
    assert words(refusal(rules, topic("orders", Action.PUB), key="limited-admin")).endswith("topic:orders")
    assert words(refusal(rules, group("any"), key="limited-admin")).endswith("group:any")


def test_topics_and_groups(rules: PlainRules) -> None:
    assert rules.check(call(topic("orders", Action.PUB)))
    assert rules.check(call(topic("orders", Action.SUB), group("any")))
    assert rules.check(call(topic("bills", Action.SUB)))
    listed = refusal(rules, topic("bills", Action.PUB))
    assert words(listed) == "No default permission for topic:bills"
    assert listed.remark.endswith(".checkPerm(PlainPermissionManager.java:610)")
    default = refusal(rules, topic("other", Action.PUB))
    assert words(default) == "No default permission for topic:other"
    assert default.remark.endswith(".checkPerm(PlainPermissionManager.java:605)")
    assert words(refusal(rules, topic("orders", Action.SUB), group("closed"))).endswith("group:closed")


def test_a_retry_topic_is_its_group(rules: PlainRules) -> None:
    assert rules.check(call(topic("%RETRY%any", Action.SUB)))
    assert words(refusal(rules, topic("%RETRY%closed", Action.SUB))).endswith("group:closed")
    assert words(refusal(rules, topic("%DLQ%any", Action.SUB))).endswith("topic:%DLQ%any")


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ("orders", "closed", "group:closed"),
        ("Other", "closed", "group:closed"),
        ("Orders", "closed", "topic:Orders"),
    ],
)
def test_one_refused_resource_is_named(rules: PlainRules, first: str, second: str, named: str) -> None:
    assert words(refusal(rules, topic(first, Action.SUB), group(second))).endswith(named)


# -- senders -----------------------------------------------------------------------------------------


def test_senders(rules: PlainRules) -> None:
    sender = rules.sender("producer", "orders")
    assert sender is not None and sender.secret_key == SECRET
    assert rules.sender("everything", "any") is not None
    assert rules.sender("producer", "RMQ_SYS_TRACE_TOPIC") is not None
    for key, name in [
        ("producer", "bills"),
        ("producer", "other"),
        ("limited-admin", "orders"),
        ("everything", "%RETRY%any"),
        ("somebody", "orders"),
        ("", "orders"),
    ]:
        assert rules.sender(key, name) is None


def test_secrets_are_not_in_texts(rules: PlainRules) -> None:
    assert SECRET not in repr(rules.table)
    assert SECRET not in refusal(rules, secret="wrong").remark


# -- files that change -------------------------------------------------------------------------------


def test_unchanged_files_are_not_read_again(rules: PlainRules) -> None:
    table = rules.table
    assert not rules.reload_if_changed()
    assert rules.table is table


def test_a_change_is_in_force_as_a_whole(rules: PlainRules) -> None:
    write(rules.files.default, "accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    assert rules.reload_if_changed()
    assert set(rules.table.accounts) == {"newcomer"}
    assert words(refusal(rules, key="producer")) == "No acl config for producer"
    assert words(refusal(rules, key=None, address="10.10.103.9"))  # the white list is gone, too
    assert not rules.reload_if_changed()


def test_a_file_appears_and_disappears(rules: PlainRules) -> None:
    more = rules.files.folder / "deep" / "more.yaml"
    write(more, "accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    assert rules.reload_if_changed()
    assert "newcomer" in rules.table.accounts
    more.unlink()
    assert not rules.reload_if_changed()  # perhaps it is being replaced
    assert rules.reload_if_changed()
    assert "newcomer" not in rules.table.accounts


def test_an_emptied_file_has_no_accounts_from_the_second_look_on(rules: PlainRules) -> None:
    write(rules.files.default, "")
    assert not rules.reload_if_changed()
    assert "producer" in rules.table.accounts
    assert rules.reload_if_changed()
    assert not rules.table.accounts
    assert not rules.reload_if_changed()
    write(rules.files.default, ACCOUNTS)
    assert rules.reload_if_changed()
    assert "producer" in rules.table.accounts


def test_a_bad_file_changes_nothing_and_is_reported_once(
    rules: PlainRules, caplog: pytest.LogCaptureFixture
) -> None:
    table = rules.table
    write(rules.files.default, "accounts: [{accessKey: short, secretKey: hidden-away}]")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert not rules.reload_if_changed()
        write(rules.files.default, "accounts: [{accessKey: short, secretKey: hidden-away}] ")
        assert not rules.reload_if_changed()
    assert rules.table is table
    assert len(caplog.records) == 1
    assert "account short, accessKey: must be longer than 6" in caplog.text
    assert "hidden-away" not in caplog.text


def test_a_folder_that_cannot_be_read_changes_nothing(
    rules: PlainRules, caplog: pytest.LogCaptureFixture
) -> None:
    table = rules.table
    rules.files.folder.write_text("a file in its place")
    for _ in range(2):
        assert not rules.reload_if_changed()
    assert rules.table is table
    assert caplog.text.count("acl: cannot be read: Not a directory") == 1
    rules.files.folder.unlink()
    write(rules.files.default, ACCOUNTS + "\n")
    assert rules.reload_if_changed()


def test_a_folder_that_is_closed_after_it_was_read_changes_nothing(
    rules: PlainRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is not caught would end the server."""

    def closed() -> list[Path]:
        raise ConfigError("acl: cannot be read: Permission denied")

    monkeypatch.setattr(rules.files, "readable_by_others", closed)
    write(rules.files.default, "accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    assert rules.reload_if_changed()
    assert set(rules.table.accounts) == {"newcomer"}


def test_a_mended_file_is_taken(rules: PlainRules) -> None:
    write(rules.files.default, "[")
    assert not rules.reload_if_changed()
    write(rules.files.default, "accounts: [{accessKey: newcomer, secretKey: 12345678}]")
    assert rules.reload_if_changed()
    assert "newcomer" in rules.table.accounts


def test_first_load_reports_problems(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="account 1, accessKey"):
        rules_of(home_files(tmp_path, "accounts: [{}]"))


def test_no_accounts_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rules = rules_of(home_files(tmp_path, ""))
    assert "every request is refused" in caplog.text
    assert words(refusal(rules)) == "No acl config for producer"


def test_a_file_that_all_can_read_is_warned_of_until_it_is_closed(
    rules: PlainRules, caplog: pytest.LogCaptureFixture
) -> None:
    assert "chmod" not in caplog.text
    for mode, warnings in ((0o644, 1), (0o664, 1), (0o600, 1), (0o604, 2)):
        rules.files.default.chmod(mode)
        rules.reload_if_changed()
        assert caplog.text.count("chmod 600") == warnings


def test_an_account_that_is_twice_in_a_file_is_named(tmp_path: Path) -> None:
    account = "{accessKey: producer, secretKey: 12345678}"
    rules = rules_of(home_files(tmp_path, f"accounts: [{account}, {account}]", z=f"accounts: [{account}]"))
    here, there = (rules.files.folder / "z.yml", rules.files.default)
    assert rules.table.notes == (
        f"{there}: accessKey producer is ignored, it is already in {here}",
        f"{there}: accessKey producer is ignored, it is already in {here}",
    )
    rules = rules_of(home_files(tmp_path / "one", f"accounts: [{account}, {account}]"))
    path = rules.files.default
    assert rules.table.notes == (f"{path}: accessKey producer is ignored, it is already in this file",)
