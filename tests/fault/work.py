"""A worker in a process of its own, to be killed and stopped at will: ``python -m tests.fault.work CONFIG``.

It speaks the workers' protocol of native-api.md by hand, one lease at a time, asks each replica in turn until it is
answered, and records what it does (history.py). What to do with a task stands in its message, a JSON object: ``chunks``
(how many), ``end`` (the last state), ``pause`` (seconds after each chunk), and for the very first lease of the task
``first``: retry, release, die, or sleep (past the lease); or ``defy``: write until the lease is lost, then try
everything under it again and again. Standard library only, so that it is there in a moment.
"""

import http.client
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from tests.fault.history import OK, REFUSED, Recorder

Json = dict[str, Any]
PAUSE_SECONDS = 0.1
LOST = ("LEASE_LOST", "TASK_TERMINAL")


class Broker:
    """The replicas, asked in turn until one gives an answer that is not 503."""

    def __init__(self, urls: list[str], token: str) -> None:
        self._places = [(address.hostname or "", address.port) for address in map(urlsplit, urls)]
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._open: dict[int, http.client.HTTPConnection] = {}
        self._at = random.randrange(len(urls))

    def post(self, path: str, body: Json) -> tuple[int, Json]:
        """Status and JSON of the answer."""
        data = json.dumps(body)
        if random.random() < 0.2:
            self._at += 1
        while True:
            at = self._at % len(self._places)
            try:
                connection = self._open.setdefault(at, http.client.HTTPConnection(*self._places[at], timeout=30))
                connection.request("POST", path, data, self._headers)
                response = connection.getresponse()
                content = response.read()
                if response.status != 503:
                    return response.status, json.loads(content)
            except (OSError, http.client.HTTPException):
                self._open.pop(at).close()
            self._at += 1
            time.sleep(PAUSE_SECONDS)


