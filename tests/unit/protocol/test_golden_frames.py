"""Every frame recorded from RocketMQ 4.9.7 and 5.5.0: decoded, encoded again, read as typed headers."""

from __future__ import annotations

import pytest

from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode
from kourou.protocol.command import decode_command, decode_ext, decode_head, ext_dict
from kourou.protocol.frame import FrameDecoder, RawFrame
from kourou.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS, ext_fields_of
from tests.golden.frames import VERSIONS, RecordedFrame, recorded_frames

FRAME_COUNTS = {"4.9.7": 6264, "5.5.0": 6312}

# Fields that any request may carry and no typed header knows: credentials, the name of the broker that
# is meant, the mark of a streaming client.
EXTRAS = {"AccessKey", "Signature", "bname", "ReqT"}

# Answers without the fields of their success: sends and recalls that were refused, pulls refused before
# a queue was looked at, an offset that is not there. Clients look at code and remark only.
PULL_ANSWERED = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}
CODES_WITH_HEADER: dict[int, set[ResponseCode]] = {
    RequestCode.PULL_MESSAGE: PULL_ANSWERED,
    RequestCode.LITE_PULL_MESSAGE: PULL_ANSWERED,
    RequestCode.SEND_MESSAGE_V2: {ResponseCode.SUCCESS},
    RequestCode.QUERY_CONSUMER_OFFSET: {ResponseCode.SUCCESS},
    RequestCode.RECALL_MESSAGE: {ResponseCode.SUCCESS},
}


def raw_frame(recorded: RecordedFrame) -> RawFrame:
    (frame,) = FrameDecoder().feed(recorded.frame)
    return frame


def as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_recordings_are_complete(version: str) -> None:
    assert len(recorded_frames(version)) == FRAME_COUNTS[version]


def test_every_frame_decodes_to_what_the_recorder_read(version: str) -> None:
    for recorded in recorded_frames(version):
        command = decode_command(raw_frame(recorded))
        header = recorded.header
        assert (command.code, command.version, command.opaque, command.flag) == (
            header["code"],
            header["version"],
            header["opaque"],
            header["flag"],
        )
        assert LanguageCode(command.language).name == header["language"]
        assert command.remark == header.get("remark")
        fields = header.get("extFields")
        expected = None if fields is None else {name: as_text(value) for name, value in fields.items()}
        assert command.ext_fields == expected
        assert command.is_response == (recorded.type == "response")
        assert command.is_oneway == (recorded.type == "oneway")


def test_all_frames_of_a_recording_come_out_of_one_stream(version: str) -> None:
    stream = b"".join(recorded.frame for recorded in recorded_frames(version))
    decoder = FrameDecoder()
    chunk_bytes = 65_521
    cut = [
        frame
        for start in range(0, len(stream), chunk_bytes)
        for frame in decoder.feed(stream[start : start + chunk_bytes])
    ]
    assert cut == [raw_frame(recorded) for recorded in recorded_frames(version)]
    assert decoder.pending_bytes == 0


def test_frames_written_by_java_encode_to_the_same_bytes(version: str) -> None:
    # Exempt: requests of `raw`, which were made by hand with blanks and in another order of keys.
    for recorded in recorded_frames(version):
        if recorded.who == "raw" and recorded.type != "response":
            continue
        assert decode_command(raw_frame(recorded)).encode() == recorded.frame


def test_frames_made_by_hand_encode_to_the_same_meaning(version: str) -> None:
    by_hand = [r for r in recorded_frames(version) if r.who == "raw" and r.type != "response"]
    assert len(by_hand) == 43
    for recorded in by_hand:
        command = decode_command(raw_frame(recorded))
        (again,) = FrameDecoder().feed(command.encode())
        assert decode_command(again) == command


def test_every_request_decodes_into_its_typed_header_and_back(version: str) -> None:
    for recorded in recorded_frames(version):
        if recorded.type == "response":
            continue
        serialize_type, header, _ = raw_frame(recorded)
        head = decode_head(serialize_type, header)
        known = {name: text for name, text in ext_dict(head).items() if name not in EXTRAS}
        header_type = REQUEST_HEADERS.get(recorded.code)
        if header_type is None:
            # A request without a header of its own carries nothing else, or the table has a gap.
            assert known == {}, recorded.header
            continue
        fields = ext_fields_of(decode_ext(head, header_type))
        # SEND_MESSAGE and SEND_MESSAGE_V2 do know the broker's name.
        fields.pop("bname", None)
        assert fields == known, recorded.header


def test_every_answer_decodes_into_its_typed_header_and_back(version: str) -> None:
    for recorded in recorded_frames(version):
        if recorded.type != "response":
            continue
        command = decode_command(raw_frame(recorded))
        header_type = RESPONSE_HEADERS.get(recorded.request_code)
        if header_type is None:
            assert not command.ext_fields, recorded.header
        elif command.code in CODES_WITH_HEADER.get(recorded.request_code, set(ResponseCode)):
            assert ext_fields_of(command.header(header_type)) == (command.ext_fields or {})
