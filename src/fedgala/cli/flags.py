"""Flags from settings: each setting is ``--section.field``, and common ones have a short name too."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fedgala.config import RunConfig, merge
from fedgala.errors import ConfigError
from fedgala.methods import method_settings
from fedgala.presets import PRESETS
from fedgala.settings import Section, leaves, near
from fedgala.toml import read_toml

WORDS = {"true": True, "yes": True, "false": False, "no": False}


def with_settings(command: Callable[..., None], *others: type[Section]) -> Callable[..., None]:
    """Give `command`, which takes ``settings``, a flag for every setting of a run, and of `others`; typer reads it."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
    settings = [it for kind in (*others, RunConfig) for it in leaves(kind)]
    names = ["_".join(path) for path, _, _ in settings]

    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        command(**values, settings={name: value for name, value in given.items() if value is not None})

    for name, (path, kind, item) in zip(names, settings, strict=True):
        option = typer.Option(
            None,
            *dict.fromkeys(filter(None, (item.metadata["flag"], "--" + ".".join(path)))),
            help=item.metadata["help"] + _default(item.default),
            metavar=_metavar(kind, item.metadata["choices"]),
            show_default=False,
            rich_help_panel="Settings: " + (path[0] if len(path) > 1 else "run"),
        )
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=str | None)
        )
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    return wrapped


def configuration(
    preset: str | None, method: str | None, config: Path | None, settings: Mapping[str, str]
) -> RunConfig:
    """Defaults, under the preset, under the method, under the file, under the flags.

    Raises:
        ConfigError: an unknown preset or method, a bad file, a value that is not allowed.
    """
    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: {near(preset, PRESETS)}")
    named = merge(PRESETS[preset] if preset else {}, method_settings(method))
    nested = merge(named, read_toml(config) if config else {})
    return RunConfig.from_dict(merge(nested, chosen(RunConfig, settings)))


def chosen(kind: type[Section], settings: Mapping[str, str]) -> dict[str, Any]:
    """The nested plain data of a section that flags were given for.

    Raises:
        ConfigError: a value that can't be read.
    """
    nested: dict[str, Any] = {}
    for path, hint, _ in leaves(kind):
        text = settings.get("_".join(path))
        if text is not None:
            value: Any = parse(text, hint, ".".join(path))
            for name in reversed(path):
                value = {name: value}
            nested = merge(nested, value)
    return nested


def parse(text: str, kind: Any, name: str) -> Any:
    """A value of type `kind` from the text of a flag; lists are written with commas, no value as ``none``."""
    if isinstance(kind, types.UnionType):
        if text.lower() == "none":
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if typing.get_origin(kind) is tuple:
        return [parse(part, typing.get_args(kind)[0], name) for part in text.split(",")]
    if kind is str:
        return text
    try:
        return WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        expected = {float: "a number", int: "a whole number", bool: "true or false"}[kind]
        raise ConfigError(f"{name} = {text!r}: expected {expected}") from error


def _default(value: Any) -> str:
    shown = ",".join(f"{part:.4g}" for part in value) if isinstance(value, tuple) else str(value)
    return "" if value in (None, "") else f" (default: {shown.lower() if isinstance(value, bool) else shown})"


def _metavar(kind: Any, choices: Sequence[str]) -> str:
    if choices:
        return "|".join(choices)
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if typing.get_origin(kind) is tuple:
        return "A,B,..." if Ellipsis in typing.get_args(kind) else "FROM,TO"
    return {float: "NUMBER", int: "COUNT", bool: "true|false", str: "TEXT"}[kind]
