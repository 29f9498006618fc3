"""Streaming one artifact: ``async with ctx.artifact("report") as report: await report.write("…")``."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from waystation_worker.content import Content, Json, parts_of

CLOSING: Content = ""


class ArtifactWriter:
    """Writes an artifact chunk by chunk: the first chunk replaces (append=false), the others append.

    Leaving the block marks the end: with lastChunk on an empty text part, or on the last chunk if that was written
    with ``last=True``. When the block is left by an exception the artifact stays open, for the next attempt to replace.
    """

    def __init__(self, emit: Callable[[Json], Awaitable[None]], artifact: Json) -> None:
        self._emit = emit
        self._artifact = artifact
        self._begun = False
        self._closed = False

    @property
    def artifact_id(self) -> str:
        return self._artifact["artifactId"]

    async def write(self, content: Content, *, last: bool = False) -> None:
        """Appends ``content`` (see ``Content``) as one chunk; ValueError after the last one."""
        if self._closed:
            raise ValueError(f"artifact {self.artifact_id!r} is closed")
        update: Json = {"artifact": {**self._artifact, "parts": parts_of(content)}, "append": self._begun}
        if last:
            update["lastChunk"] = self._closed = True
        self._begun = True
        await self._emit({"artifactUpdate": update})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            await self.write(CLOSING, last=True)
