"""Every command of the README, the quickstart and the doors' pages is run as it stands, and does what the text says.

The ``sh`` blocks of a page run one after the other in a fresh directory, as in a reader's terminals: a block whose last
line starts a server or a worker goes on in the background. Three things differ: the port is a free one, the Python is
the one of the tests, and ``./waystation`` is this checkout's program without the making of .venv, which tests of the
script itself cover.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.broker import free_port
from tests.support.cli import ROOT, Background, environment, open_directory

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVERS = ("./waystation serve", "./waystation worker run", "./waystation demo")
PAGES = ("README.md", "docs/quickstart.md")
DOORS = ("docs/webhooks.md", "docs/agents.md", "docs/legacy-tasks.md")
"""Pages that go on from the README's agent. The first one's first block starts the broker for all."""
EXPECTED = {
    "send my-agent": ["task.submitted", "COMPLETED", "greeting"],
    "hello-1": ["TASK_STATE_COMPLETED", "Hello, ", "curl!"],
    '--task "$TASK"': ["billing@1.4.0: looks good", "COMPLETED"],
    "Last-Event-ID: 4": ["id: 1.5", "TASK_STATE_COMPLETED"],
    'send stock "how many?"': ["INPUT_REQUIRED", "Which SKU?", "waystation send stock --task"],
    "after_sequence_number=4": ['"nextAfter": 6'],
    "message:stream": ["TASK_STATE_SUBMITTED", "TASK_STATE_COMPLETED", '"totalSize":'],
    "--state canceled": ["is CANCELED", "TASK_NOT_CANCELABLE"],
    "examples/client.py": ["get: TASK_STATE_COMPLETED {'review': 'search@3.1.0: looks good'}", "TASK_STATE_CANCELED"],
    '"m-2"': ['5 "task":{"id":"'],
    'tasks watch "$BUSY"': ["turn.ended        WORKING  turn 1", "turn.started      turn 2", "COMPLETED"],
    "--sub worker-1": ["eyJ", "Not found"],
    "ask-1": ['{"message":{', "Will it rain? Perhaps.", "An answer in verse"],
    '"old friend"': ["event: artifact", '"to":"completed"', '"state": "completed"', "Hello, old friend!"],
    '"hook-1"': ["TASK_STATE_COMPLETED", "whsec_", '"destination": "http://127.0.0.1:9090"'],
    "/readyz": ['{"status":"ready","reasons":[]}', 'waystation_task_transitions_total{state="COMPLETED"}'],
}
"""What blocks print, by a piece of their text."""


class Reader:
    """Follows a page: runs its blocks in one directory, variables kept from block to block."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._stack = stack
        self._env = environment(WAYSTATION_PORT=str(self.port), WAYSTATION_URL=self.url)
        (directory / "vars").touch()
        script = directory / "waystation"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n')
        script.chmod(0o755)
        (directory / "examples").symlink_to(ROOT / "examples")

    def run(self, block: str) -> str:
        """Run a block to its end, or until its server is ready; what it printed."""
        block = block.replace("http://127.0.0.1:8080", self.url).replace(".venv/bin/python", sys.executable)
        *before, last = block.strip().splitlines()
        if not last.startswith(SERVERS) or "--once" in last:
            return self._foreground(block)
        server = self._background("\n".join([*before, f"exec {last}"]))
        if last.startswith("./waystation serve"):
            self._wait_ready(server)
        else:
            server.wait_for("Serving until Ctrl-C" if last.startswith("./waystation demo") else "works for")
        return server.output()

    def _foreground(self, block: str) -> str:
        script = f"set -a; . ./vars\n{block}\nexport -p > vars"
        answer = subprocess.run(
            ["/bin/sh", "-euc", script], cwd=self.directory, env=self._env, capture_output=True, text=True,
            timeout=90, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, f"{block}\nended with {answer.returncode}:\n{answer.stdout}{answer.stderr}"
        return answer.stdout + answer.stderr

    def _background(self, script: str) -> Background:
        log = self.directory / f"{time.monotonic_ns()}.log"
        server = Background(["/bin/sh", "-euc", script], self._env, self.directory, log)
        self._stack.callback(self._end, server)
        return server

    def _wait_ready(self, server: Background) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert server.process.poll() is None, server.output()
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"not ready:\n{server.output()}")

    def _end(self, server: Background) -> None:
        code = server.stop()
        assert code == 0, f"a server ended with {code}:\n{server.output()}"


def blocks(page: str) -> list[str]:
    found = BLOCK.findall((ROOT / page).read_text())
    assert found, f"no commands in {page}"
    return found


@pytest.fixture
def reader() -> Iterator[Reader]:
    with open_directory() as directory, ExitStack() as stack:
        yield Reader(directory, stack)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_works(reader: Reader, page: str) -> None:
    for block in blocks(page):
        if block.strip() in ("./waystation test", "./waystation demo"):
            continue  # this very run; test_cli_demo
        follow(reader, block)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_command_of_the_doors_pages_works(reader: Reader) -> None:
    (agent,) = [block for block in blocks("README.md") if "worker run my_agent:answer" in block]
    start, *others = [block for page in DOORS for block in blocks(page)]
    for block in (start, agent, *others):
        follow(reader, block)


def follow(reader: Reader, block: str) -> None:
    """Run a block and look at what it prints."""
    output = reader.run(block)
    assert '"error"' not in output, f"{block}\n{output}"
    for piece, expected in EXPECTED.items():
        if piece in block:
            assert all(text in output for text in expected), f"{block}\n{output}"


def test_every_expectation_belongs_to_a_command() -> None:
    commands = "\n".join(block for page in (*PAGES, *DOORS) for block in blocks(page))
    assert [piece for piece in EXPECTED if piece not in commands] == []


def test_the_pages_links_lead_somewhere() -> None:
    for page in ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))):
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
        for path in re.findall(r"`((?:app|sql)/[\w/.]+\.(?:py|sql))`", text):
            prefix = "app/ledger/" if path.startswith("sql/") else ""
            assert (ROOT / prefix / path).exists(), f"{page} names {path}"


def test_curl_lines_send_the_version_header() -> None:
    for page in (*PAGES, *DOORS):
        for command in re.findall(r"curl (?:.*\\\n)*.*", "\n".join(blocks(page))):
            if "/a2a/" in command or "/rpc" in command:
                assert "A2A-Version: 1.0" in command, command


def test_ci_runs_the_readmes_test_command() -> None:
    assert "./waystation test" in "\n".join(blocks("README.md"))
    assert "./waystation test" in (ROOT / ".ci/run").read_text()
