"""The at-least-once clients and readers of fault tests: they resend with the same ids until they are answered, and
record what they were told. Called by storm.py and by tests.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx

from tests.fault.history import OK, REFUSED, Frame, Op, Read, Recorder
from tests.fault.logged import RESUME_EXTENSION, TERMINAL
from tests.fault.replicas import Replicas
from tests.fault.wire import LOST, Connection, frames_of

Json = dict[str, Any]


class Client:
    """One client of one agent of tenant a."""

    def __init__(self, replicas: Replicas, agent: str, recorder: Recorder) -> None:
        self._replicas = replicas
        self._door = f"/agents/{agent}/a2a"
        self._recorder = recorder

    async def send(self, plan: Json, *, wait: bool, key: str, task: str = "", hook: str = "") -> Op:
        """Send ``plan`` as a message (work.py), or send it again: then ``wait`` waits for the end of its turn.

        ``hook`` is the URL of a webhook for the new task; ``key`` is its id too.
        """
        message = {"messageId": key, "role": "ROLE_USER", "parts": [{"text": json.dumps(plan)}]}
        message |= {"taskId": task} if task else {}
        begun = self._recorder.begin("send", key=key, task=task)
        configuration: Json = {"returnImmediately": not wait}
        configuration |= {"taskPushNotificationConfig": {"id": key, "url": hook}} if hook else {}
        body = {"message": message, "configuration": configuration}
        answer = await self._replicas.call("POST", f"{self._door}/message:send", body)
        if answer.status_code != 200:
            return self._refused(begun, answer, "UNSUPPORTED_OPERATION")
        found = answer.json()["task"]
        return self._recorder.end(begun, OK, task=found["id"], seq=last_seq(found), state=state(found))

    async def cancel(self, task: str) -> Op:
        begun = self._recorder.begin("cancel", task=task)
        answer = await self._replicas.call("POST", f"{self._door}/tasks/{task}:cancel")
        if answer.status_code != 200:
            return self._refused(begun, answer, "TASK_NOT_CANCELABLE")
        return self._recorder.end(begun, OK, seq=last_seq(answer.json()), state=state(answer.json()))

    def _refused(self, begun: tuple[int, Op], answer: httpx.Response, reason: str) -> Op:
        (info,) = answer.json()["error"]["details"]
        assert (answer.status_code, info["reason"]) == (400, reason), answer.text
        return self._recorder.end(begun, REFUSED, reason=reason, state=short(info["metadata"]["state"]))


class Reader:
    """Follows native streams; each connection may be cut anywhere, the next one is made at another replica."""

    def __init__(self, urls: Sequence[str], headers: Json, rng: random.Random) -> None:
        self.reads: list[Read] = []
        self._urls = urls
        self._headers = headers
        self._rng = rng
        self._name = f"reader-{uuid4().hex[:6]}"

    async def follow(self, task: str, *, cuts: float) -> None:
        """Read the whole log, cutting the connection with probability ``cuts``."""
        cursor, place = 0, self._rng.randrange(len(self._urls))
        while True:
            place += 1
            size = self._rng.randrange(3000) if self._rng.random() < cuts else 2**40
            connection = await self._connect(self._urls[place % len(self._urls)], task, cursor, size)
            if connection.status == 204:
                self.reads.append(Read(self._name, task, cursor, (), closed=True))
                return
            frames = tuple(connection.frames())
            closed = connection.ended and connection.body.endswith(b"\n\n")  # else with retry:, to come back
            cursor += len(frames)
            if frames or closed:
                self.reads.append(Read(self._name, task, cursor - len(frames), frames, closed))
            else:
                await asyncio.sleep(0.1)

    async def _connect(self, url: str, task: str, cursor: int, size: int) -> Connection:
        headers = self._headers | {"Last-Event-ID": f"1.{cursor}"}
        connection = Connection(url, f"/v1/tasks/{task}/events", headers)
        try:
            async with connection:
                await connection.send()
                await connection.head()
                assert connection.status in (200, 204, 503), connection.body
                await connection.read(size)
                if self._rng.random() < 0.5:
                    connection.reset()
        except LOST:
            pass
        return connection


async def log_of(replicas: Replicas, task: str) -> list[Frame]:
    """The log as it is now."""
    answer = await replicas.call("GET", f"/v1/tasks/{task}/events?follow=false")
    assert answer.status_code == 200, answer.text
    return frames_of(answer.content)


async def all_tasks(replicas: Replicas, agent: str) -> list[str]:
    """The ids of all tasks of an agent, also of those that nobody was told of."""
    found: list[str] = []
    token = ""
    while True:
        answer = await replicas.call("GET", f"/v1/tasks?agent={agent}&pageSize=100&pageToken={token}")
        assert answer.status_code == 200, answer.text
        found += [row["task"]["id"] for row in answer.json()["tasks"]]
        token = answer.json()["nextPageToken"]
        if not token:
            return found


async def pending(replicas: Replicas) -> bool:
    """Whether there is a push notification that some webhook has not heard of yet."""
    answer = await replicas.call("GET", "/v1/deliveries?state=pending&pageSize=1")
    assert answer.status_code == 200, answer.text
    return bool(answer.json()["deliveries"])


def state(task: Json) -> str:
    return short(task["status"]["state"])


def short(name: str) -> str:
    return name.removeprefix("TASK_STATE_")


def last_seq(task: Json) -> int:
    return task["metadata"][RESUME_EXTENSION]["lastSeq"]


def has_ended(op: Op) -> bool:
    return op.state in TERMINAL
