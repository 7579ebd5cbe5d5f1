"""Every answer of Apache's name servers 4.9.7 and 5.5.0 on record, compared with ours.

Compared: code, remark, header fields, and what the body means. Exempt, and nothing else:
- 4.9.7's remark for an unknown topic ends with the address of an older help page; ours is 5.5.0's.
- 5.5.0 sends `enableActingMaster` to callers of any version; we send it to those of 5.x, as
  4.9.7 sends it to none.
- The body of GET_NAMESRV_CONFIG: keys are compared, values are those of each server.
- 4.9.7 does not answer a request code it does not know; we answer as 5.5.0 does.
"""

from __future__ import annotations

import pytest

from kourou.config.properties import parse_properties, properties_dict
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.versions import V5_0_0
from tests.unit.namesrv.golden_namesrv import (
    VERSIONS,
    Exchange,
    Replay,
    answered,
    meaning,
    recorded_frames,
    without_field,
)

_OLD_HELP = "See http://rocketmq.apache.org/docs/faq/ for further details."
_NEW_HELP = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_played: dict[str, list[Exchange]] = {}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def exchanges(version: str) -> list[Exchange]:
    if version not in _played:
        _played[version] = await Replay(recorded_frames(version)).exchanges()
    return _played[version]


async def test_all_answers_are_apaches(exchanges: list[Exchange]) -> None:
    compared = 0
    for request, theirs, ours in answered(exchanges):
        if request.code == RequestCode.UPDATE_NAMESRV_CONFIG and theirs.code == 0:
            # Says which keys are not in force; Apache's tools ignore the remark of a success.
            ours.remark = None
        assert (ours.code, ours.remark) == (theirs.code, _remark(theirs)), request
        assert ours.ext_fields == theirs.ext_fields, request
        assert ours.opaque == theirs.opaque and ours.is_response
        if request.code != RequestCode.GET_NAMESRV_CONFIG:
            assert _compared(ours) == _compared(theirs), request
        compared += 1
    assert compared > 800


def _remark(theirs: RemotingCommand) -> str | None:
    return theirs.remark.replace(_OLD_HELP, _NEW_HELP) if theirs.remark else None


def _compared(answer: RemotingCommand) -> object:
    return without_field(meaning(answer.body), "enableActingMaster")


async def test_the_field_of_5x_goes_to_callers_of_5x(exchanges: list[Exchange]) -> None:
    about_brokers = (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO)
    for request, _, ours in answered(exchanges):
        if request.code in about_brokers and b"brokerName" in ours.body:
            assert (b'"enableActingMaster":false' in ours.body) == (request.version >= V5_0_0)


async def test_configuration_has_apaches_keys(exchanges: list[Exchange]) -> None:
    ((theirs, ours),) = [
        (_keys(theirs), _keys(ours))
        for request, theirs, ours in answered(exchanges)
        if request.code == RequestCode.GET_NAMESRV_CONFIG
    ]
    # Paths are not set in this test; a name server that was started has all three.
    assert theirs - ours == {"kvConfigPath", "configStorePath", "rocketmqHome"}


def _keys(answer: RemotingCommand) -> set[str]:
    return set(properties_dict(parse_properties(answer.body.decode())))


async def test_what_apache_left_unanswered(exchanges: list[Exchange], version: str) -> None:
    """One-way registrations, requests cut off by a shutdown, and 9999 to 4.9.7."""
    silent = [exchange for exchange in exchanges if exchange.theirs is None and exchange.ours is not None]
    for exchange in silent:
        assert not exchange.request.is_oneway
        if exchange.request.code == 9999:
            assert exchange.ours is not None
            assert exchange.ours.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert exchange.ours.remark == " request type 9999 not supported"
    codes = sorted(exchange.request.code for exchange in silent)
    assert codes == ([105, 9999] if version == "4.9.7" else [])


async def test_binary_requests_are_answered_in_binary(exchanges: list[Exchange]) -> None:
    serializations = {
        (exchange.request.serialize_type, exchange.ours.serialize_type)
        for exchange in exchanges
        if exchange.ours is not None
    }
    assert serializations == {(0, 0), (1, 1)}
