"""The client of a run: that of fedgala."""

from fedgala.engines.flower.client import app

__all__ = ["app"]
