"""The server of a run: that of fedgala."""

from fedgala.engines.flower.server import app

__all__ = ["app"]
