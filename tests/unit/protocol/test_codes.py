"""Number spaces: what the tables must not lose, and what other modules rely on."""

from __future__ import annotations

from kourou.protocol import versions
from kourou.protocol.codes import (
    LanguageCode,
    MessageSysFlag,
    PermName,
    PullSysFlag,
    RequestCode,
    ResponseCode,
    SerializeType,
    TopicSysFlag,
)
from kourou.protocol.versions import version_desc
from tests.golden.frames import VERSIONS, recorded_frames

UNKNOWN_ON_PURPOSE = 9999


def test_every_recorded_code_has_a_name() -> None:
    for version in VERSIONS:
        for recorded in recorded_frames(version):
            if recorded.request_code != UNKNOWN_ON_PURPOSE:
                RequestCode(recorded.request_code)
            if recorded.type == "response":
                ResponseCode(recorded.code)


def test_request_codes_are_distinct() -> None:
    assert len(RequestCode.__members__) == len(set(RequestCode))


def test_response_codes_share_numbers_only_where_versions_differ() -> None:
    aliases = {name for name, code in ResponseCode.__members__.items() if code.name != name}
    assert aliases == {
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
        "DELETE_ACL_CONFIG_FAILED",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
    }


def test_numbers_other_programs_rely_on() -> None:
    assert (SerializeType.JSON, SerializeType.ROCKETMQ) == (0, 1)
    assert (LanguageCode.JAVA, LanguageCode.PYTHON, LanguageCode.GO, LanguageCode.NODE_JS) == (0, 3, 9, 13)
    assert PermName.READ | PermName.WRITE == 6
    assert PermName.INHERIT | PermName.PRIORITY == 9
    assert TopicSysFlag.UNIT | TopicSysFlag.UNIT_SUB == 3
    assert PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUSPEND | PullSysFlag.LITE_PULL == 19


def test_the_two_small_fields_of_a_message_sys_flag() -> None:
    sys_flag = MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB
    assert sys_flag == 0x301
    assert sys_flag & MessageSysFlag.COMPRESSION_MASK == MessageSysFlag.COMPRESSION_ZLIB
    assert sys_flag & MessageSysFlag.TRANSACTION_MASK == 0
    assert MessageSysFlag.TRANSACTION_ROLLBACK_TYPE & MessageSysFlag.TRANSACTION_MASK == 12


def test_versions_by_number() -> None:
    known = {
        0: "V3_0_0_SNAPSHOT",
        versions.V3_0_7_SNAPSHOT: "V3_0_7_SNAPSHOT",
        versions.V3_0_11: "V3_0_11",
        versions.V3_1_8_SNAPSHOT: "V3_1_8_SNAPSHOT",
        versions.V3_4_9: "V3_4_9",
        137: "V3_5_8",
        212: "V4_0_0_SNAPSHOT",
        versions.V4_1_0_SNAPSHOT: "V4_1_0_SNAPSHOT",
        333: "V4_6_0",
        versions.V4_9_3: "V4_9_3",
        versions.STANDARD_JSON_VERSION: "V4_9_4",
        versions.V4_9_7: "V4_9_7",
        versions.V4_9_8: "V4_9_8",
        versions.V5_0_0: "V5_0_0",
        441: "V5_1_4",
        versions.V5_3_1: "V5_3_1",
        versions.CURRENT_VERSION: "V5_3_3",
        versions.V5_5_0: "V5_5_0",
        612: "HIGHER_VERSION",
        100_000: "HIGHER_VERSION",
        -1: "V3_0_0_SNAPSHOT",
    }
    assert {number: version_desc(number) for number in known} == known
