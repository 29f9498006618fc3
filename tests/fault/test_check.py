"""The checker can fail: a recorded history that is right is changed in one place, and the broken promise is named."""

import asyncio
from pathlib import Path

import pytest

from tests.fault.check import CHECKS, violations
from tests.fault.conftest import Pair
from tests.fault.history import History
from tests.fault.mutants import MUTANTS
from tests.fault.storm import storm
from tests.support.postgres import run_sync


@pytest.fixture(scope="module")
def recorded(replicas: Pair, tmp_path_factory: pytest.TempPathFactory) -> History:
    """A real history in which everything happens that the mutants change."""
    return run_sync(record(replicas, tmp_path_factory.mktemp("storm")))


async def record(replicas: Pair, directory: Path) -> History:
    async with storm(replicas, directory, seed=1, trouble=0.4, clients=6, readers=3, workers=3) as everybody:
        async with asyncio.timeout(90):
            while not is_rich(await everybody.history()):
                everybody.check_actors()
                await asyncio.sleep(0.5)
        return await everybody.calm()


def is_rich(history: History) -> bool:
    """Whether every mutant finds what it needs."""
    for change in MUTANTS.values():
        try:
            change(history.copy())
        except LookupError:
            return False
    return True


@pytest.mark.timeout(240)
def test_the_history_itself_breaks_no_promise(recorded: History) -> None:
    assert violations(recorded) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(recorded: History, name: str) -> None:
    history = recorded.copy()
    MUTANTS[name](history)
    promise = name.partition("_")[0].upper()
    found = violations(history)
    assert [what for what in found if what.startswith(f"{promise} ")], found


def test_every_check_has_a_mutant() -> None:
    assert {name.partition("_")[0].upper() for name in MUTANTS} == set(CHECKS)
