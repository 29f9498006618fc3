"""The gRPC door as the client of doors.py: the same calls and errors, over ``lf.a2a.v1.A2AService``.

``GrpcDoor(broker.grpc_target, agent, token)`` at a broker with ``WAYSTATION_GRPC_PORT``. What protobuf leaves out
on the wire (empty strings and lists, false, 0) is absent from answers; only ListTasks has all its four keys.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2  # noqa: F401 - the details' types, found by name

from tests.contract.doors import ERRORS, OURS, Door, DoorError, Frame, Json

SERVICE = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
RESUME = "https://waystation.dev/ext/resume/v1"
_LIST = {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}


class GrpcStream:
    """An open stream; an end that is not the task's is a DoorError."""

    def __init__(self, door: "GrpcDoor", call: Any) -> None:
        self._door = door
        self.call = call
        self.first: Any = None

    async def next(self, seconds: float = 10) -> Json | None:
        """The next StreamResponse; None at the end."""
        frame = await self.next_frame(seconds)
        return None if frame is None else frame.data

    async def next_frame(self, seconds: float = 10) -> Frame | None:
        """``id`` is the cursor that the resume extension puts into the metadata, None without it."""
        message, self.first = self.first, None
        if message is None:
            message = await self._door.read(self.call, seconds)
        if message is grpc.aio.EOF:
            return None
        data = json_format.MessageToDict(message)
        (content,) = data.values()
        return Frame("", content.get("metadata", {}).get(RESUME, {}).get("lastEventId"), data)

    async def rest(self, seconds: float = 10) -> list[Json]:
        """All that is left, until the server closes."""
        items: list[Json] = []
        while (item := await self.next(seconds)) is not None:
            items.append(item)
        return items


class GrpcDoor(Door):
    """One caller at one agent's gRPC door. ``metadata`` is sent along; ``details`` are the last error's beside its
    ErrorInfo."""

    def __init__(self, target: str, agent: str, token: str, *, options: list[tuple[str, Any]] | None = None) -> None:
        self.name = "grpc"
        self.agent = agent
        self.metadata = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
        self.channel = grpc.aio.insecure_channel(target, options=[("grpc.enable_http_proxy", 0), *(options or [])])
        self.http: Any = self
        self.initial: dict[str, Any] = {}
        self.trailing: dict[str, Any] = {}
        self.details: list[Json] = []

    async def aclose(self) -> None:
        await self.channel.close()

    @property
    def replayed(self) -> bool:
        return self.trailing.get("waystation-replayed") == "true"

    async def call(self, operation: str, params: Json, **headers: str) -> Json:
        """The result of a unary operation. Raises DoorError."""
        row = SERVICE.methods_by_name[operation]
        method = self.channel.unary_unary(
            f"/{SERVICE.full_name}/{operation}", _bytes, GetMessageClass(row.output_type).FromString
        )
        call = method(self.message(operation, params), metadata=self._metadata(headers), timeout=40)
        try:
            answer = json_format.MessageToDict(await call)
        except grpc.aio.AioRpcError as error:
            raise self.refusal(error) from None
        self.initial, self.trailing = dict(await call.initial_metadata()), dict(await call.trailing_metadata())
        return _LIST | answer if operation == "ListTasks" else answer

    @asynccontextmanager
    async def open(self, operation: str, params: Json, **headers: str) -> AsyncIterator[GrpcStream]:
        """An open stream. Raises DoorError when the answer is not one."""
        row = SERVICE.methods_by_name[operation]
        method = self.channel.unary_stream(
            f"/{SERVICE.full_name}/{operation}", _bytes, GetMessageClass(row.output_type).FromString
        )
        call = method(self.message(operation, params), metadata=self._metadata(headers))
        try:
            stream = GrpcStream(self, call)
            stream.first = await self.read(call, 40)
            self.initial = dict(await call.initial_metadata())
            yield stream
        finally:
            call.cancel()

    async def read(self, call: Any, seconds: float) -> Any:
        """The next message of a stream. Raises DoorError."""
        async with asyncio.timeout(seconds):
            try:
                return await call.read()
            except grpc.aio.AioRpcError as error:
                raise self.refusal(error) from None

    def message(self, operation: str, params: Json) -> bytes:
        """The request on the wire, with this door's routing key unless ``params`` name another."""
        kind = GetMessageClass(SERVICE.methods_by_name[operation].input_type)
        return json_format.ParseDict({"tenant": self.agent} | params, kind()).SerializeToString()

    def refusal(self, error: grpc.aio.AioRpcError) -> DoorError:
        """The error, checked whole: everything but the reason follows from the table."""
        self.initial, self.trailing = dict(error.initial_metadata()), dict(error.trailing_metadata())
        raw = self.trailing.get("grpc-status-details-bin")
        if raw is None:  # gRPC itself, before the broker has seen the call
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
            return DoorError("PAYLOAD_TOO_LARGE", error.details() or "", {}, error)
        status = status_pb2.Status.FromString(raw)
        assert (status.code, status.message) == (error.code().value[0], error.details())
        info, *self.details = json_format.MessageToDict(status)["details"]
        assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo", status
        assert error.code().name == ERRORS[info["reason"]][2], status
        assert info["domain"] == ("waystation" if info["reason"] in OURS else "a2a-protocol.org"), status
        return DoorError(info["reason"], status.message, info.get("metadata", {}), error)

    def _metadata(self, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        given = self.metadata | {name.replace("_", "-").lower(): value for name, value in headers.items()}
        return tuple(given.items())


def _bytes(message: bytes) -> bytes:
    return message
