"""Who a command acts as: a given token, or in dev mode one it mints itself with the shared secret.

The secret is WAYSTATION_DEV_SECRET, else the file ``dev-secret`` in the state directory, which ``serve --dev`` makes at
its first start so that other terminals in the same directory need no set-up. Used by every command that calls a broker.
"""

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from app.auth.tokens import mint_dev
from app.cli.errors import usage
from app.settings import MIN_SECRET_BYTES

CLIENT_SCOPES = ("tasks:read", "tasks:write", "tasks:cancel", "push:write", "agents:read", "agents:admin")
WORKER_SCOPES = ("worker:lease",)
DEFAULT_TENANT = "dev"
SECRET_FILE = "dev-secret"  # noqa: S105 -- the name of a file, not a secret
HOUR = 3600
DAY = 24 * HOUR


def state_dir() -> Path:
    """Where this checkout's own state lives: WAYSTATION_DATA_DIR, else ``.waystation`` in the working directory."""
    return Path(os.environ.get("WAYSTATION_DATA_DIR") or ".waystation")


def dev_secret() -> str | None:
    """The dev mode's shared secret, or None when there is none here."""
    if given := os.environ.get("WAYSTATION_DEV_SECRET"):
        return given
    try:
        return (state_dir() / SECRET_FILE).read_text().strip() or None
    except OSError:
        return None


def make_dev_secret() -> str:
    """The dev secret, made (mode 0600) when there is none yet. Two processes at once end up with the same one."""
    if known := dev_secret():
        return known
    path = state_dir() / SECRET_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{SECRET_FILE}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(secrets.token_hex(MIN_SECRET_BYTES) + "\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text().strip()


def require_dev_secret() -> str:
    """The dev secret; CliError when there is none, or one too short to be safe."""
    secret = dev_secret()
    if secret is None:
        raise usage(
            "no dev secret: tokens can only be minted for a broker in dev mode",
            remedy="set WAYSTATION_DEV_SECRET to the broker's, or run this where `waystation serve --dev` was started",
        )
    if len(secret.encode()) < MIN_SECRET_BYTES:
        raise usage(f"the dev secret has fewer than {MIN_SECRET_BYTES} bytes", remedy="openssl rand -hex 32 makes one")
    return secret


def mint(
    secret: str, *, tenant: str, subject: str, scopes: Sequence[str], agents: Sequence[str] = (), ttl: int = HOUR
) -> str:
    """A dev token signed with ``secret``, valid for ``ttl`` seconds. Raises CliError for a tenant or subject that no
    broker accepts."""
    names, scope = list(agents), " ".join(scopes)
    try:
        return mint_dev(secret, tenant=tenant, subject=subject, scope=scope, agents=names, ttl=ttl, now=time.time())
    except ValueError as exc:
        raise usage(str(exc)) from exc


def client_token(token: str | None, tenant: str) -> str:
    """The token of a client command: the given one, else a fresh dev token of ``tenant``, valid for a day."""
    if token:
        return token
    if dev_secret() is None:
        raise usage(
            "no token",
            remedy="run this where `waystation serve --dev` was started, or give --token or WAYSTATION_TOKEN",
        )
    return mint(require_dev_secret(), tenant=tenant, subject="cli", scopes=CLIENT_SCOPES, ttl=DAY)
