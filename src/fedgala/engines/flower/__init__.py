"""The engine of many machines, on Flower: the same server step and the same client step as on one machine.

Needs the extra ``fedgala[flower]``; nothing outside of this package imports it but the commands ``fedgala deploy``.
`GlobalAlignment` is for Flower apps of one's own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgala.engines.flower.strategy import GlobalAlignment

__all__ = ["GlobalAlignment"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedgala.engines.flower' has no attribute {name!r}")
    from fedgala.engines.flower.strategy import GlobalAlignment  # torch, which a site's client does not wait for

    return GlobalAlignment
