"""Mounts the A2A doors of every agent and the readers' native API."""

from fastapi import FastAPI

from app.transports.endpoints import UnknownPath
from app.transports.gateway import Gateway


def mount(app: FastAPI, gateway: Gateway) -> None:
    """Add all routes of the A2A doors and the readers to ``app``, and the answer to unknown paths. No redirects."""
    app.router.redirect_slashes = False
    app.router.default = UnknownPath(gateway)
