"""From a gRPC call to an operation's arguments: verified token, protocol metadata, one message, its agent.

``grpc.service`` makes one ``GrpcCall`` per call. Access is judged before the message is read, as on the HTTP doors;
that is why all methods are registered as ones that read a stream: on the wire the two are the same.
"""

import asyncio
from dataclasses import replace

import grpc.aio
from starlette.datastructures import Headers

from app import offload
from app.auth.caller import CallContext
from app.errors import ParseError, RequestTimeout
from app.operations.agent_doors import AgentDoor, open_door
from app.operations.registry import Operation
from app.protocol.card import Site
from app.protocol.models import parse
from app.protocol.models.base import WireModel
from app.transports.a2a import negotiated
from app.transports.call_context import BODY_SECONDS, identify, require_any
from app.transports.gateway import Gateway
from app.transports.grpc.codec import Codec
from app.transports.grpc.errors import Context
from app.transports.urls import grpc_site


class GrpcCall:
    """One call. ``ctx`` is there after ``admit``; ``answered``: its answer has begun; ``left``: the client canceled, or
    its deadline passed."""

    __slots__ = ("agent_id", "answered", "codec", "context", "ctx", "gateway", "left", "operation")

    ctx: CallContext

    def __init__(self, gateway: Gateway, operation: Operation, codec: Codec, context: Context) -> None:
        self.gateway = gateway
        self.operation = operation
        self.codec = codec
        self.context = context
        self.agent_id = ""
        self.answered = False
        self.left = False

    async def admit(self) -> None:
        """Raises Unauthenticated, PermissionDenied, Unavailable or InvalidArgument."""
        pairs = ((name, value) for name, value in self.context.invocation_metadata() or () if isinstance(value, str))
        headers = Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])
        self.ctx = await identify(self.gateway, headers, gone=self.gone, site=self.site)
        require_any(self.ctx.caller, (self.operation.scope,))

    async def read(self) -> tuple[AgentDoor, WireModel]:
        """The operation's request, and the agent that its routing key names; without one the default agent.

        Raises NotFound for an agent that the caller must not know of, VersionNotSupported, ExtensionSupportRequired,
        and ParseError or InvalidParams for what is wrong with the message.
        """
        raw = await self._message()
        fields = await offload.run(len(raw), lambda: self.codec.decode(raw))
        self.agent_id = fields.get("tenant", "")
        default = self.gateway.settings.default_agent or ""
        door = await open_door(self.gateway.operations, self.ctx.caller, self.agent_id or default)
        self.ctx = replace(negotiated(self.ctx, door), body_bytes=len(raw))
        return door, parse(self.operation.request, fields)

    async def gone(self) -> bool:
        return self.left

    def site(self) -> Site:
        return grpc_site(self.gateway, self.agent_id)

    async def _message(self) -> bytes:
        """The one message; one that is larger than MAX_BODY_BYTES has been refused by gRPC itself."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                raw = await self.context.read()
        except TimeoutError:
            raise RequestTimeout from None
        if raw is grpc.aio.EOF:
            raise ParseError("The request has no message")
        return raw
