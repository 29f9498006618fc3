"""Server-sent events as the native API sends them (resume-contract.md, Frames), read from an open response."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from app.cli.errors import CliError
from app.cli.output import JsonObject

RETRY = "retry"
"""The name of the pseudo frame that carries the server's reconnection time; no event kind is called so."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: ``id`` is the cursor ``<incarnation>.<seq>`` to resume after, ``data`` the event's JSON."""

    id: str
    kind: str
    data: JsonObject

    @property
    def seq(self) -> int:
        """The event's seq; a reset stands at its snapshot's."""
        return int(self.data.get("seq") or self.data.get("snapshotSeq") or 0)


async def read_frames(lines: AsyncIterator[str]) -> AsyncIterator[Frame]:
    """The frames of one connection until it closes. Comments are skipped; ``retry:`` comes as a frame of kind RETRY."""
    fields: dict[str, str] = {}
    async for line in lines:
        if not line:
            if "data" in fields:
                yield _frame(fields)
            fields = {}
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "retry" and value.isdigit():
            yield Frame(id="", kind=RETRY, data={"milliseconds": int(value)})
        elif name == "data" and "data" in fields:
            fields["data"] += "\n" + value
        elif name:
            fields[name] = value


def _frame(fields: dict[str, str]) -> Frame:
    try:
        data: JsonObject = json.loads(fields["data"])
    except ValueError as exc:
        raise CliError(
            "the stream carries something that is not JSON", remedy="does --url point at Waystation?"
        ) from exc
    return Frame(id=fields.get("id", ""), kind=fields.get("event", "message"), data=data)
