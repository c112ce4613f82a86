"""A configuration as a TOML file, which gives it again."""

import json
import tomllib
from pathlib import Path
from typing import Any

from fedgala.config import RunConfig
from fedgala.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """The nested data of a TOML file.

    Raises:
        ConfigError: the file can't be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config {path} is not TOML: {error}") from error


def to_toml(config: RunConfig) -> str:
    """A TOML file that gives `config` again; settings without a value are left out, as TOML has no null."""
    data = config.to_dict()
    lines = [f"{name} = {_toml(value)}" for name, value in data.items() if not isinstance(value, dict)]
    for section, values in data.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]"]
            lines += [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it: as JSON does, but characters beyond the basic plane stand for themselves."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
