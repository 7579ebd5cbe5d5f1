"""ConfigProcessor and KvConfigProcessor: the name server's own configuration and its KV configuration."""

from __future__ import annotations

import logging

from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import RequestError
from kourou.namesrv.state import NamesrvState
from kourou.protocol.bodies import KVTable, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from kourou.transport.request import Processor, Request

_log = logging.getLogger(__name__)


class ConfigProcessor:
    """Bodies are properties text both ways."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.get,
        }

    def update(self, request: Request) -> None:
        """318: change keys. In force at once where they can be, and kept in the configuration file."""
        changes = properties_dict(parse_properties(_text(request.body)))
        if not self._state.config.may_change(changes):
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if not changes:
            request.reply()
            return
        config = self._state.config.updated(changes)
        self._state.change_config(config)
        names = ", ".join(sorted(changes))
        _log.info("configuration changed by %s: %s", request.connection.remote_address, names)
        self._state.disk.reply_after(request, lambda: config.persist(changes), config.change_note(changes))

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


class KvConfigProcessor:
    """A change is visible at once, and acknowledged when it is on disk.

    If the write fails, the response says why; the change holds until the next restart. Apache's name server
    reports success then.
    """

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_namespace,
        }

    def put(self, request: Request) -> None:
        """PUT_KV_CONFIG (100)."""
        header = request.header(PutKVConfigRequestHeader)
        self._state.kv_config.put(header.namespace, header.key, header.value)
        self._state.save_kv_and_reply(request)

    def get(self, request: Request) -> None:
        """GET_KV_CONFIG (101); QUERY_NOT_FOUND without a value."""
        header = request.header(GetKVConfigRequestHeader)
        value = self._state.kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            request.reply({}, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        else:
            request.reply(GetKVConfigResponseHeader(value=value))

    def delete(self, request: Request) -> None:
        """DELETE_KV_CONFIG (102)."""
        header = request.header(DeleteKVConfigRequestHeader)
        self._state.kv_config.delete(header.namespace, header.key)
        self._state.save_kv_and_reply(request)

    def get_namespace(self, request: Request) -> None:
        """GET_KVLIST_BY_NAMESPACE (219); QUERY_NOT_FOUND without entries."""
        header = request.header(GetKVListByNamespaceRequestHeader)
        table = self._state.kv_config.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        request.reply(body=encode_body(KVTable(table=table)))
