"""Frozen sections of settings that check themselves: the machinery under `config`.

Each field carries its one line of help and its allowed values. A wrong type or value raises a `ConfigError` that names
the field, the value and what is allowed, whether it came from Python, a TOML file or the command line.
"""

import difflib
import math
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, Self

from fedgala.errors import ConfigError


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: Sequence[str] = (),
    flag: str | None = None,
    identity: bool = True,
) -> Any:
    """A field of a section.

    Args:
        default: its value where nobody says otherwise.
        help: one line, with unit and the paper's symbol.
        low: smallest allowed value.
        high: largest allowed value.
        above: the value must be larger than this.
        choices: the allowed words.
        flag: a short name on the command line beside ``--section.field``.
        identity: whether the value is part of what a run *is*, hence of its hash.
    """
    limits = {"low": low, "high": high, "above": above, "choices": choices}
    return field(default=default, metadata={"help": help, "flag": flag, "identity": identity, **limits})


def near(word: str, allowed: typing.Iterable[str]) -> str:
    """The end of an error message: what was probably meant, or all that is allowed."""
    names = sorted(allowed)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]}?" if close else f"allowed: {', '.join(names)}"


@dataclass(frozen=True)
class Section:
    """A frozen dataclass whose values are checked, and converted from plain data, when it is made."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for item in fields(self):
            value = getattr(self, item.name)
            if is_dataclass(hints[item.name]):
                if not isinstance(value, typing.cast(type, hints[item.name])):
                    kind = typing.cast(type, hints[item.name]).__name__
                    raise ConfigError(
                        f"{self._path(item.name)} = {value!r}: expected a {kind}; from_dict takes plain data"
                    )
            else:
                object.__setattr__(self, item.name, _checked(self._path(item.name), value, hints[item.name], item))
        self.check()

    def check(self) -> None:
        """Refuse combinations of values that make no sense; sections override this."""

    @classmethod
    def _path(cls, name: str) -> str:
        section = cls.__name__.removesuffix("Config").lower()
        return name if section == "run" else f"{section}.{name}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], path: str = "") -> Self:
        """A section from nested plain data; what is not said keeps its default."""
        hints = typing.get_type_hints(cls)
        known = {item.name for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in data.items():
            if name not in known:
                raise ConfigError(f"unknown setting {path}{name}: {near(name, known)}")
            kind = hints[name]
            if is_dataclass(kind):
                if not isinstance(value, Mapping):
                    raise ConfigError(f"{path}{name} = {value!r}: expected a section [{path}{name}] with settings")
                values[name] = typing.cast(type[Section], kind).from_dict(value, f"{path}{name}.")
            else:
                values[name] = value
        return cls(**values)

    def to_dict(self, identity_only: bool = False) -> dict[str, Any]:
        """Nested plain data; with `identity_only`, without what does not change results."""
        out: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Section):
                out[item.name] = value.to_dict(identity_only)
            elif item.metadata["identity"] or not identity_only:
                out[item.name] = list(value) if isinstance(value, tuple) else value
        return out


def leaves(cls: type[Section], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Field[Any]]]:
    """All settings of a section and of those inside it, as (path, type, field)."""
    hints = typing.get_type_hints(cls)
    for item in fields(cls):
        kind = hints[item.name]
        if is_dataclass(kind):
            yield from leaves(typing.cast(type[Section], kind), (*path, item.name))
        else:
            yield (*path, item.name), kind, item


def _checked(path: str, value: Any, hint: Any, item: "Field[Any]") -> Any:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None:
        if type(None) in kinds:
            return None
        raise ConfigError(f"{path} needs a value: {item.metadata['help']}")
    kind = next(k for k in kinds if k is not type(None))
    if typing.get_origin(kind) is tuple:
        return _checked_tuple(path, value, kind, item)
    converted = _convert(path, value, kind)
    _check_limits(path, converted, item.metadata)
    return converted


def _checked_tuple(path: str, value: Any, kind: Any, item: "Field[Any]") -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f"{path} = {value!r}: expected a list")
    args = typing.get_args(kind)
    if Ellipsis not in args and len(value) != len(args):
        raise ConfigError(f"{path} = {value!r}: expected {len(args)} values")
    converted = tuple(_convert(path, entry, args[0]) for entry in value)
    for entry in converted:
        _check_limits(path, entry, item.metadata)
    return converted


def _convert(path: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{path}: a number of {value.bit_length()} bits is too large") from None
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
        raise ConfigError(f"{path} = {value!r}: expected {words[kind]}")
    if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
        raise ConfigError(f"{path} = {value!r}: only text that UTF-8 can hold is allowed, without NUL; rename it")
    return value


def _check_limits(path: str, value: Any, limits: Mapping[str, Any]) -> None:
    if limits["choices"] and value not in limits["choices"]:
        raise ConfigError(f"{path} = {value!r}: {near(value, limits['choices'])}")
    low, high, above = limits["low"], limits["high"], limits["above"]
    wrong = isinstance(value, float) and not math.isfinite(value)
    wrong |= low is not None and value < low
    wrong |= high is not None and value > high
    wrong |= above is not None and value <= above
    if wrong:
        words = (("at least", low), ("above", above), ("at most", high))
        bounds = [f"{word} {bound:g}" for word, bound in words if bound is not None]
        raise ConfigError(f"{path} = {value!r}: must be {' and '.join(bounds) or 'a finite number'}")
