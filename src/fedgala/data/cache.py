"""What is kept between runs, and where: decoded pictures, indices of archives, results of checks.

All of it can be made again from the data, so anything damaged or unwritable here costs time only.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any

from fedgala.data.listing import reason
from fedgala.errors import ConfigError, DataError

if sys.platform != "win32":
    import fcntl

STORES, KINDS = "stores", ("stores", "archives", "checks")
META = "meta.json"


@dataclass(frozen=True)
class Kept:
    """One set of decoded pictures in the cache."""

    key: str
    name: str
    pictures: int
    domains: int
    side: int  # pixels
    size: int  # bytes
    written: float  # seconds since 1970


def default_cache() -> Path:
    """``$FEDGALA_CACHE``, else ``$XDG_CACHE_HOME/fedgala``, else ``~/.cache/fedgala``.

    Raises:
        ConfigError: there is no home folder, and none of the two is set.
    """
    if chosen := os.environ.get("FEDGALA_CACHE"):
        return Path(os.path.expanduser(chosen))
    base = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    if base.parts[:1] == ("~",):  # as in a container whose user has no name
        raise ConfigError("there is no home folder to keep pictures in: set FEDGALA_CACHE to a folder for them")
    return base / "fedgala"


def digest(*values: object) -> str:
    """One short name for all of `values`, which are told apart by their `repr`."""
    total = blake2b(digest_size=16)
    for value in values:
        total.update(repr(value).encode("utf-8", "backslashreplace") + b"\n")
    return total.hexdigest()


def recall(kind: str, key: str, make: Callable[[], Any], cache: Path | None = None) -> Any:
    """What `make` once returned for `key`, through JSON; a damaged or unwritable cache only means to make it again."""
    place = (cache or default_cache()) / kind / f"{key}.json"
    with suppress(OSError, ValueError):
        check, _, body = place.read_text(encoding="ascii").partition("\n")
        if check == digest(body):
            return json.loads(body)
    body = json.dumps(make())
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(f".{token_hex(8)}")
        draft.write_text(f"{digest(body)}\n{body}", encoding="ascii")
        draft.replace(place)
    return json.loads(body)


def list_cache(cache: Path | None = None) -> list[Kept]:
    """The decoded pictures that are kept, newest first; half-written ones and damaged ones are not told."""
    found = []
    for place in ((cache or default_cache()) / STORES).glob("[!.]*/"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            meta = json.loads((place / META).read_text(encoding="utf-8"))
            pictures = sum(count for _, count in meta["domains"])
            size = sum(file.stat().st_size for file in place.iterdir())
            written = (place / META).stat().st_mtime
            found.append(Kept(place.name, meta["name"], pictures, len(meta["domains"]), meta["canvas"], size, written))
    return sorted(found, key=lambda kept: -kept.written)


def clear_cache(cache: Path | None = None, keys: tuple[str, ...] = ()) -> int:
    """Delete all that is kept, or the decoded pictures whose key begins so; the number of bytes freed.

    Raises:
        ConfigError: nothing has such a key.
        DataError: the cache can't be written.
    """
    root = cache or default_cache()
    wanted = [kind for kind in map(root.joinpath, KINDS) if kind.exists()]
    if keys:
        wanted = [place for word in keys for place in (root / STORES).glob("[!.]*/") if place.name.startswith(word)]
        if not wanted:
            raise ConfigError(f"the cache holds nothing named {', '.join(keys)}: `fedgala data cache list` names all")
    with naming_write_errors(root):
        held = sum(file.stat().st_size for place in wanted for file in place.rglob("*"))
        for place in wanted:
            shutil.rmtree(place)
    return held


@contextmanager
def naming_write_errors(place: Path) -> Iterator[None]:
    """OSError as a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"the image cache '{place}' cannot be written ({reason(error)}): make room or allow writing there, or set "
            "FEDGALA_CACHE to another folder"
        ) from error


@contextmanager
def staging(stores: Path) -> Iterator[Path]:
    """A directory to write a store in, locked while this process lives, gone afterwards unless it was renamed.

    Those that dead processes left are deleted first. A lock tells the dead from the living across containers too, where
    a process number would not; all is done under a lock on `stores`, lest a directory be found before it is locked.
    """
    stores.mkdir(parents=True, exist_ok=True)
    stage = stores / f".stage-{token_hex(8)}"
    with ExitStack() as held:
        with _locked(stores, wait=True):
            for leftover in stores.glob(".stage-*"):
                with _locked(leftover) as dead:
                    if dead:
                        shutil.rmtree(leftover, ignore_errors=True)
            stage.mkdir()
            held.enter_context(_locked(stage))
            held.callback(shutil.rmtree, stage, ignore_errors=True)
        yield stage


@contextmanager
def _locked(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Whether `folder` is now locked: it is not where another process locks it, or the file system has no locks."""
    if sys.platform == "win32":
        yield False
        return
    with ExitStack() as held:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
