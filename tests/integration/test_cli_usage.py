"""The command line without a broker: help, versions, tokens, and one line with a remedy when it cannot go on."""

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.auth.caller import Caller
from app.auth.keys import KeyStore
from app.auth.tokens import TokenVerifier
from app.cli.identity import dev_secret, make_dev_secret
from app.settings import Settings
from tests.support.broker import free_port
from tests.support.cli import environment, here, waystation
from tests.support.tokens import DEV_SECRET

Command = Callable[..., tuple[int, str, str]]
COMMANDS = ("serve", "migrate", "demo", "token", "agents", "send", "tasks", "worker", "doctor", "version")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """``command(*arguments, NAME="value", …)``: exit code, stdout and stderr with these environment variables."""

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        answer = here(*arguments, env=environment(**variables), cwd=tmp_path)
        return answer.returncode, answer.stdout, answer.stderr

    return run


def test_help_lists_every_command(tmp_path: Path) -> None:
    answer = waystation("--help", env=environment(), cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert all(command in answer.stdout for command in COMMANDS), answer.stdout


def test_version_as_option_and_as_command(tmp_path: Path) -> None:
    short = waystation("--version", env=environment(), cwd=tmp_path)
    assert (short.returncode, short.stdout.split()[0]) == (0, "waystation")
    long = waystation("version", "-o", "json", env=environment(), cwd=tmp_path)
    facts = json.loads(long.stdout)
    assert short.stdout.strip().endswith(facts["waystation"])
    assert facts["python"].startswith("3.")


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        (["tasks", "get"], "Missing argument", "waystation tasks get --help"),
        (["nosuch"], "No such command", "waystation --help"),
        (["serve", "--port", "x"], "--port", "waystation serve --help"),
        (["serve"], "no database", "DATABASE_URL"),
        (["migrate"], "no database", "--embedded"),
        (["agents", "list"], "no token", "--token"),
        (["tasks", "list", "--token", "x", "--state", "dead"], "not a task state", "completed"),
        (["tasks", "list", "--token", "x", "--url", "ftp://h"], "not an http(s) URL", "--url http"),
        (["agents", "add", "x", "--token", "x", "--card", "nosuch.json"], "cannot read nosuch.json", None),
        (["agents", "add", "x", "--token", "x", "--body", "a.json", "--public-card"], "--body is the whole", "file"),
        (["send", "x", "hi", "--token", "x", "--data", "{"], "--data is not JSON", None),
        (["token", "mint"], "no dev secret", "WAYSTATION_DEV_SECRET"),
        (["worker", "run", "nosuch:thing", "--agent", "x"], "nosuch", "module:attribute"),
        (["worker", "run", "json:loads"], "name the agent", "--agent"),
    ],
)
def test_wrong_use_is_one_line_with_a_remedy(
    command: Command, arguments: list[str], error: str, remedy: str | None
) -> None:
    code, stdout, stderr = command(*arguments)
    lines = stderr.splitlines()
    assert (code, stdout) == (2, ""), stderr
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert len(lines) == (1 if remedy is None else 2), lines
    assert remedy is None or remedy in lines[1]


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"WAYSTATION_AUTH_MODE": "dev"}, "AUTH_MODE=dev needs WAYSTATION_DEV_SECRET"),
        ({"WAYSTATION_AUTH_MODE": "dev", "WAYSTATION_DEV_SECRET": "short"}, "WAYSTATION_DEV_SECRET"),
        (
            {"WAYSTATION_AUTH_MODE": "dev", "WAYSTATION_DEV_SECRET": DEV_SECRET, "WAYSTATION_HOST": "0.0.0.0"},
            "loopback only",
        ),
        ({"WAYSTATION_POOL_SIZE": "many"}, "WAYSTATION_POOL_SIZE"),
        ({"WAYSTATION_ISSUERS": "not json"}, "issuers"),
    ],
)
def test_wrong_settings_are_named(command: Command, variables: dict[str, str], error: str) -> None:
    code, _, stderr = command("serve", **variables)
    assert code == 2, stderr
    assert error in stderr.splitlines()[0]
    assert len(stderr.splitlines()) <= 2
    assert DEV_SECRET not in stderr
    assert "short" not in stderr


