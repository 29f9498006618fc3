"""Installs the SQL functions (``app/ledger/sql``), all in one transaction, when they are not those of this build.

Called by ``migrate``. A signature that the release before still calls must be kept in a file of its own until the
release after.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import asyncpg

SQL = Path(__file__).parent / "sql"

LOCK: LiteralString = "SELECT pg_advisory_xact_lock(hashtext('waystation functions'))"
INSTALLED: LiteralString = "SELECT functions FROM meta"
REMEMBER: LiteralString = "UPDATE meta SET functions = $1"
OURS: LiteralString = """
SELECT 'DROP FUNCTION ' || p.oid::regprocedure AS drop FROM pg_proc p
 WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = ANY($1)"""


def sources() -> Iterator[str]:
    """The files' texts, in the order they are installed."""
    for path in sorted(SQL.glob("*.sql")):
        yield path.read_text("utf-8")


def digest() -> str:
    """Tells one build's functions from another's."""
    return hashlib.sha256("\0".join(sources()).encode()).hexdigest()


async def install(dsn: str) -> bool:
    """Make the database's functions those of this build; False when they are already. Old and new are never mixed.

    Raises OSError or asyncpg's errors (also when the login is not the owner).
    """
    connection = await asyncpg.connect(dsn, timeout=5, command_timeout=60)
    try:
        async with connection.transaction():
            await connection.execute(LOCK)
            if await connection.fetchval(INSTALLED) == digest():
                return False
            names = re.findall(r"^CREATE OR REPLACE FUNCTION (\w+)\(", "\n".join(sources()), re.MULTILINE)
            for row in await connection.fetch(OURS, names):  # a changed result type cannot be replaced
                await connection.execute(row["drop"])
            for source in sources():
                await connection.execute(source)
            await connection.execute(REMEMBER, digest())
            return True
    finally:
        await connection.close()
