"""The small pure pieces: content, backoff, answers, and finding what a name points at."""

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waystation_worker import Worker, load
from waystation_worker.backoff import CAP_SECONDS, full_jitter, retry_after
from waystation_worker.content import message_of, parts_of
from waystation_worker.lease import Lease

TARGETS = """
from a2a.server.agent_execution import AgentExecutor
from waystation_worker import Worker

class Executor(AgentExecutor):
    async def execute(self, context, event_queue): ...
    async def cancel(self, context, event_queue): ...

instance = Executor()
number = 3
worker = Worker("http://elsewhere", "old")

@worker.agent("mine")
async def handler(ctx): ...

class Callable:
    async def __call__(self, ctx): ...

class Home:
    executor = instance
"""


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module ``sdk_targets`` in the working directory."""
    (tmp_path / "sdk_targets.py").write_text(TARGETS)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("sdk_targets", None)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("text", [{"text": "text"}]),
        (b"\x00\xff", [{"raw": base64.b64encode(b"\x00\xff").decode()}]),
        ({"stock": 3}, [{"data": {"stock": 3}}]),
        ({"url": "https://example.org/a.png", "mediaType": "image/png"}, None),
        ({"text": "a part", "data": "not two at once"}, [{"data": {"text": "a part", "data": "not two at once"}}]),
        (["text", {"n": 1}, 3], [{"text": "text"}, {"data": {"n": 1}}, {"data": 3}]),
    ],
)
def test_parts(content: Any, parts: list[dict[str, Any]] | None) -> None:
    assert parts_of(content) == (parts or [content])


def test_a_message_stays_itself_and_gets_an_id_once() -> None:
    given = {"role": "ROLE_AGENT", "parts": [{"text": "x"}], "metadata": {"k": 1}}
    made = message_of(given)
    assert made == {"messageId": made["messageId"], **given}
    assert message_of(made) == made
    assert message_of("x")["messageId"] != message_of("x")["messageId"]


def test_backoff_is_spread_and_bounded() -> None:
    delays = [full_jitter(failures) for failures in range(1, 200)]
    assert all(0 <= delay <= CAP_SECONDS for delay in delays)
    assert max(delays) > CAP_SECONDS / 2
    assert len(set(delays)) > 150


@pytest.mark.parametrize(
    ("value", "least"),
    [("2", 2.0), ("0", 0.0), ("0.5", 0.5), ("-1", None), ("nan", None), ("1e9", None), ("Wed, 21 Oct 2026", None)],
)
def test_retry_after(value: str, least: float | None) -> None:
    delay = retry_after({"retry-after": value})
    if least is None:
        assert delay is None
    else:
        assert delay is not None
        assert least <= delay < least + 0.1


def test_a_lease_knows_how_long_it_lasts_without_any_clock_of_ours() -> None:
    lease: dict[str, Any] = {
        "leaseId": "l",
        "taskId": "t",
        "contextId": "c",
        "tenant": "a",
        "fence": 1,
        "attempt": 1,
        "turn": 1,
        "expiresAt": "1999-01-01T00:00:30.500Z",
        "message": {},
        "task": {"status": {"state": "TASK_STATE_WORKING", "timestamp": "1999-01-01T00:00:00.500Z"}},
    }
    assert Lease.parse(lease).seconds == 30
    assert Lease.parse(lease | {"task": {}}).seconds is None


@pytest.mark.usefixtures("targets")
@pytest.mark.parametrize("name", ["Executor", "instance", "handler", "Home.executor", "Callable"])
def test_load_makes_a_worker(name: str) -> None:
    worker = load(f"sdk_targets:{name}", agent="x", url="http://127.0.0.1:1", token="t", concurrency=3)
    assert isinstance(worker, Worker)
    assert (worker.agents, worker.url, worker.token, worker.concurrency) == (("x",), "http://127.0.0.1:1", "t", 3)


@pytest.mark.usefixtures("targets")
def test_load_keeps_a_worker_and_says_where_its_broker_is() -> None:
    worker = load("sdk_targets:worker", url="http://127.0.0.1:1", token="new")
    assert (worker.agents, worker.url, worker.token) == (("mine",), "http://127.0.0.1:1", "new")


@pytest.mark.usefixtures("targets")
@pytest.mark.parametrize(
    ("name", "agent", "error", "match"),
    [
        ("sdk_targets", "x", ValueError, "module:attribute"),
        ("sdk_targets:number", "x", ValueError, "is not a Worker"),
        ("sdk_targets:handler", None, ValueError, "name the agent"),
        ("sdk_targets:missing", "x", AttributeError, "missing"),
        ("no_such_module:x", "x", ImportError, "no_such_module"),
    ],
)
def test_load_refuses(name: str, agent: str | None, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        load(name, agent=agent)


@pytest.mark.parametrize("concurrency", [0, 501])
def test_a_worker_holds_no_more_leases_than_one_heartbeat_keeps(concurrency: int) -> None:
    worker = Worker(concurrency=concurrency)

    async def handler(_ctx: object) -> None: ...

    with pytest.raises(ValueError, match="1 to 500"):
        worker.agent("x", concurrency=concurrency or -1)(handler)