def test_two_databases_are_one_too_many(command: Command) -> None:
    code, _, stderr = command("serve", "--embedded", DATABASE_URL="postgresql://127.0.0.1/x")
    assert (code, stderr.splitlines()[0]) == (2, "error: --embedded, but a DATABASE_URL is set too")


def test_no_broker_is_told_in_one_line(command: Command) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, _, stderr = command("agents", "remove", "x", "--token", "t", "--url", url)
    assert code == 1
    assert stderr.startswith(f"error: no broker can be reached at {url}")
    assert "waystation serve" in stderr.splitlines()[1]


async def verified(tmp_path: Path, *arguments: str) -> Caller:
    """What a broker makes of the token that ``token mint`` prints."""
    env = environment(WAYSTATION_DEV_SECRET=DEV_SECRET)
    answer = await asyncio.to_thread(waystation, "token", "mint", *arguments, env=env, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()) == 1
    settings = Settings(auth_mode="dev", dev_secret=SecretStr(DEV_SECRET))
    refused: list[str] = []
    verifier = TokenVerifier(settings, KeyStore([]), time.time, refused.append)
    return await verifier.verify(f"Bearer {answer.stdout.strip()}")


async def test_minted_client_token_is_a_clients(tmp_path: Path) -> None:
    caller = await verified(tmp_path)
    assert (caller.tenant, caller.subject, caller.agents) == ("dev", "cli", frozenset())
    assert {"tasks:read", "tasks:write", "tasks:cancel", "agents:admin"} <= caller.scopes
    assert "worker:lease" not in caller.scopes
    assert 3500 < caller.expires_at - time.time() <= 3600


async def test_minted_worker_token_names_its_agents(tmp_path: Path) -> None:
    caller = await verified(tmp_path, "--tenant", "acme", "--sub", "w1", "--agents", "a, b", "--ttl", "60")
    assert (caller.tenant, caller.subject) == ("acme", "w1")
    assert caller.agents == {"a", "b"}
    assert caller.scopes == {"worker:lease"}
    assert caller.expires_at - time.time() <= 60


async def test_minted_scopes_are_those_asked_for(tmp_path: Path) -> None:
    assert (await verified(tmp_path, "--scope", "tasks:read metrics:read")).scopes == {"tasks:read", "metrics:read"}
    assert (await verified(tmp_path, "--scope", "tasks:*")).scopes == {"tasks:read", "tasks:write", "tasks:cancel"}


@pytest.mark.parametrize("wrong", [["--scope", "tasks:fly"], ["--tenant", "A B"], ["--ttl", "0"], ["--ttl", "100000"]])
def test_a_token_that_no_broker_takes_is_not_minted(command: Command, wrong: list[str]) -> None:
    code, stdout, stderr = command("token", "mint", *wrong, WAYSTATION_DEV_SECRET=DEV_SECRET)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: ")


def test_a_short_dev_secret_is_refused(command: Command) -> None:
    code, _, stderr = command("token", "mint", WAYSTATION_DEV_SECRET="short")
    assert code == 2
    assert "fewer than 32 bytes" in stderr


def test_the_dev_secret_is_made_once_and_only_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WAYSTATION_DEV_SECRET", raising=False)
    monkeypatch.delenv("WAYSTATION_DATA_DIR", raising=False)
    assert dev_secret() is None
    secret = make_dev_secret()
    assert len(secret) >= 32
    assert (make_dev_secret(), dev_secret()) == (secret, secret)
    assert stat.S_IMODE(os.stat(tmp_path / ".waystation/dev-secret").st_mode) == 0o600
    assert sorted(os.listdir(tmp_path / ".waystation")) == ["dev-secret"]


def test_a_token_can_be_minted_where_the_dev_broker_was_started(tmp_path: Path) -> None:
    (tmp_path / ".waystation").mkdir()
    (tmp_path / ".waystation/dev-secret").write_text(DEV_SECRET)
    answer = waystation("token", "mint", env=environment(), cwd=tmp_path)
    assert (answer.returncode, answer.stdout.count(".")) == (0, 2)
