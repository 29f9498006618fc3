"""What a handler gets: the message it answers, and the ways to answer."""

import asyncio
from typing import NoReturn

from waystation_worker.artifact import ArtifactWriter
from waystation_worker.content import Content, Json, message_of, status_event, text_of
from waystation_worker.errors import LeaseLost, TurnEnded
from waystation_worker.held import HeldLease, StopReason


class Context:
    """One turn of one task, as the handler sees it.

    Reports (``progress``, artifacts) return as soon as they are on their way, in order, and wait only when the broker
    is far behind. The calls that end the turn return nothing and do not return at all: they wait until the broker has
    the end in its ledger, then leave the handler by TurnEnded. When the lease is lost the handler is canceled
    (asyncio.CancelledError), and so is every later write; an event that the broker refuses raises BrokerRefused
    from a later write.
    """

    def __init__(self, held: HeldLease) -> None:
        self.lease = held.lease
        self._held = held

    @property
    def task_id(self) -> str:
        return self.lease.task_id

    @property
    def context_id(self) -> str:
        return self.lease.context_id

    @property
    def tenant(self) -> str:
        """Whose task it is: the tenant of the client's verified token."""
        return self.lease.tenant

    @property
    def attempt(self) -> int:
        """1 for the first try of this turn; greater when an earlier one was lost or asked for a retry."""
        return self.lease.attempt

    @property
    def turn(self) -> int:
        """1 for the message that made the task, then one more for each further message."""
        return self.lease.turn

    @property
    def task(self) -> Json:
        """The A2A Task at the moment of the lease; without artifacts and older messages unless asked for."""
        return self.lease.task

    @property
    def message(self) -> Json:
        """The user's message that this turn answers."""
        return self.lease.message

    @property
    def text(self) -> str:
        """The text parts of the message, joined by line ends."""
        return text_of(self.lease.message)

    @property
    def canceled(self) -> asyncio.Event:
        """Set as soon as the handler should stop; ``stop_reason`` says why."""
        return self._held.stopped

    @property
    def stop_reason(self) -> StopReason | None:
        """cancel, interrupt, deadline, lost, drain; None while all is well."""
        return self._held.stop

    async def progress(self, content: Content, *, metadata: Json | None = None) -> None:
        """Reports a WORKING status with ``content`` as its message."""
        await self.emit(status_event("WORKING", content, metadata))

    def artifact(
        self,
        name: str,
        *,
        artifact_id: str | None = None,
        description: str | None = None,
        metadata: Json | None = None,
    ) -> ArtifactWriter:
        """A writer for one artifact of the task, to be used as ``async with``.

        ``artifact_id`` is the name unless given, so another attempt replaces what a lost one has left; a later turn
        that uses the name again replaces it as well.
        """
        artifact: Json = {"artifactId": artifact_id or name, "name": name}
        if description is not None:
            artifact["description"] = description
        if metadata is not None:
            artifact["metadata"] = metadata
        return ArtifactWriter(self.emit, artifact)

    async def complete(self, content: Content | None = None) -> NoReturn:
        """Ends the task as COMPLETED; if another message waits, only this turn (the same as returning content)."""
        await self._end(status_event("COMPLETED", content))

    async def fail(self, content: Content | None = None) -> NoReturn:
        """Ends the task as FAILED, without another attempt (the same as raising TaskFailed)."""
        await self._end(status_event("FAILED", content))

    async def reject(self, content: Content | None = None) -> NoReturn:
        """Ends the task as REJECTED: the agent will not do it."""
        await self._end(status_event("REJECTED", content))

    async def require_input(self, content: Content) -> NoReturn:
        """Ends the turn as INPUT_REQUIRED; the answer comes as the message of the task's next turn."""
        await self._end(status_event("INPUT_REQUIRED", content))

    async def require_auth(self, content: Content) -> NoReturn:
        """Ends the turn as AUTH_REQUIRED."""
        await self._end(status_event("AUTH_REQUIRED", content))

    async def reply(self, content: Content) -> NoReturn:
        """Ends the turn with a direct Message; it must be the only thing that the turn reports."""
        await self._end({"message": message_of(content)})

    async def emit(self, event: Json) -> None:
        """Reports one event in the broker's own form (native-api.md): for what has no call of its own here."""
        self._require_open()
        try:
            await self._held.outbox.put(event)
        except LeaseLost as lost:
            raise asyncio.CancelledError(str(lost)) from lost

    async def flush(self) -> None:
        """Waits until the broker has everything reported so far in its ledger."""
        self._require_open()
        try:
            await self._held.outbox.flush()
        except LeaseLost as lost:
            raise asyncio.CancelledError(str(lost)) from lost

    async def finish(self, event: Json) -> None:
        """Writes an event that ends the turn, in the broker's own form, and returns when it is in the ledger."""
        self._require_open()
        try:
            await self._held.finish(event)
        except LeaseLost as lost:
            raise asyncio.CancelledError(str(lost)) from lost

    @property
    def over(self) -> bool:
        """Nothing more can be reported."""
        return self._held.over

    async def _end(self, event: Json) -> NoReturn:
        await self.finish(event)
        raise TurnEnded

    def _require_open(self) -> None:
        if self._held.stop == "lost":
            raise asyncio.CancelledError("the lease is lost")
        if self._held.over:
            raise TurnEnded
