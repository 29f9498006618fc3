"""The client commands against a real broker and a real worker: agents, send, tasks, worker run, exit codes."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.cli import ROOT, Background, background, dev_environment, here, waystation

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HANDLERS = """
from waystation_worker import TaskFailed


async def plain(ctx):
    if ctx.text == "fail":
        raise TaskFailed("cannot do it")
    if ctx.text == "reject":
        await ctx.reject("will not do it")
    if ctx.text == "wait":
        await ctx.canceled.wait()
    async with ctx.artifact("out") as out:
        await out.write("a")
        await out.write("b", last=True)
    return "done: " + ctx.text
"""


@pytest.fixture
def run(broker: BrokerProcess, tmp_path: Path) -> Run:
    """``run(*arguments)``: a command of a client of tenant ``a``, run to its end."""

    def command(*arguments: str, tenant: str = "a", stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return here(*arguments, env=dev_environment(broker.base_url, tenant), cwd=tmp_path, stdin=stdin)

    return command


@pytest.fixture
def worker(run: Run, broker: BrokerProcess, tmp_path: Path) -> Iterator[Background]:
    """The agent ``plain`` and a worker for it, started by the command line."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    assert run("agents", "add", "plain", "--description", "Does it").returncode == 0
    arguments = ("worker", "run", "handlers:plain", "--agent", "plain", "--concurrency", "4")
    env = dev_environment(broker.base_url)
    with background(*arguments, env=env, cwd=tmp_path, log=tmp_path / "worker.log") as process:
        process.wait_for("works for plain")
        yield process


def events(answer: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_agents_are_added_listed_shown_and_removed(run: Run, tmp_path: Path) -> None:
    assert "no agents yet" in run("agents", "list").stderr
    added = run("agents", "add", "one", "--description", "First", "--lease-seconds", "7", "--public-card")
    assert added.returncode == 0, added.stderr
    assert "/agents/one/.well-known/agent-card.json" in added.stdout
    card = {"name": "Two", "description": "Second", "version": "2.0.0", "capabilities": {}, "skills": []}
    (tmp_path / "card.json").write_text(json.dumps(card | {"defaultInputModes": [], "defaultOutputModes": []}))
    assert run("agents", "add", "two", "--card", "card.json", "--share", "b").returncode == 0
    shown = json.loads(run("agents", "show", "one", "-o", "json").stdout)
    assert (shown["card"]["description"], shown["leaseSeconds"], shown["cardVisibility"]) == ("First", 7, "public")
    listed = run("agents", "list", "-o", "ndjson")
    assert [row["card"]["name"] for row in events(listed)] == ["one", "Two"]
    table = run("agents", "list").stdout
    assert "one" in table
    assert "Second" in table
    assert "Two" in run("agents", "list", "-o", "json", tenant="b").stdout
    assert run("agents", "remove", "one").returncode == 0
    gone = run("agents", "show", "one")
    assert (gone.returncode, gone.stderr.splitlines()[0]) == (
        1,
        "error: Not found, or not visible to this token (NOT_FOUND)",
    )
    assert "waystation agents list" in gone.stderr


def test_another_tenants_agent_id_is_taken(run: Run) -> None:
    assert run("agents", "add", "mine").returncode == 0
    taken = run("agents", "add", "mine", tenant="b")
    assert taken.returncode == 1
    assert "AGENT_ID_TAKEN" in taken.stderr


def test_send_waits_and_its_exit_code_is_the_state(run: Run, worker: Background) -> None:
    done = run("send", "plain", "hello", "-o", "json")
    assert done.returncode == 0, done.stderr
    task = json.loads(done.stdout)["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    table = run("tasks", "get", task["id"]).stdout
    assert "done: hello" in table
    assert "artifact out" in table
    assert run("send", "plain", "fail").returncode == 1
    assert run("send", "plain", "reject").returncode == 3
    assert run("send", "plain", "-", stdin="from stdin").stdout.count("done: from stdin") == 1


def test_the_same_message_id_is_the_same_task(run: Run, worker: Background) -> None:
    answers = [run("send", "plain", "once", "--message-id", "m-1", "-o", "json") for _ in range(2)]
    assert len({json.loads(answer.stdout)["task"]["id"] for answer in answers}) == 1
    clash = run("send", "plain", "other", "--message-id", "m-1")
    assert clash.returncode == 1
    assert "IDEMPOTENCY_CONFLICT" in clash.stderr


def test_follow_and_watch_give_every_event_once(run: Run, worker: Background) -> None:
    followed = run("send", "plain", "hello", "--follow", "-o", "ndjson")
    assert followed.returncode == 0, followed.stderr
    seen = events(followed)
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))
    task = seen[0]["task"]["id"]
    assert f"task {task}" in followed.stderr
    watched = run("tasks", "watch", task, "-o", "json")
    assert [event["seq"] for event in json.loads(watched.stdout)] == [event["seq"] for event in seen]
    rest = run("tasks", "watch", task, "--after", "3", "-o", "ndjson")
    assert [event["seq"] for event in events(rest)] == list(range(4, len(seen) + 1))
    nothing = run("tasks", "watch", task, "--after", str(len(seen)))
    assert (nothing.returncode, nothing.stdout) == (0, "")
    lines = run("tasks", "watch", task).stdout.splitlines()
    assert lines[0].split()[:2] == ["1", "task.submitted"]
    assert "COMPLETED" in lines[-1]


