"""The ledger against a model of it (reliability.md, T0): random courses, every step compared.

``WAYSTATION_MODEL_EXAMPLES`` is the number of courses of 50 steps each: 60 by default, 300 in ``make chaos``.
``WAYSTATION_MODEL_SHRINK=1`` looks for the shortest course that fails, which takes up to five minutes.
"""

import asyncio
import os

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from app.ledger import functions
from app.ledger.pool import Database
from tests.integration.ledger.machine import LedgerMachine
from tests.support.postgres import run_sync

EXAMPLES = int(os.environ.get("WAYSTATION_MODEL_EXAMPLES", "60"))
MUTANT_EXAMPLES = 100
PHASES = [Phase.generate, Phase.shrink] if os.environ.get("WAYSTATION_MODEL_SHRINK") else [Phase.generate]


def run_machine(dsn: str, examples: int) -> None:
    """Raises what the first wrong step raised. Ten examples to a seed, always the same seeds: after its first ten
    Hypothesis would spend five of six on variations of one that it has just run."""
    options = settings(
        max_examples=10, stateful_step_count=50, phases=PHASES, database=None, deadline=None,
        report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        db = runner.run(Database.connect(dsn, size=1))

        def machine() -> LedgerMachine:
            return LedgerMachine(runner, db)

        try:
            for ten in range(examples // 10):
                run_state_machine_as_test(seed(ten)(machine), settings=options)  # pyright: ignore[reportArgumentType]
        finally:
            runner.run(db.close())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_ledger_does_what_the_model_does(database_url: str) -> None:
    run_machine(database_url, EXAMPLES)


MUTANTS = {
    "appends without a fence": ("IF t.fence <> p_fence OR is_terminal(t.state) THEN", "IF is_terminal(t.state) THEN"),
    "heartbeats without a fence": ("AND s.fence = p_fences[i] AND s.worker IS NOT NULL", "AND s.worker IS NOT NULL"),
    "no new fence after a release": (
        "CASE WHEN p_lease IS NULL THEN fence", "CASE WHEN coalesce(p_lease, 'release') = 'release' THEN fence"
    ),
    "fence before duplicates": ("seqs := events_resent(t, p_ids, p_hashes);", "seqs := NULL;"),
    "another body is a duplicate": ("IF v_hash <> p_hash THEN", "IF false THEN"),
    "another message is a duplicate": ("IF r.request_hash <> p_hash OR", "IF"),
    "a completed turn ends the task": ("t.turns_queued > 0 AND p_state IN (3, 6)", "false"),
    "the last queued turn goes first": ("SELECT min(turn_no) INTO v_turn", "SELECT max(turn_no) INTO v_turn"),
    "an end without its event": ("'status', p_at, p_actor_kind, p_actor, p_body);", "'', p_at, '', '', '{}');"),
    "closed artifacts take chunks": ("ELSIF v_closed THEN", "ELSIF false THEN"),
    "a canceled task is leased again": ("IF q.signal = 'cancel' THEN", "IF false THEN"),
    "a release counts as an attempt": ("t.attempt - v_release::int", "t.attempt"),
    "one attempt too many": ("t.attempt >= t.max_attempts", "t.attempt > t.max_attempts"),
    "the reaper does not look again": ("q.worker IS NOT NULL AND q.lease_until < v_now", "q.worker IS NOT NULL"),
    "a gap in the seqs": ("SET last_seq = v_seq, status_at", "SET last_seq = v_seq + 1, status_at"),
}  # fmt: skip
"""Faults: a piece of ``app/ledger/sql`` and what stands there instead."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("right", "wrong"), MUTANTS.values(), ids=[name.replace(" ", "-") for name in MUTANTS])
def test_a_fault_of_the_ledger_is_found(database_url: str, right: str, wrong: str) -> None:
    sources = [source for source in functions.sources() if right in source]
    assert len(sources) == 1, "the faulted piece has changed: give the mutant its new form"

    async def install() -> None:
        admin = await asyncpg.connect(database_url)
        await admin.execute(sources[0].replace(right, wrong))
        await admin.close()

    run_sync(install())  # in this test's own database
    with pytest.raises((AssertionError, asyncpg.PostgresError)):
        run_machine(database_url, MUTANT_EXAMPLES)
