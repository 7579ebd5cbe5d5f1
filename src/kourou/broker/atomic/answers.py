"""Responses that participants and coordinators have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.errors import RequestError
from kourou.protocol.atomic import AtomicId
from kourou.protocol.codes import ResponseCode
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.protocol.headers.command_header import CommandHeader
    from kourou.transport.request import Request


def check_master(admission: Admission) -> None:
    """RequestError on a slave, which follows the journal of its master."""
    if admission.is_slave:
        raise RequestError(
            ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a slave: atomic publishes need its master"
        )


def decided_error(atomic_id: AtomicId, *, is_commit: bool) -> RequestError:
    """A publish has been decided, and not as the request needs it."""
    if is_commit:
        return RequestError(
            ResponseCode.KOUROU_ATOMIC_COMMITTED, f"atomic publish {atomic_id} is committed already"
        )
    return RequestError(
        ResponseCode.KOUROU_ATOMIC_ROLLED_BACK,
        f"atomic publish {atomic_id} is rolled back: by its program, or since it was not decided in time; "
        "nothing of it is published, publish it again",
    )


def too_old_error(atomic_id: AtomicId) -> RequestError:
    """A publish is so old that its outcome is not known any more."""
    return RequestError(
        ResponseCode.KOUROU_ATOMIC_TOO_OLD,
        f"atomic publish {atomic_id} is too old: newer publishes of this producer have been decided, and its "
        "outcome is not kept",
    )


def answer_put(request: Request, status: PutStatus, header: CommandHeader | None = None) -> None:
    """Answer a request whose record was put."""
    if status.is_durable:
        request.reply(header)
    elif status.is_stored:
        request.error(
            ResponseCode.SYSTEM_BUSY, f"stored, but not confirmed as durable in time ({status.name}): repeat"
        )
    else:
        request.error(status.response_code, status.remark or status.name)
