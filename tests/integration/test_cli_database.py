"""``migrate`` and ``doctor`` on real databases: given by URL, embedded, unmigrated, away, unsafe."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.cli.doctor.database import judge_facts
from app.cli.doctor.report import Level
from app.embedded import EmbeddedPostgres
from app.ledger.probe import DatabaseFacts, probe
from app.settings import Settings
from tests.support.broker import BrokerProcess, free_port
from tests.support.cli import environment, open_directory, waystation
from tests.support.tokens import DEV_SECRET

DEV = {"WAYSTATION_AUTH_MODE": "dev", "WAYSTATION_DEV_SECRET": DEV_SECRET}


def findings(answer: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    """The report of ``doctor --json`` by check."""
    report = json.loads(answer.stdout)
    assert report["ok"] is (answer.returncode == 0)
    assert answer.returncode == (1 if any(each["level"] == "fail" for each in report["findings"]) else 0)
    assert all(each["remedy"] for each in report["findings"] if each["level"] != "ok"), report
    return {each["check"]: each for each in report["findings"]}


def test_migrate_brings_an_empty_database_to_head_and_check_tells(empty_database_url: str, tmp_path: Path) -> None:
    env = environment(DATABASE_URL=empty_database_url)
    before = waystation("migrate", "--check", env=env, cwd=tmp_path)
    assert before.returncode == 1
    assert "waystation migrate" in before.stderr
    for _ in range(2):
        assert waystation("migrate", env=env, cwd=tmp_path).returncode == 0
    after = waystation("migrate", "--check", env=env, cwd=tmp_path)
    assert (after.returncode, after.stderr) == (0, "the schema is at head\n")


def test_serve_refuses_a_schema_that_does_not_fit(empty_database_url: str, tmp_path: Path) -> None:
    env = environment(DATABASE_URL=empty_database_url, **DEV)
    answer = waystation("serve", "--port", "0", env=env, cwd=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert "waystation migrate" in answer.stderr


def test_a_database_that_is_away_is_one_line_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://someone:hunter2@127.0.0.1:{free_port()}/x"
    for command in (["migrate"], ["migrate", "--check"], ["serve"]):
        answer = waystation(*command, env=environment(DATABASE_URL=url, **DEV), cwd=tmp_path)
        assert answer.returncode == 1, answer
        assert len(answer.stderr.splitlines()) == 2, answer.stderr
        assert "hunter2" not in answer.stderr
        assert "doctor" in answer.stderr


def test_doctor_looks_at_a_migrated_database(database_url: str, tmp_path: Path) -> None:
    env = environment(DATABASE_URL=database_url, WAYSTATION_PORT=str(free_port()), **DEV)
    seen = findings(waystation("doctor", "--json", env=env, cwd=tmp_path))
    for check in (
        "python",
        "packages",
        "port",
        "tokens",
        "secret key",
        "version",
        "primary",
        "listen",
        "role",
        "schema",
    ):
        assert seen[check]["level"] == "ok", seen[check]
    assert seen["durability"]["level"] == "fail"  # the test run's server has fsync off
    assert "waystation_app" in seen["role"]["detail"]


def test_doctor_tells_what_is_missing(empty_database_url: str, tmp_path: Path) -> None:
    seen = findings(waystation("doctor", "--json", env=environment(DATABASE_URL=empty_database_url), cwd=tmp_path))
    assert seen["schema"]["level"] == "fail"
    assert seen["tokens"]["level"] == "fail"
    assert "WAYSTATION_ISSUERS" in seen["tokens"]["remedy"]
    assert seen["secret key"]["level"] == "fail"


def test_doctor_asks_the_issuers_for_their_keys(database_url: str, tmp_path: Path) -> None:
    issuer = f"http://127.0.0.1:{free_port()}"
    issuers = [{"issuer": issuer, "audience": "w", "tenantRule": "constant:a", "tenants": ["a"]}]
    env = environment(DATABASE_URL=database_url, WAYSTATION_ISSUERS=json.dumps(issuers))
    seen = findings(waystation("doctor", "--json", env=env, cwd=tmp_path))
    assert seen["tokens"]["level"] == "ok"
    assert seen["issuer keys"]["level"] == "fail"
    assert issuer in seen["issuer keys"]["detail"]


def test_doctor_without_a_reachable_database(tmp_path: Path) -> None:
    url = f"postgresql://someone:hunter2@127.0.0.1:{free_port()}/x"
    answer = waystation("doctor", env=environment(DATABASE_URL=url, **DEV), cwd=tmp_path)
    assert answer.returncode == 1
    assert "fail  connection" in answer.stdout
    assert "try: is PostgreSQL running" in answer.stdout
    assert "hunter2" not in answer.stdout + answer.stderr


def test_doctor_knows_a_broker_on_the_port_from_something_else(broker: BrokerProcess, tmp_path: Path) -> None:
    def port(number: int) -> dict[str, Any]:
        env = environment(WAYSTATION_PORT=str(number), DATABASE_URL=broker.database_url, **DEV)
        return findings(waystation("doctor", "--json", env=env, cwd=tmp_path))["port"]

    own = port(broker.port)
    assert (own["level"], own["detail"]) == ("ok", f"127.0.0.1:{broker.port}: a broker listens there, ready")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = port(silent.getsockname()[1])
    assert (other["level"], "in use" in other["detail"]) == ("warn", True)


def test_doctor_names_a_wrong_setting(tmp_path: Path) -> None:
    seen = findings(waystation("doctor", "--json", env=environment(WAYSTATION_AUTH_MODE="dev"), cwd=tmp_path))
    assert seen["settings"]["level"] == "fail"


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


async def test_doctor_and_migrate_look_at_an_embedded_server_that_is_in_use(place: Path) -> None:
    server = EmbeddedPostgres(place / ".waystation")
    await server.start()
    try:
        env = environment()
        migrated = await asyncio.to_thread(waystation, "migrate", "--embedded", env=env, cwd=place)
        assert migrated.returncode == 0, migrated.stderr
        seen = findings(await asyncio.to_thread(waystation, "doctor", "--dev", "--json", env=env, cwd=place))
    finally:
        await server.stop()
    assert seen["schema"]["level"] == "ok"
    assert seen["durability"]["level"] == "ok"
    assert seen["programs"]["level"] == "ok"
    assert "--embedded" in seen["database"]["detail"]


async def test_facts_are_judged_by_what_a_broker_needs(database_url: str) -> None:
    facts = await probe(database_url)
    assert facts.listens
    assert not facts.read_only
    assert abs(facts.skew) < 1
    good: dict[str, Any] = {name: getattr(facts, name) for name in DatabaseFacts.__dataclass_fields__} | {"fsync": True}
    settings = Settings(pool_size=16)

    def level(check: str, **changed: object) -> Level:
        judged = judge_facts(DatabaseFacts(**(good | changed)), settings)
        return next(finding.level for finding in judged if finding.check == check)

    assert all(finding.level is Level.OK for finding in judge_facts(DatabaseFacts(**good), settings))
    assert level("version", version=140000) is Level.FAIL
    assert level("connection", round_trip=0.5) is Level.WARN
    assert level("primary", read_only=True) is Level.FAIL
    assert level("max_connections", connections=30) is Level.WARN
    assert level("max_connections", connections=10) is Level.FAIL
    assert level("listen", listens=False) is Level.WARN
    assert level("clock", skew=-60.0) is Level.WARN
    assert level("durability", fsync=False) is Level.FAIL
    assert level("durability", synchronous_commit="off") is Level.FAIL
    assert level("role", has_app_role=False, bypasses=True) is Level.FAIL
    assert level("role", has_app_role=False, bypasses=False) is Level.WARN


@pytest.mark.parametrize("setting", ["DATABASE_URL", "WAYSTATION_DATABASE_URL"])
def test_both_names_of_the_database_are_read(empty_database_url: str, tmp_path: Path, setting: str) -> None:
    answer = waystation("migrate", "--check", env=environment(**{setting: empty_database_url}), cwd=tmp_path)
    assert answer.returncode == 1
    assert "no schema yet" in answer.stderr
