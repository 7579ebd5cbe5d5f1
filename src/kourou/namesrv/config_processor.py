"""ConfigProcessor: the name server's own configuration, read and changed while it runs."""

from __future__ import annotations

import logging

from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import RequestError
from kourou.namesrv.state import NamesrvState
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request import Processor, Request

_log = logging.getLogger(__name__)


class ConfigProcessor:
    """Bodies are properties text both ways."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: Request) -> None:
        """318: change keys. In force at once where they can be, and kept in the configuration file."""
        changes = properties_dict(parse_properties(_text(request.body)))
        if self._state.config.black_list & changes.keys():
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if not changes:
            request.reply()
            return
        config = self._state.config.updated(changes)
        self._state.change_config(config)
        names = ", ".join(sorted(changes))
        _log.info("configuration changed by %s: %s", request.connection.remote_address, names)
        self._state.disk.reply_after(request, lambda: config.persist(changes))

    def get(self, request: Request) -> None:
        """319: every key with its value."""
        request.reply(body=self._state.config.to_properties().encode())


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the body is not UTF-8 at byte {error.start}"
        ) from error
