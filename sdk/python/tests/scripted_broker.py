"""A broker for the SDK's fault tests: a real HTTP server on 127.0.0.1 that speaks the worker API and fails on cue.

It keeps what a ledger would (events once per producerEventId, one holder per lease) in memory, which is enough to
judge a client: the broker's own behaviour is tested on the real one, in tests/integration.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from waystation_worker import Worker

Json = dict[str, Any]
Serving = Callable[[Worker], AbstractAsyncContextManager[asyncio.Event]]
"""What the fixture ``serving`` is: a worker that works inside the block; the event stops it sooner."""
Handling = Callable[..., AbstractAsyncContextManager[asyncio.Event]]
"""The same for one handler."""
Kind = Literal["leases", "heartbeat", "events", "retry", "release"]


@dataclass(frozen=True)
class Fault:
    """What happens to one request: ``cut`` before it is carried out, after it, or in the middle of its answer;
    ``hang``: there is no answer until the client has gone."""

    cut: Literal["before", "after", "middle"] | None = None
    hang: bool = False
    status: int | None = None
    retry_after: float | None = None
    reason: str = "UNAVAILABLE"


@dataclass
class Offered:
    """One lease and all that was done with it."""

    lease: Json
    claim_id: str | None = None
    events: list[Json] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    signal: str | None = None
    ended: str | None = None
    """Why nothing is accepted any more: COMPLETED …, retry, release, or the reason of the loss."""
    error: str | None = None

    def states(self) -> list[str]:
        """The states written, without their prefix."""
        updates = [event["statusUpdate"] for event in self.events if "statusUpdate" in event]
        return [update["status"]["state"].removeprefix("TASK_STATE_") for update in updates]

    def chunks(self) -> list[tuple[str, bool, bool]]:
        """The artifact chunks written: text, append, lastChunk."""
        updates = [event["artifactUpdate"] for event in self.events if "artifactUpdate" in event]
        texts = ["".join(part["text"] for part in update["artifact"]["parts"]) for update in updates]
        flags = [(update.get("append", False), update.get("lastChunk", False)) for update in updates]
        return [(text, *flag) for text, flag in zip(texts, flags, strict=True)]


class ScriptedBroker:
    """``offer`` leases, queue ``faults``, send ``signal`` and ``lose``; read ``requests`` and the leases afterwards."""

    def __init__(self) -> None:
        self.url = ""
        self.leases: dict[str, Offered] = {}
        self.faults: dict[Kind, list[Fault]] = defaultdict(list)
        self.requests: list[tuple[Kind, Json]] = []
        self.refuse_event: Callable[[Json], str | None] = lambda _event: None
        self.draining = False
        """Claims are answered at once, with nothing."""
        self._changed = asyncio.Condition()

    def offer(self, text: str = "hello", *, seconds: float = 30, **fields: Any) -> Offered:
        number = len(self.leases) + 1
        message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
        task_id, turn = f"task-{number}", fields.get("turn", 1)
        now = datetime.now(UTC)
        status = {"state": "TASK_STATE_WORKING", "timestamp": now.isoformat()}
        lease: Json = {
            "leaseId": f"lease-{number}",
            "taskId": task_id,
            "contextId": f"context-{number}",
            "tenant": "a",
            "fence": number * 10,
            "attempt": 1,
            "turn": turn,
            "expiresAt": (now + timedelta(seconds=seconds)).isoformat(),
            "task": {"id": task_id, "contextId": f"context-{number}", "status": status, "history": [message]},
            "message": message,
        } | fields
        offered = self.leases[lease["leaseId"]] = Offered(lease)
        self._wake()
        return offered

    def signal(self, offered: Offered, signal: str) -> None:
        offered.signal = signal
        self._wake()

    def lose(self, offered: Offered, reason: str = "LEASE_LOST") -> None:
        offered.ended = reason
        self._wake()

    async def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        """Waits until a request has made ``condition`` true."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    def count(self, kind: Kind) -> int:
        return sum(1 for each, _ in self.requests if each == kind)

    def _wake(self) -> None:
        self._waker = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            pass

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                body: Json = json.loads(await reader.readexactly(length))
                path = head.split(" ")[1]
                kind: Any = path.rsplit("/", 1)[1]
                self.requests.append((kind, body))
                await self._notify()
                fault = self.faults[kind].pop(0) if self.faults[kind] else Fault()
                if fault.cut == "before":
                    break
                if fault.hang:
                    await self._while_connected(reader, asyncio.Event().wait())
                if fault.status is not None:
                    status, answer = fault.status, _error(fault.status, fault.reason)
                else:
                    status, answer = await self._while_connected(reader, self._carry_out(kind, path, body))
                await self._notify()
                if fault.cut == "after":
                    break
                encoded = _response(status, answer, fault.retry_after)
                writer.write(encoded[: len(encoded) // 2] if fault.cut == "middle" else encoded)
                await writer.drain()
                if fault.cut == "middle":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _while_connected(self, reader: asyncio.StreamReader, work: Coroutine[Any, Any, Any]) -> Any:
        """The work's result; it is canceled when the client has gone, as a long poll is."""
        working, gone = asyncio.create_task(work), asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ConnectionResetError
            return working.result()
        finally:
            working.cancel()
            gone.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)

    async def _carry_out(self, kind: Kind, path: str, body: Json) -> tuple[int, Json]:
        if kind == "leases":
            return await self._claim(body)
        if kind == "heartbeat":
            return await self._heartbeat(body)
        offered = self.leases[path.split("/")[3]]
        if kind == "events":
            return self._append(offered, body["events"])
        if offered.ended not in (None, kind):
            return 409, _error(409, offered.ended)
        offered.ended, offered.error = kind, body.get("error")
        return 200, {}

    async def _claim(self, body: Json) -> tuple[int, Json]:
        if self.draining:
            return 200, {"leases": []}

        def mine() -> list[Offered]:
            return [o for o in self.leases.values() if o.claim_id == body["claimId"] and o.ended is None]

        def free() -> list[Offered]:
            return [o for o in self.leases.values() if o.claim_id is None]

        await self._wait(lambda: bool(mine() or free()), body["waitSeconds"])
        given = mine() or free()[: body["max"]]
        for offered in given:
            offered.claim_id = body["claimId"]
        return 200, {"leases": [offered.lease for offered in given]}

    async def _heartbeat(self, body: Json) -> tuple[int, Json]:
        held = [self.leases[lease_id] for lease_id in body["leaseIds"]]
        await self._wait(lambda: any(o.signal or o.ended for o in held), body["waitSeconds"])
        return 200, {"results": [_beat(offered) for offered in held]}

    def _append(self, offered: Offered, events: list[Json]) -> tuple[int, Json]:
        new = [event for event in events if event["producerEventId"] not in offered.seqs]
        if new and offered.ended is not None:
            return 409, _error(409, offered.ended)
        for event in new:
            if (reason := self.refuse_event(event)) is not None:
                return 400, _error(400, reason)
        for event in new:
            offered.events.append(event)
            offered.seqs[event["producerEventId"]] = len(offered.events)
            state = event.get("statusUpdate", {}).get("status", {}).get("state", "TASK_STATE_WORKING")
            if state != "TASK_STATE_WORKING" or "message" in event:
                offered.ended = state
        return 200, {
            "seqs": [offered.seqs[event["producerEventId"]] for event in events],
            "state": offered.ended or "TASK_STATE_WORKING",
            "lastSeq": len(offered.events),
            "turnEnded": offered.ended is not None,
            "leaseEnded": offered.ended is not None,
            "duplicates": [i for i, event in enumerate(events) if event not in new],
            "signal": offered.signal,
        }


@asynccontextmanager
async def scripted_broker() -> AsyncGenerator[ScriptedBroker]:
    broker = ScriptedBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield broker


def _beat(offered: Offered) -> Json:
    lease_id = offered.lease["leaseId"]
    if offered.ended is None:
        return {"leaseId": lease_id, "ok": True, "expiresAt": "2026-01-01T00:00:00.000Z", "signal": offered.signal}
    reason = offered.ended if offered.ended in {"LEASE_LOST", "TASK_TERMINAL"} else "LEASE_LOST"
    return {"leaseId": lease_id, "ok": False, "reason": reason, "state": "TASK_STATE_WORKING"}


def _error(status: int, reason: str) -> Json:
    reason = reason if reason.isupper() and not reason.startswith("TASK_STATE") else "LEASE_LOST"
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "waystation"}
    return {"error": {"code": status, "status": "X", "message": f"refused: {reason}", "details": [info]}}


def _response(status: int, answer: Json, retry_after: float | None) -> bytes:
    body = json.dumps(answer).encode()
    later = f"Retry-After: {retry_after:g}\r\n" if retry_after is not None else ""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{later}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
