"""The tools that judge the source: formatting, lint, types, layers. Each prints its findings when it fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

BIN = Path(sys.executable).parent

TOOLS = {
    "ruff-format": ["ruff", "format", "--check", "--diff", "."],
    "ruff-check": ["ruff", "check", "."],
    "basedpyright": ["basedpyright", "--warnings"],
    "import-linter": ["lint-imports", "--no-cache"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", TOOLS)
def test_tool_is_satisfied(tool: str) -> None:
    program, *arguments = TOOLS[tool]
    answer = subprocess.run(
        [str(BIN / program), *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert answer.returncode == 0, answer.stdout[-20_000:]


def test_layers_hold_for_what_is_forbidden(tmp_path: Path) -> None:
    """The contracts can fail: a transport that reads the ledger, and an asyncpg outside of it, are found."""
    package = tmp_path / "app"
    subprocess.run(["cp", "-r", str(ROOT / "app"), str(package)], check=True)
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (package / "transports" / "wrong.py").write_text("import asyncpg\nfrom app.ledger import rows\n")
    (package / "stray.py").write_text("")
    answer = subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
    )
    assert answer.returncode == 1
    assert "app.transports.wrong -> app.ledger" in answer.stdout
    assert "SQL runs in the ledger only BROKEN" in answer.stdout
    assert "stray" in answer.stdout
