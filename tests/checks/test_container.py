"""The container files. No engine runs here: the Dockerfile is read, its build steps are carried out in a directory of
this test's own, and what they install is started as the image would start it."""

import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.broker import BrokerProcess
from tests.support.checkout import ROOT, copy_checkout


def stages() -> list[list[str]]:
    """The Dockerfile's instructions by stage, each on one line."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("FROM "):
            found.append([])
        if found:
            found[-1].append(" ".join(line.split()))
    return found


def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_final_stage_is_slim_and_unprivileged() -> None:
    build, final = stages()
    assert build[0] == "FROM python:${PYTHON}-slim AS build"
    assert final[0] == "FROM python:${PYTHON}-slim"
    text = "\n".join(final)
    assert not re.search(r"\b(apt|apt-get|gcc|pip|curl|wget)\b", text), "no build tools in the final stage"
    assert "useradd --uid 10001" in text
    assert final.index("USER 10001:10001") > max(n for n, line in enumerate(final) if line.startswith(("RUN", "COPY")))
    (health,) = (line for line in final if line.startswith("HEALTHCHECK"))
    assert 'CMD ["python", "-c",' in health
    assert 'ENTRYPOINT ["waystation"]' in final, "exec form: signals reach the broker"


def test_health_check_is_python_that_compiles() -> None:
    (health,) = (line for line in stages()[1] if line.startswith("HEALTHCHECK"))
    code = re.search(r'"-c", "(.*)"\]', health)
    assert code is not None
    compile(code.group(1), "HEALTHCHECK", "exec")


def in_context(name: str) -> bool:
    """Whether .dockerignore lets a file into the build (the last rule that matches wins)."""
    included = True
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.lstrip("!").removeprefix("**/")
        parts = [name, *(str(parent) for parent in Path(name).parents)]
        if any(fnmatch.fnmatch(part, pattern) or fnmatch.fnmatch(Path(part).name, pattern) for part in parts):
            included = rule.startswith("!")
    return included


@pytest.mark.parametrize(
    "name", ["app/main.py", "migrations/env.py", "sdk/python/src/x/__init__.py", "constraints.txt"]
)
def test_build_context_holds_the_product(name: str) -> None:
    assert in_context(name)


@pytest.mark.parametrize(
    "name",
    [".git/config", ".venv/bin/python", ".waystation/dev-secret", ".env", "tests/conftest.py", "app/__pycache__/x"],
)
def test_build_context_holds_no_secret_and_no_ballast(name: str) -> None:
    assert not in_context(name)


def test_compose_publishes_loopback_only() -> None:
    ports = [port for service in compose()["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(str(port).startswith("127.0.0.1:") for port in ports)


def test_compose_starts_in_order_and_waits() -> None:
    services = compose()["services"]
    assert services["postgres"]["healthcheck"]["test"][1] == "pg_isready"
    assert services["migrate"]["command"] == ["migrate"]
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    # `up --wait` takes the end of a one-shot service for a failure unless another depends on its completion.
    assert services["broker"]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_compose_broker_is_confined_and_holds_no_token_secret() -> None:
    broker = compose()["services"]["broker"]
    assert broker["read_only"] is True
    assert broker["cap_drop"] == ["ALL"]
    assert broker["environment"]["WAYSTATION_ALLOW_INSECURE_DEV"] == "1"
    assert broker["environment"]["WAYSTATION_DATABASE_URL"].startswith("postgresql://")
    assert not [name for name in broker["environment"] if "SECRET" in name]
    assert broker["volumes"] == [f"state:{broker['environment']['WAYSTATION_DATA_DIR']}"]


def built(directory: Path) -> Path:
    """Carry out the build stage with ``directory`` in the place of /; the environment it installs."""
    source = directory / "source"
    copy_checkout(source, in_context)
    target = directory / "opt" / "waystation"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("WAYSTATION_", "PYTHON"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    for step in (line.removeprefix("RUN ") for line in stages()[0] if line.startswith("RUN ")):
        command = step.replace("/opt/waystation", str(target))
        answer = subprocess.run(["sh", "-c", command], cwd=source, env=environment, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
    return target


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_image_installs_migrates_and_serves(
    tmp_path: Path, empty_database_url: str, start_broker: Callable[..., BrokerProcess]
) -> None:
    waystation = built(tmp_path) / "bin" / "waystation"
    state = tmp_path / "state"
    state.mkdir()
    environment = {"PATH": os.environ["PATH"], "WAYSTATION_DATABASE_URL": empty_database_url}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    answer = subprocess.run([waystation, "--version"], env=environment, cwd=state, capture_output=True, text=True)
    assert answer.stdout.strip() == f"waystation {version}", answer.stderr
    for arguments in (["migrate"], ["migrate", "--check"]):
        answer = subprocess.run([waystation, *arguments], env=environment, cwd=state, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
    assert not list(state.iterdir()), "migrating writes nothing: the root may be read-only"

    broker = start_broker(empty_database_url, program=[str(waystation)], WAYSTATION_DATA_DIR=str(state))
    assert broker.terminate() == 0
