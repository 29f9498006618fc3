"""The embedded PostgreSQL: real server programs on a local data directory, for demo, development and tests."""

from app.embedded.attach import running_dsn
from app.embedded.binaries import Binaries, find_binaries
from app.embedded.errors import EmbeddedPostgresError
from app.embedded.supervisor import EmbeddedPostgres

__all__ = ["Binaries", "EmbeddedPostgres", "EmbeddedPostgresError", "find_binaries", "running_dsn"]