class Worker:
    def __init__(self, urls: list[str], token: str, agent: str, worker: str, history: str) -> None:
        self._broker = Broker(urls, token)
        self._agent = agent
        self._id = worker
        self._recorder = Recorder(Path(history), worker)
        self._written = 0

    def work(self) -> None:
        """For ever."""
        while True:
            lease = self._claim()
            if lease is not None:
                self._written = 0
                plan = json.loads(lease["message"]["parts"][0]["text"])
                if plan.get("defy"):
                    self._defy(lease)
                else:
                    self._execute(lease, plan)

    def _claim(self) -> Json | None:
        begun = self._recorder.begin("claim")
        body = {"workerId": self._id, "max": 1, "waitSeconds": 2, "claimId": uuid4().hex}
        status, answer = self._broker.post(f"/v1/agents/{self._agent}/leases", body)
        assert status == 200, answer
        for lease in answer["leases"]:
            self._recorder.end(
                begun, OK, task=lease["taskId"], fence=lease["fence"], turn=lease["turn"],
                attempt=lease["attempt"], seq=lease["lastSeq"],
            )  # fmt: skip
            return lease
        self._recorder.end(begun, OK)
        return None

    def _execute(self, lease: Json, plan: Json) -> None:
        first = plan.get("first") if lease["fence"] == 1 else None
        for number in range(plan["chunks"]):
            events = [chunk(number)] if random.random() < 0.5 else [chunk(number), status("WORKING")]
            if not self._write(lease, *events):
                self._write(lease, status("COMPLETED"))  # must be refused as well
                return
            if first and self._leave(lease, first):
                return
            first = None
            if random.random() < 0.3:
                self._heartbeat(lease)
            time.sleep(plan.get("pause", 0))
        self._write(lease, status(plan["end"]))

    def _leave(self, lease: Json, how: str) -> bool:
        """Leave the lease; whether it is over."""
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "sleep":
            time.sleep(2.5)
            return False
        self._give_back(lease, how)
        return True

    def _defy(self, lease: Json) -> None:
        number = 0
        while self._write(lease, chunk(number)):
            number += 1
            time.sleep(0.05)
        while True:
            for event in (
                chunk(0),
                chunk(1),
                status("WORKING"),
                status("INPUT_REQUIRED"),
                status("COMPLETED"),
                reply(),
            ):
                self._write(lease, event)
            self._heartbeat(lease)
            self._give_back(lease, "release")
            self._give_back(lease, "retry")
            time.sleep(0.05)

    def _write(self, lease: Json, *events: Json) -> bool:
        """Whether the batch was accepted; its events are marked here."""
        marks = [f"{lease['taskId']}.{lease['fence']}.{self._written + n}" for n in range(len(events))]
        self._written += len(events)
        for event, mark in zip(events, marks, strict=True):
            mark_event(event, mark, lease)
        begun = self._recorder.begin("write", task=lease["taskId"], fence=lease["fence"], marks=marks)
        status_code, answer = self._broker.post(f"/v1/leases/{lease['leaseId']}/events", {"events": list(events)})
        if status_code == 200:
            self._recorder.end(
                begun, OK, seqs=answer["seqs"], seq=answer["lastSeq"], state=short(answer["state"]),
            )  # fmt: skip
            return not answer["leaseEnded"]
        self._refused(begun, status_code, answer)
        return False

    def _give_back(self, lease: Json, how: str) -> None:
        begun = self._recorder.begin(how, task=lease["taskId"], fence=lease["fence"])
        body = {"error": "not now", "delaySeconds": 0} if how == "retry" else {}
        status_code, answer = self._broker.post(f"/v1/leases/{lease['leaseId']}/{how}", body)
        if status_code == 200:
            self._recorder.end(begun, OK, seq=answer["lastSeq"], state=short(answer["state"]))
        else:
            self._refused(begun, status_code, answer)

    def _heartbeat(self, lease: Json) -> None:
        begun = self._recorder.begin("heartbeat", task=lease["taskId"], fence=lease["fence"])
        status_code, answer = self._broker.post("/v1/leases/heartbeat", {"leaseIds": [lease["leaseId"]]})
        assert status_code == 200, answer
        (result,) = answer["results"]
        outcome = OK if result["ok"] else REFUSED
        self._recorder.end(begun, outcome, reason=result.get("reason", ""), state=short(result.get("state") or ""))

    def _refused(self, begun: Any, status_code: int, answer: Json) -> None:
        (info,) = answer["error"]["details"]
        assert status_code == 409, answer
        assert info["reason"] in LOST, answer
        seq = info["metadata"].get("terminalSeq")
        self._recorder.end(
            begun, REFUSED, reason=info["reason"], state=short(info["metadata"]["state"]),
            terminal_seq=None if seq is None else int(seq),
        )  # fmt: skip


def chunk(number: int) -> Json:
    part: Json = {"text": f"chunk {number} " + "ü\u2028" * random.randrange(40)}
    return {"artifactUpdate": {"artifact": {"artifactId": "", "parts": [part]}, "append": number > 0}}


def status(state: str) -> Json:
    message: Json = {"role": "ROLE_AGENT", "parts": [{"text": state}]}
    return {"statusUpdate": {"status": {"state": f"TASK_STATE_{state}", "message": message}}}


def reply() -> Json:
    return {"message": {"role": "ROLE_AGENT", "parts": [{"text": "a direct reply"}]}}


def mark_event(event: Json, mark: str, lease: Json) -> None:
    """Where logged.py looks for it. Each lease has an artifact of its own, so that a chunk never meets another's."""
    event["producerEventId"] = mark
    if "artifactUpdate" in event:
        artifact = event["artifactUpdate"]["artifact"]
        artifact["artifactId"] = f"out-{lease['fence']}"
        artifact["parts"][0]["metadata"] = {"mark": mark}
    else:
        (event.get("message") or event["statusUpdate"]["status"]["message"])["messageId"] = mark


def short(state: str) -> str:
    return state.removeprefix("TASK_STATE_")


if __name__ == "__main__":
    Worker(**json.loads(sys.argv[1])).work()
