"""A run's configuration as tables: what differs from the defaults first, all of it on demand."""

from typing import Any

from fedgala.config import RunConfig
from fedgala.report.page import details, table
from fedgala.settings import leaves

HEADER = ("setting", "value", "default", "what it is")


def differing(config: RunConfig) -> dict[str, tuple[Any, Any, str]]:
    """The settings that make results what they are and are not at their default."""
    own = {".".join(path) for path, _, item in leaves(RunConfig) if item.metadata["identity"]}
    return {name: row for name, row in settings(config).items() if name in own and row[0] != row[1]}


def settings(config: RunConfig) -> dict[str, tuple[Any, Any, str]]:
    """By dotted name: value, default and meaning of every setting."""
    found = {}
    for path, _, item in leaves(RunConfig):
        value: Any = config
        for name in path:
            value = getattr(value, name)
        found[".".join(path)] = (value, item.default, str(item.metadata["help"]))
    return found


def tables(config: RunConfig) -> str:
    """Both tables as HTML."""
    short, full = (
        table(HEADER, [[name, shown(value), shown(default), help] for name, (value, default, help) in rows.items()])
        for rows in (differing(config), settings(config))
    )
    return short + details(f"all {len(settings(config))} settings", full)


def shown(value: Any) -> str:
    """A value as a reader likes it."""
    if isinstance(value, tuple):
        return ", ".join(shown(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
