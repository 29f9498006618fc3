"""Finds the embedded server that another process is running. Called by ``waystation migrate`` and ``doctor``."""

from pathlib import Path

from app.embedded.account import choose_account, reachable_home
from app.embedded.binaries import find_binaries
from app.embedded.cluster import DATABASE, SUPERUSER, Cluster, lock
from app.embedded.errors import EmbeddedPostgresError


def running_dsn(data_dir: Path) -> str | None:
    """The superuser's URL of the server on ``data_dir``, None when no living process has it.

    The server is the other process's: it ends when that one does. Raises EmbeddedPostgresError when the directory is
    in use but its server is not ready.
    """
    directory = data_dir.absolute()
    if not (directory / "postgres.lock").exists():
        return None
    try:
        lock(directory).close()
    except EmbeddedPostgresError as in_use:
        account = choose_account()
        cluster = Cluster(reachable_home(directory, account), account, find_binaries())
        port = cluster.ready_port()
        if port is None or not cluster.accepts(port):
            raise in_use
        return f"postgresql://{SUPERUSER}:{cluster.password()}@127.0.0.1:{port}/{DATABASE}"
    return None
