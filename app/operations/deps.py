"""What every operation needs, made once per process by ``app.main``."""

import asyncio
import random
from dataclasses import dataclass, field

from app.auth.handles import Handles
from app.auth.vault import Vault
from app.ledger.directory import AgentDirectory
from app.ledger.pool import Database
from app.ledger.wakeups import Wakeups
from app.net.egress import Egress
from app.operations.poll_floor import PollFloor
from app.operations.served_cards import ServedCards
from app.operations.shared_reads import SharedReads
from app.operations.tenant_limit import TenantLimit

LOOKUPS_PER_TENANT = 16
"""Of ``net.names.LOOKUPS_AT_ONCE``: names served slowly on purpose delay their own tenant only."""


@dataclass
class Operations:
    """``handles`` seals list cursors, ``vault`` credentials; ``egress`` calls out. Times are in seconds.

    ``poll_seconds`` is the floor under wake-ups: a waiter reads again after that long whatever it has heard; ``floor``
    does so for all streams at once, and is started with the other loops.
    """

    db: Database
    wakeups: Wakeups
    directory: AgentDirectory
    handles: Handles
    cards: ServedCards
    blocking_wait_seconds: float = 30
    poll_seconds: float = 2
    egress: Egress = field(kw_only=True)
    vault: Vault = field(kw_only=True)
    drain: asyncio.Event = field(default_factory=asyncio.Event)
    reads: SharedReads = field(init=False)
    floor: PollFloor = field(init=False)
    lookups: TenantLimit = field(init=False)

    def __post_init__(self) -> None:
        self.reads = SharedReads(self.db)
        self.floor = PollFloor(self.db, self.poll_seconds)
        self.lookups = TenantLimit(LOOKUPS_PER_TENANT, "Too many webhook URLs are being looked up")

    def begin_drain(self) -> None:
        """Ask every waiting call and stream to end; they are woken at once."""
        self.drain.set()
        self.wakeups.bump_all()

    def poll_after(self) -> float:
        """How long to wait for a wake-up before reading anyway; jittered, so that readers do not march in step."""
        return self.poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter, not a secret
