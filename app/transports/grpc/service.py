"""``lf.a2a.v1.A2AService``, made from the operation table: one method per row. Registered by ``grpc.server``."""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from app import metrics, offload
from app.operations.agent_doors import AgentDoor
from app.operations.answers import Answer
from app.operations.registry import OPERATIONS, Operation
from app.operations.subscribe import TaskStream
from app.protocol import strict_json
from app.protocol.models.base import WireModel
from app.transports.a2a import answer_headers
from app.transports.errors import known
from app.transports.gateway import Gateway
from app.transports.grpc import errors
from app.transports.grpc.calls import GrpcCall
from app.transports.grpc.codec import A2A_SERVICE, Codec
from app.transports.grpc.errors import Context
from app.transports.grpc.streams import Streams

SERVICE_NAME: Final = A2A_SERVICE.full_name

_T = TypeVar("_T")


class A2AService:
    """The methods, and what of them is under way."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._streams = Streams(gateway)
        self._under_way: set[asyncio.Future[Any]] = set()

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(SERVICE_NAME, {row.name: self._method(row) for row in OPERATIONS})

    def begin_drain(self) -> None:
        """Streams whose client reads nothing end within 5 s; all others see ``operations.drain``."""
        self._streams.begin_drain()

    async def finish(self, seconds: float) -> None:
        """Wait until nothing is under way, at most ``seconds``. Calls that only have their status to send are not."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=seconds)

    def _method(self, operation: Operation) -> "grpc.RpcMethodHandler[Any, Any]":
        codec = Codec(operation.name)

        async def unary(_messages: object, context: Context) -> bytes:
            call = GrpcCall(self._gateway, operation, codec, context)
            return await self._guarded(call, self._answer(call))

        async def stream(_messages: object, context: Context) -> None:
            call = GrpcCall(self._gateway, operation, codec, context)
            await self._guarded(call, self._stream(call))

        if operation.streaming:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.stream_unary_rpc_method_handler(unary)

    async def _guarded(self, call: GrpcCall, work: Coroutine[Any, Any, _T]) -> _T:
        """What ``work`` returns; what it raises is the call's status."""
        over = asyncio.get_running_loop().create_future()  # not this task, which has the status to send after that
        self._track(over)
        try:
            return await work
        except grpc.aio.BaseError:  # of a call whose client has gone
            raise
        except Exception as error:
            status = errors.status_of(known(error))  # not the error, whose traceback would keep the call in a cycle
        finally:
            over.set_result(None)
        if not call.answered:
            _count(call, errors.code_of(status))
        return await errors.abort(call.context, status)

    def _track(self, work: "asyncio.Future[Any]") -> None:
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)

    async def _answer(self, call: GrpcCall) -> bytes:
        await call.admit()
        door, request = await call.read()
        answer = await self._to_its_end(call, door, request)
        assert isinstance(answer, Answer), "a unary operation gives an Answer"
        size = len(strict_json.dumps(answer.body))
        message = await offload.run(size, lambda: call.codec.encode(answer.body))
        await _announce(call, replayed=answer.replayed, total_capped=answer.total_capped)
        return message

    async def _stream(self, call: GrpcCall) -> None:
        """The operation's first frames are there before anything is sent, so what can fail has failed by then."""
        await call.admit()
        door, request = await call.read()
        with ExitStack() as exits:
            exits.callback(self._gateway.streams.take(call.ctx.caller).release)
            stream = await self._to_its_end(call, door, request)
            assert isinstance(stream, TaskStream), "a streaming operation gives a TaskStream"
            exits.callback(stream.close)
            await _announce(call, replayed=stream.replayed)
            await self._streams.follow(call, stream)

    async def _to_its_end(self, call: GrpcCall, door: AgentDoor, request: WireModel) -> Answer | TaskStream:
        """Run the operation. A client that leaves does not cut it off: a canceled statement costs the ledger more than
        one that ends for nobody, and the operation hears of it (``gone``)."""
        work = call.operation.function(self._gateway.operations, call.ctx, door, request)
        task = asyncio.ensure_future(work)
        self._track(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            call.left = True
            task.add_done_callback(_let_go)
            raise


async def _announce(call: GrpcCall, *, replayed: bool, total_capped: bool = False) -> None:
    """The answer begins: the activated extensions go ahead of it as initial metadata, what is said of the answer itself
    comes behind it as trailing metadata (resume-contract.md, Duplicates)."""
    ahead = answer_headers(call.ctx)
    behind = answer_headers(call.ctx, replayed=replayed, total_capped=total_capped).items() - ahead.items()
    call.context.set_trailing_metadata(_metadata(dict(behind)))
    if ahead:
        await call.context.send_initial_metadata(_metadata(ahead))
    call.answered = True
    _count(call, grpc.StatusCode.OK)


def _metadata(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in headers.items())


def _count(call: GrpcCall, code: grpc.StatusCode) -> None:
    metrics.REQUESTS.labels(f"/{SERVICE_NAME}/{call.operation.name}", "GRPC", code.name).inc()


def _let_go(task: "asyncio.Future[Answer | TaskStream]") -> None:
    """Nobody is left to take the outcome: a stream is closed, an error that should not be is logged."""
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        known(error)
    elif isinstance(stream := task.result(), TaskStream):
        stream.close()
