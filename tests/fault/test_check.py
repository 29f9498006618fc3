"""The checker can fail: a recorded history that is right is changed in one place, and the broken promise is named."""

import asyncio
from pathlib import Path

import pytest

from tests.fault.check import CHECKS, violations
from tests.fault.conftest import Pair
from tests.fault.history import History
from tests.fault.mutants import MUTANTS
from tests.fault.storm import storm


def promise(name: str) -> str:
    """The promise that a mutant breaks."""
    return name.partition("_")[0].upper()


def is_rich(history: History) -> bool:
    """Whether every mutant finds what it changes."""
    for change in MUTANTS.values():
        try:
            change(history.copy())
        except LookupError:
            return False
    return True


def found(history: History, name: str) -> list[str]:
    """What the checker has to say of a mutated history."""
    changed = history.copy()
    MUTANTS[name](changed)
    return violations(changed)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_every_mutant_of_a_real_history_is_caught(replicas: Pair, tmp_path: Path) -> None:
    """One test, for the history takes longer than all of its mutants."""
    async with storm(replicas, tmp_path, seed=1, trouble=0.4, clients=6, readers=3, workers=3) as everybody:
        async with asyncio.timeout(120):
            while not is_rich(await everybody.history()):
                everybody.check_actors()
                await asyncio.sleep(0.5)
        history = await everybody.calm()
    assert violations(history) == []
    missed = [name for name in MUTANTS if not any(one.startswith(f"{promise(name)} ") for one in found(history, name))]
    assert missed == []


def test_every_check_has_a_mutant() -> None:
    assert {promise(name) for name in MUTANTS} == set(CHECKS)
