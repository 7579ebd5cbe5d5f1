"""KvConfigProcessor: the KV configuration, read and changed."""

from __future__ import annotations

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


class KvConfigProcessor:
    """A change is seen at once, and answered when it is on disk.

    When the disk refuses, the answer says why; the change holds until the next restart. Apache's
    name server answers success then.
    """

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_namespace,
        }

    def put(self, request: Request) -> None:
        """100."""
        header = request.header(PutKVConfigRequestHeader)
        self._state.kv_config.put(header.namespace, header.key, header.value)
        self._state.save_kv_and_reply(request)

    def get(self, request: Request) -> None:
        """101."""
        header = request.header(GetKVConfigRequestHeader)
        value = self._state.kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            request.reply({}, code=ResponseCode.QUERY_NOT_FOUND, remark=remark)
        else:
            request.reply(GetKVConfigResponseHeader(value=value))

    def delete(self, request: Request) -> None:
        """102."""
        header = request.header(DeleteKVConfigRequestHeader)
        self._state.kv_config.delete(header.namespace, header.key)
        self._state.save_kv_and_reply(request)

    def get_namespace(self, request: Request) -> None:
        """219."""
        header = request.header(GetKVListByNamespaceRequestHeader)
        table = self._state.kv_config.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        request.reply(body=encode_body(KVTable(table=table)))
