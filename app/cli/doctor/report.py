"""What a check answers, and how all answers are shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.text import Text

from app.cli.output import console, print_json, printable


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. ``remedy`` says what to do; a finding that is ok has none."""

    check: str
    level: Level
    detail: str
    remedy: str | None = None


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Level.OK, detail)


def warn(check: str, detail: str, remedy: str) -> Finding:
    return Finding(check, Level.WARN, detail, remedy)


def fail(check: str, detail: str, remedy: str) -> Finding:
    return Finding(check, Level.FAIL, detail, remedy)


def judge(good: bool, check: str, detail: str, remedy: str, *, otherwise: Level = Level.FAIL) -> Finding:
    """ok when ``good``, else the worse level with its remedy."""
    return ok(check, detail) if good else Finding(check, otherwise, detail, remedy)


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print the report: one line a finding, or ``{"ok": bool, "findings": […]}``."""
    worst = [finding for finding in findings if finding.level is Level.FAIL]
    if as_json:
        print_json({"ok": not worst, "findings": [asdict(finding) for finding in findings]})
        return
    screen = console()
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Text(f"{finding.level.value:<5} ", style=STYLES[finding.level])
        line.append(f"{finding.check:<{width}}  {printable(finding.detail)}", style="default")
        screen.print(line, soft_wrap=True)
        if finding.remedy:
            screen.print(Text(f"{'':<{width + 8}}try: {printable(finding.remedy)}", style="dim"), soft_wrap=True)
    warnings = sum(finding.level is Level.WARN for finding in findings)
    screen.print(f"\n{len(findings)} checks, {_count(warnings, 'warning')}, {_count(len(worst), 'failure')}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