def test_watch_exits_as_the_task_ended(run: Run, worker: Background) -> None:
    for text, code in (("fail", 1), ("reject", 3)):
        task = json.loads(run("send", "plain", text, "--no-wait", "-o", "json").stdout)["task"]["id"]
        assert run("tasks", "watch", task).returncode == code
    unknown = run("tasks", "watch", "no-such-task")
    assert unknown.returncode == 5
    assert "NOT_FOUND" in unknown.stderr


def test_cancel_stops_a_task_and_tells_what_won(run: Run, worker: Background) -> None:
    task = json.loads(run("send", "plain", "wait", "--no-wait", "-o", "json").stdout)["task"]["id"]
    canceled = run("tasks", "cancel", task)
    assert canceled.returncode == 0, canceled.stderr
    assert "CANCELED" in canceled.stdout
    assert run("tasks", "watch", task).returncode == 3
    again = run("tasks", "cancel", task)
    assert again.returncode == 1
    assert "TASK_NOT_CANCELABLE" in again.stderr


def test_list_filters_by_agent_state_and_context(run: Run, worker: Background) -> None:
    for text in ("one", "fail"):
        run("send", "plain", text, "--context", f"context-{text}")
    states = [row["state"] for row in events(run("tasks", "list", "-o", "ndjson"))]
    assert states == ["TASK_STATE_FAILED", "TASK_STATE_COMPLETED"]
    failed = events(run("tasks", "list", "--state", "failed", "--agent", "plain", "-o", "ndjson"))
    assert [row["task"]["contextId"] for row in failed] == ["context-fail"]
    assert len(events(run("tasks", "list", "--context", "context-one", "-o", "ndjson"))) == 1
    assert len(events(run("tasks", "list", "--limit", "1", "-o", "ndjson"))) == 1
    assert "COMPLETED" in run("tasks", "list").stdout
    assert "no tasks yet" in run("tasks", "list", tenant="b").stderr
    assert "no tasks like that" in run("tasks", "list", "--state", "rejected").stderr


def test_an_unchanged_executor_asks_and_goes_on(run: Run, broker: BrokerProcess, tmp_path: Path) -> None:
    assert run("agents", "add", "stock").returncode == 0
    arguments = ("worker", "run", "stock_lookup:StockLookup", "--agent", "stock")
    env = dev_environment(broker.base_url)
    with background(*arguments, env=env, cwd=ROOT / "examples", log=tmp_path / "stock.log") as process:
        process.wait_for("works for stock")
        asked = run("send", "stock", "how many?", "--follow", "-o", "ndjson")
        assert asked.returncode == 4, asked.stderr
        task = events(asked)[0]["task"]["id"]
        assert f"waystation send stock --task {task}" in asked.stderr
        again = run("send", "stock", "how many?")
        assert (again.returncode, "waystation send stock --task " in again.stderr) == (4, True), again.stderr
        answered = run("send", "stock", "sku:A", "--task", task, "--follow", "-o", "ndjson")
        assert answered.returncode == 0, answered.stderr
        assert events(answered)[0]["seq"] == events(asked)[-1]["seq"] + 1
        assert "A:3" in run("tasks", "get", task).stdout
        assert process.stop(signal.SIGTERM) == 0


def test_watch_goes_on_across_a_killed_broker(
    run: Run, broker: BrokerProcess, worker: Background, tmp_path: Path
) -> None:
    task = json.loads(run("send", "plain", "wait", "--no-wait", "-o", "json").stdout)["task"]["id"]
    watch = ("tasks", "watch", task, "-o", "ndjson")
    env = dev_environment(broker.base_url)
    with background(*watch, env=env, cwd=tmp_path, log=tmp_path / "watch.log") as watcher:
        watcher.wait_for('"seq":3')
        broker.kill()
        watcher.wait_for("stream interrupted; resuming after 1.")
        broker.start()
        assert run("tasks", "cancel", task).returncode == 0
        assert watcher.process.wait(60) == 3
    seen = [json.loads(line) for line in watcher.output().splitlines() if line.startswith("{")]
    assert [event["seq"] for event in seen] == list(range(1, len(seen) + 1))


def test_a_worker_that_may_not_work_says_so(run: Run, broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    arguments = ("worker", "run", "handlers:plain", "--agent", "nobody")
    env = dev_environment(broker.base_url)
    answer = waystation(*arguments, env=env, cwd=tmp_path)
    assert answer.returncode == 1
    assert "the broker refuses this worker" in answer.stderr
    assert "waystation agents add nobody" in answer.stderr
    scopeless = run("token", "mint").stdout.strip()
    refused = waystation(*arguments, env=env | {"WAYSTATION_TOKEN": scopeless}, cwd=tmp_path)
    assert "waystation token mint --agents nobody" in refused.stderr
    unknown = waystation(*arguments, env=env | {"WAYSTATION_TOKEN": "a.b.c"}, cwd=tmp_path)
    assert "expired or of another broker" in unknown.stderr


def test_a_token_of_another_broker_is_refused_with_a_remedy(run: Run) -> None:
    answer = run("tasks", "list", "--token", "a.b.c")
    assert answer.returncode == 1
    assert "UNAUTHENTICATED" in answer.stderr
    assert "waystation token mint" in answer.stderr


def test_a_missing_scope_is_named(run: Run, broker: BrokerProcess) -> None:
    token = run("token", "mint", "--scope", "tasks:read").stdout.strip()
    answer = run("agents", "add", "x", "--token", token)
    assert answer.returncode == 1
    assert "agents:admin" in answer.stderr
