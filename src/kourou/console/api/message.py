"""One message: its fields, its body, the groups that consumed it, and what can be done with it."""

from __future__ import annotations

import asyncio
import re
from codecs import getincrementaldecoder
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.admin.connections import consumer_connection
from kourou.admin.messages.message_reading import queue_place
from kourou.admin.messages.message_sending import SentMessage
from kourou.admin.messages.message_track import MessageTrack, track_with_clients
from kourou.admin.messages.message_view import MessageView
from kourou.admin.messages.messages import consume_directly, resend
from kourou.admin.session import Admin, command_line
from kourou.admin.topics import consumer_groups
from kourou.clock import wall_ms
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import (
    Call,
    Change,
    Done,
    Endpoint,
    NoBody,
    NoQuery,
    Plan,
    Raw,
    Read,
    Role,
    TargetOutcome,
)
from kourou.console.message_lookup import message_by_id
from kourou.errors import KourouError, ProtocolError
from kourou.protocol.bodies import CMResult
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.compression import compression_type, is_compressed
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from kourou.wording import counted

SHOWN_BODY_BYTES: Final = 64 * 1024
"""Of a body in the answer; the whole body is a download."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class BodyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """About the body of a message, of which the answer has the beginning."""

    size: int
    """Decompressed."""
    stored_size: int
    compression: str | None
    is_truncated: bool
    """Whether the answer has only the first 64 KiB."""
    kind: Literal["empty", "json", "text", "binary"]
    """As its bytes look."""
    problem: str = ""
    """Why it could not be decompressed; the body is as stored then."""


class MessageDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    message: MessageView
    """As `mqadmin queryMsgById --json` prints it; the body in Base64, cut after 64 KiB."""
    body: BodyInfo
    flags: list[str]
    """The names of the bits of `sys_flag`."""
    previous_offset: int | None
    """The offset before in the same queue; null at its beginning."""
    next_offset: int | None
    commands: list[str]


async def _message(call: Call[NoQuery, NoBody]) -> MessageDetail:
    message = await _found(call)
    view, body = await asyncio.to_thread(_view, message)
    previous, following = await _neighbours(call.admin, message)
    admin, topic = call.admin, message.topic
    place = ["-b", message.broker_name, "-i", str(message.queue_id), "-o", str(message.queue_offset)]
    return MessageDetail(
        message=view,
        body=body,
        flags=_flags(message.sys_flag),
        previous_offset=previous,
        next_offset=following,
        commands=[
            command_line(admin.namesrvs, "queryMsgById", "-t", topic, "-i", message.offset_msg_id),
            command_line(admin.namesrvs, "queryMsgByOffset", "-t", topic, *place),
        ],
    )


async def _found(call: Call[Any, Any]) -> MessageExt:
    return await message_by_id(call.admin, call.path["topic"], call.path["id"])


def _view(message: MessageExt) -> tuple[MessageView, BodyInfo]:
    view = MessageView.of(message)
    problem = ""
    try:
        message.body  # noqa: B018  # decompresses
    except ProtocolError as error:
        problem = str(error)
    body = view.body
    shown = body[:SHOWN_BODY_BYTES]
    info = BodyInfo(
        size=len(body),
        stored_size=len(message.stored_body),
        compression=compression_type(message.sys_flag).name if is_compressed(message.sys_flag) else None,
        is_truncated=len(shown) < len(body),
        kind=_kind(shown, is_whole=len(shown) == len(body)),
        problem=problem,
    )
    return replace(view, body=shown), info


def _kind(body: bytes, *, is_whole: bool) -> Literal["empty", "json", "text", "binary"]:
    if not body:
        return "empty"
    try:
        # The last character may be cut.
        text = getincrementaldecoder("utf-8")().decode(body, final=is_whole)
    except UnicodeDecodeError:
        return "binary"
    if _CONTROLS.search(text):
        return "binary"
    if text.lstrip()[:1] in ("{", "["):
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return "text"
        return "json"
    return "text"


def _flags(sys_flag: int) -> list[str]:
    names = []
    transaction = MessageSysFlag(sys_flag & MessageSysFlag.TRANSACTION_MASK)
    for flag in (
        MessageSysFlag.COMPRESSED,
        MessageSysFlag.MULTI_TAGS,
        MessageSysFlag.BORNHOST_V6,
        MessageSysFlag.STOREHOSTADDRESS_V6,
        MessageSysFlag.NEED_UNWRAP,
        MessageSysFlag.INNER_BATCH,
    ):
        if sys_flag & flag:
            names.append(str(flag.name))
    if transaction:
        names.append(str(transaction.name))
    return names


async def _neighbours(admin: Admin, message: MessageExt) -> tuple[int | None, int | None]:
    """The offsets before and after a message that exist; none if its broker does not answer."""
    try:
        place = await queue_place(admin, message.topic, message.broker_name, message.queue_id)
        low, high = await asyncio.gather(
            admin.api.min_offset(place.address, place.queue), admin.api.max_offset(place.address, place.queue)
        )
    except KourouError:
        return None, None
    previous, following = message.queue_offset - 1, message.queue_offset + 1
    return (previous if previous >= low else None), (following if following < high else None)


async def _body(call: Call[NoQuery, NoBody], request: Request) -> Response:
    message = await _found(call)
    view = await asyncio.to_thread(MessageView.of, message)
    name = re.sub(r"[^\w.-]", "_", f"{message.topic}-{message.msg_id}", flags=re.ASCII)
    headers = {"Content-Disposition": f'attachment; filename="{name}.bin"', "Cache-Control": "no-store"}
    return Response(view.body, headers=headers, media_type="application/octet-stream")


# -- its groups --------------------------------------------------------------------------------------


class GroupOfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message in one group."""

    track: MessageTrack
    clients: list[str]
    """The online members, to which the message can be delivered."""


class GroupsOfMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message in every group that consumes its topic."""

    items: list[GroupOfMessage]
    as_of: int
    commands: list[str]


async def _groups(call: Call[NoQuery, NoBody]) -> GroupsOfMessage:
    message = await _found(call)
    tracks = await track_with_clients(call.admin, message)
    members = await asyncio.gather(*(_members(call.admin, found.consumer_group) for found in tracks))
    words = ["-t", message.topic, "-i", message.msg_id]
    return GroupsOfMessage(
        items=[GroupOfMessage(track=one, clients=ids) for one, ids in zip(tracks, members, strict=True)],
        as_of=wall_ms(),
        commands=[command_line(call.admin.namesrvs, "messageTrack", *words)],
    )


async def _members(admin: Admin, group: str) -> list[str]:
    try:
        connection = await consumer_connection(admin, group)
    except KourouError:
        return []
    return sorted(member.client_id for member in connection.connection_set)


# -- changes -----------------------------------------------------------------------------------------


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client to deliver a message to."""

    group: str
    client_id: str


async def _plan_delivery(call: Call[NoQuery, Delivery]) -> Plan:
    message = await _found(call)
    group, client_id = call.body.group, call.body.client_id
    members = await _members(call.admin, group)
    if not members:
        raise bad_input("group", f"no client of group {group} is online; a message needs one")
    if client_id not in members:
        raise bad_input("client_id", f"{client_id} is not online in group {group}: {', '.join(members)} are")

    async def run() -> Done:
        result = await consume_directly(call.admin, group, client_id, message)
        is_done = result.consume_result in (CMResult.CR_SUCCESS, CMResult.CR_COMMIT)
        problem = "" if is_done else f"{result.consume_result}: {result.remark or 'without a remark'}"
        return Done([TargetOutcome(client_id, is_done, problem)], result)

    words = ["-t", message.topic, "-i", message.offset_msg_id, "-g", group, "-d", client_id]
    return Plan(
        effects=[
            f"Delivers message {message.msg_id} of topic {message.topic} to client {client_id} of group "
            f"{group} and waits for the result of its listener",
            "The offsets of the group do not change, and no message is sent",
        ],
        commands=[command_line(call.admin.namesrvs, "queryMsgById", *words)],
        run=run,
    )


class CopyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a copy is sent."""

    topic: str = ""
    """The topic of the message if empty."""


async def _plan_copy(call: Call[NoQuery, CopyTarget]) -> Plan:
    message = await _found(call)
    target = call.body.topic or message.topic
    if is_system_topic(target) or is_retry_topic(target) or is_dlq_topic(target):
        raise bad_input("topic", f"{target} is written by brokers only; choose a topic of your own")
    route = await call.admin.route(target)
    groups = await consumer_groups(call.admin, target, route)

    async def run() -> Done:
        sent = SentMessage.of(await resend(call.admin, message, topic=target))
        return Done([TargetOutcome(sent.msg_id, True)], sent)

    words = ["-t", target, "-i", message.offset_msg_id, "-s", "true"]
    return Plan(
        effects=[
            f"Sends a copy of message {message.msg_id} to topic {target}, with the same id, tag, keys and "
            "properties",
            f"{counted(len(groups), 'group')} of the topic will receive it"
            + (f": {', '.join(groups)}" if groups else ""),
        ],
        commands=[command_line(call.admin.namesrvs, "queryMsgById", *words)]
        if target == message.topic
        else [],
        run=run,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/messages/{topic}/{id}",
        summary="One message, by offset id, unique id, or position (broker:queue:offset)",
        handler=_message,
        returns=MessageDetail,
    ),
    Raw(
        method="GET",
        path="/messages/{topic}/{id}/body",
        summary="The whole body as a file",
        role=Role.READER,
        respond=_body,
    ),
    Read(
        path="/messages/{topic}/{id}/groups",
        summary="Which groups have consumed a message",
        handler=_groups,
        returns=GroupsOfMessage,
    ),
    Change(
        path="/messages/{topic}/{id}/deliver",
        summary="Deliver a message to one client of a group",
        body=Delivery,
        planner=_plan_delivery,
    ),
    Change(
        path="/messages/{topic}/{id}/copy",
        summary="Send a copy of a message",
        body=CopyTarget,
        planner=_plan_copy,
    ),
)
