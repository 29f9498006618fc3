"""The workers' routes of ``/v1``: leases, heartbeat, events, retry, release (native-api.md, Workers).

Mounted by ``app.main``. Access is judged first: the scope by the endpoint, the agent by the caller's ``agents`` and
tenant.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.errors import InvalidArgument, NotFound
from app.execution.claim_loop import Want
from app.execution.lease_view import HeldLease
from app.execution.leasing import Leasing
from app.execution.session import Sessions
from app.execution.worker_events import MAX_EVENTS
from app.protocol import strict_json
from app.protocol.models import parse
from app.transports.call_context import Call
from app.transports.endpoints import Endpoint
from app.transports.native.connected import while_connected

SCOPE = ("worker:lease",)
MAX_DAYS_SECONDS = 30 * 86400.0
MAX_ERROR_CHARACTERS = 4096
_DAY = 86400.0

JsonObject = dict[str, Any]


class _Request(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class LeaseRequest(_Request):
    """``waitSeconds`` holds the request until there is a lease; a repeat with the same ``claimId`` answers the same."""

    worker_id: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,128}$")]
    max: Annotated[int, Field(ge=1, le=100, strict=True)] = 1
    wait_seconds: Annotated[float, Field(ge=0, le=60, strict=True)] = 20
    lease_seconds: Annotated[float, Field(ge=1, le=_DAY, strict=True)] | None = None
    claim_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    task_view: Literal["light", "full"] = "light"


class HeartbeatRequest(_Request):
    """``waitSeconds`` holds the answer until a lease gets a signal or is lost; only the start extends the leases."""

    lease_ids: Annotated[list[str], Field(min_length=1, max_length=500)]
    extend_seconds: Annotated[float, Field(gt=0, le=_DAY, strict=True)] | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=20, strict=True)] = 0


class RetryRequest(_Request):
    """``error`` is shown in the status when the attempts are used up; what is longer than 4,096 characters is cut."""

    error: Annotated[str, Field(min_length=1)]
    delay_seconds: Annotated[float, Field(ge=0, le=MAX_DAYS_SECONDS, strict=True)] | None = None


class ReleaseRequest(_Request):
    delay_seconds: Annotated[float, Field(ge=0, le=MAX_DAYS_SECONDS, strict=True)] | None = None


_EVENTS_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["events"],
    "properties": {
        "events": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_EVENTS,
            "items": {
                "type": "object",
                "properties": {
                    "producerEventId": {"type": "string", "maxLength": 256},
                    "statusUpdate": {"type": "object"},
                    "artifactUpdate": {"type": "object"},
                    "message": {"type": "object"},
                },
            },
        }
    },
}


class WorkerRoutes:
    """The handlers, bound to this process's leasing and sessions."""

    def __init__(self, leasing: Leasing, sessions: Sessions) -> None:
        self._leasing = leasing
        self._sessions = sessions

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                "POST", "/v1/agents/{agent}/leases", SCOPE, self.lease, "leaseTasks", "Lease tasks (long poll)",
                tags=("workers",), request=LeaseRequest,
            ),
            Endpoint(
                "POST", "/v1/leases/heartbeat", SCOPE, self.heartbeat, "heartbeat", "Keep leases, hear signals",
                tags=("workers",), request=HeartbeatRequest,
            ),
            Endpoint(
                "POST", "/v1/leases/{lease_id}/events", SCOPE, self.events, "appendEvents",
                "Write events, all or nothing", tags=("workers",), request=_EVENTS_SCHEMA,
            ),
            Endpoint(
                "POST", "/v1/leases/{lease_id}/retry", SCOPE, self.retry, "retryLease", "Give a failed attempt back",
                tags=("workers",), request=RetryRequest,
            ),
            Endpoint(
                "POST", "/v1/leases/{lease_id}/release", SCOPE, self.release, "releaseLease",
                "Give a lease back, the attempt not counted", tags=("workers",), request=ReleaseRequest,
            ),
        )  # fmt: skip

    async def lease(self, call: Call) -> Response:
        agent = await self._sessions.agent(call.caller, call.path("agent"))
        if agent.deleted:
            raise NotFound
        request = parse(LeaseRequest, await call.json(), error=InvalidArgument)
        want = Want(request.worker_id, request.max, request.lease_seconds, request.claim_id)
        granted = await while_connected(
            call.request,
            self._leasing.lease(agent.agent_id, want, wait_seconds=request.wait_seconds, view=request.task_view),
            undo=lambda late: self._leasing.give_back(late.claimed),
        )
        return _json({"leases": granted.shown})

    async def heartbeat(self, call: Call) -> Response:
        request = parse(HeartbeatRequest, await call.json(), error=InvalidArgument)
        results = await while_connected(
            call.request,
            self._sessions.heartbeat(
                call.caller,
                request.lease_ids,
                extend_seconds=request.extend_seconds,
                wait_seconds=request.wait_seconds,
            ),
            undo=lambda _: None,
        )
        return _json({"results": results})

    async def events(self, call: Call) -> Response:
        held = await self._held(call)
        body = await call.json()
        events = cast("JsonObject", body).get("events") if isinstance(body, dict) else None
        return _json(await self._sessions.append(held, events, size=call.body_bytes))

    async def retry(self, call: Call) -> Response:
        held = await self._held(call)
        request = parse(RetryRequest, await call.json(), error=InvalidArgument)
        error = request.error[:MAX_ERROR_CHARACTERS]
        return _json(await self._sessions.retry(held, error=error, delay_seconds=request.delay_seconds))

    async def release(self, call: Call) -> Response:
        held = await self._held(call)
        body = await call.json()
        request = parse(ReleaseRequest, {} if body is None else body, error=InvalidArgument)
        return _json(await self._sessions.release(held, delay_seconds=request.delay_seconds))

    async def _held(self, call: Call) -> HeldLease:
        """The path's lease, judged before the body is read. Raises NotFound."""
        return await self._sessions.open(call.caller, call.path("lease_id"))


def _json(body: JsonObject) -> Response:
    return Response(strict_json.dumps(body), media_type="application/json")
