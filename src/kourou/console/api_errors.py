"""ApiError, and the HTTP response of each error that an operation may raise."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.console.refusals import are_about_permission, is_about_login, is_about_permission, refusal
from kourou.errors import (
    CallTimeoutError,
    ClientError,
    ConfigError,
    FilterSyntaxError,
    KourouError,
    MessageRefusedError,
    NameRefusedError,
    NoNameServerError,
    NoRouteError,
    RemotingError,
    ResponseError,
)
from kourou.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from kourou.console.endpoints import Done

_log = logging.getLogger(__name__)


class ErrorText(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, for programs and for people."""

    code: str
    message: str
    hint: str = ""
    """What to do next."""


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every response with a status of 400 or above."""

    error: ErrorText
    preview: Any = None
    """With status 409: what the change would do now."""
    outcomes: Any = None
    """Of a change that failed for all of its targets: why, for each."""
    result: Any = None
    """What such a change returned."""


class ApiError(Exception):
    """An operation that ends with an HTTP status of its own."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        message: str,
        hint: str = "",
        *,
        preview: object = None,
        done: Done | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = ErrorAnswer(
            ErrorText(code, message, hint),
            preview,
            done.outcomes if done else None,
            done.result if done else None,
        )


_REFUSED: Final = "refused_by_cluster"
_GRANT: Final = "an administrator of the cluster can grant it to the account"
_NOT_FOUND: Final = {
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.NO_MESSAGE,
    ResponseCode.CONSUMER_NOT_ONLINE,
}


def bad_input(field: str, problem: str) -> ApiError:
    """400: a parameter or a field of the body cannot be used."""
    return ApiError(HTTPStatus.BAD_REQUEST, "bad_input", f"{field}: {problem}")


def refused(words: str) -> ApiError:
    """403: access control of the cluster does not permit it."""
    hint = ""
    if is_about_permission(words):
        hint = _GRANT
    elif is_about_login(words):
        hint = "log out and in again, or ask an administrator of the cluster for an account"
    return ApiError(HTTPStatus.FORBIDDEN, _REFUSED, words, hint)


def unreadable(what: str, problems: Sequence[str]) -> ApiError:
    """404: it was not found, but not everything could be read. 403 if the account may not look for it."""
    if are_about_permission(problems):
        return not_permitted(f"{what} cannot be looked for", problems)
    return not_found(f"{what} was not found where it could be looked for: {'; '.join(problems)}")


def not_permitted(what: str, problems: Sequence[str]) -> ApiError:
    """403: access control does not permit it at these servers."""
    return ApiError(HTTPStatus.FORBIDDEN, _REFUSED, f"{what}: {'; '.join(problems)}", _GRANT)


def not_found(what: str, hint: str = "") -> ApiError:
    """404: there is no such thing in the cluster."""
    return ApiError(HTTPStatus.NOT_FOUND, "not_found", what, hint)


def api_error_of(error: Exception) -> ApiError:
    """The response of an error; one that is not expected is logged and reported as status 500."""
    match error:
        case ApiError():
            return error
        case msgspec.ValidationError() | msgspec.DecodeError():
            return ApiError(HTTPStatus.BAD_REQUEST, "bad_input", str(error))
        case ConfigError() | MessageRefusedError() | NameRefusedError() | FilterSyntaxError():
            return ApiError(HTTPStatus.BAD_REQUEST, "bad_input", str(error))
        case ResponseError():
            return _of_response(error)
        case CallTimeoutError():
            return ApiError(HTTPStatus.GATEWAY_TIMEOUT, "no_answer_in_time", str(error), "try again")
        case NoRouteError():
            return ApiError(HTTPStatus.NOT_FOUND, "no_route", str(error))
        case NoNameServerError() | RemotingError():
            hint = "check that the servers are running and that the console can reach them"
            return ApiError(HTTPStatus.BAD_GATEWAY, "cannot_reach_cluster", str(error), hint)
        case ClientError():
            return ApiError(HTTPStatus.BAD_GATEWAY, "failed", str(error))
        case KourouError():
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", str(error))
    _log.error("a request failed unexpectedly", exc_info=error)
    hint = "the log of the console has the details"
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", f"unexpected {error!r}", hint)


def _of_response(error: ResponseError) -> ApiError:
    if error.code == ResponseCode.TOPIC_NOT_EXIST:
        hint = "check its name; a topic whose brokers are all stopped is not found either"
        return not_found(error.remark, hint)
    if error.code in _NOT_FOUND:
        return not_found(str(error))
    if (words := refusal(error)) is not None:
        return refused(words if not error.address else f"{words} (from {error.address})")
    return ApiError(HTTPStatus.BAD_GATEWAY, _REFUSED, str(error))
