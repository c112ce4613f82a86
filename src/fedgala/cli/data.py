"""Commands about pictures: what is there, what it looks like, where to get it, one file to take along.

What needs torch is imported where it is used: asking a second time what is in a folder takes a fraction of its import.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedgala.data.cache import clear_cache, default_cache, list_cache
from fedgala.data.catalog import CATALOG, EMBEDDED, Entry, entry_of
from fedgala.data.check import Check
from fedgala.data.check import check as check_pictures
from fedgala.data.listing import counted, printable, some
from fedgala.data.resolve import resolve
from fedgala.errors import ConfigError, FedgalaError
from fedgala.report.tables import table

if TYPE_CHECKING:
    from fedgala.cli.progress import Plain

app = typer.Typer(no_args_is_help=True, help="Pictures, before training: check, show, pack, fetch, cache.")
cache_app = typer.Typer(no_args_is_help=True, help="Decoded pictures that are kept for later runs.")
app.add_typer(cache_app, name="cache")

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="folder or archive of pictures, hf:OWNER/NAME, or shapes", show_default=False),
]
Size = Annotated[int, typer.Option(help="longest side of a stored picture, pixels; 0 keeps pictures as they are")]
_WIDE, _LINES = 12, 20  # classes that fit beside each other; files named one by one
_UNUSABLE = 2  # exit code


@app.command()
def check(
    data: Data,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    strict: Annotated[bool, typer.Option(help="fail also where something is unreadable, missing or extra")] = False,
) -> None:
    """Say which data set this is, what it holds, what is missing or broken, and whether it can be used.

    Reads folders and tar or zip archives, in all layouts that PACS, Office-Home, TerraIncognita, DomainNet and VLCS
    come in, and any other as DOMAIN/CLASS/picture.jpg, or DOMAIN/picture.jpg without labels. Ends with code 0 where
    training can start, and 2 where it cannot.
    """
    if data in EMBEDDED:
        print(f"{data} is embedded and complete; `fedgala data show {data}` shows it")
        return
    try:
        with _watching() as watch:
            found = check_pictures(resolve(data), lambda done, total: watch().decoding(done, total))
    except FedgalaError as error:
        if not as_json:
            raise
        print(json.dumps({"path": data, "usable": False, "complete": False, "problems": [str(error)]}))
        raise typer.Exit(_UNUSABLE) from None
    print(json.dumps(found.to_json()) if as_json else "\n".join(_report(found)))
    if found.problems or (strict and (found.unreadable or found.differences)):
        raise typer.Exit(_UNUSABLE)


@app.command()
def show(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="the picture to write")] = Path("sheet.png"),
    columns: Annotated[int, typer.Option(min=1, max=50, help="pictures per domain and class")] = 6,
    size: Size = 128,
) -> None:
    """Save a contact sheet: a row per class, a group of columns per domain."""
    from fedgala.config import DataConfig
    from fedgala.data.source import open_dataset
    from fedgala.report.sheet import contact_sheet

    with _watching() as watch:
        dataset = open_dataset(DataConfig(path=data, size=size), watch())
    contact_sheet(dataset, output, columns)
    print(output)


@app.command()
def pack(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="the tar to write")],
    size: Size = 128,
    quality: Annotated[int, typer.Option(min=1, max=100, help="of the WebP pictures")] = 90,
) -> None:
    """Write one tar of small WebP pictures to take to another machine, where it is read as it is."""
    from fedgala.config import DataConfig
    from fedgala.data.pack import pack as write_pack
    from fedgala.data.source import open_named

    if output.exists() and Path(data).exists() and output.samefile(data):
        raise ConfigError(f"'{output}' is what would be packed: write to another name, for a pack is smaller for good")
    with _watching() as watch:
        dataset, names = open_named(DataConfig(path=data, size=size), watch())
        write_pack(dataset, names, output, quality, watch().decoding)
    print(f"{output}: {counted(len(names), 'picture')}, {output.stat().st_size / 2**20:.1f} MiB")


@app.command()
def fetch(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="PACS, DomainNet, ...; all without")] = None,
    download: Annotated[bool, typer.Option("--download", help="get its copy on huggingface.co, if it has one")] = False,
) -> None:
    """Say where to get a data set, what to accept for it, and how to lay it out; or, with --download, get it."""
    if download:
        _download(name)
    elif name is None:
        rows = [[it.name, str(len(it.domains)), str(len(it.classes)), it.part_of or ""] for it in CATALOG.values()]
        print(table(["data set", "domains", "classes", "part of"], rows))
    else:
        print("\n".join(_card(entry_of(name))))


@cache_app.command("list")
def cache_list() -> None:
    """What is kept, newest first."""
    kept = list_cache()
    if kept:
        rows = [
            [it.key[:8], it.name, str(it.domains), f"{it.pictures:,}", f"{it.side} px", f"{it.size / 2**20:,.1f} MiB",
             time.strftime("%Y-%m-%d %H:%M", time.localtime(it.written))] for it in kept
        ]  # fmt: skip
        print(table(["key", "data set", "domains", "pictures", "side", "size", "written"], rows))
    print(f"{default_cache()}: {counted(len(kept), 'data set')}, {sum(it.size for it in kept) / 2**20:,.1f} MiB")


@cache_app.command("clear")
def cache_clear(
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="as `list` names them; all without")
    ] = None,
) -> None:
    """Delete what is kept; the originals are never touched."""
    print(f"{clear_cache(keys=tuple(keys or ())) / 2**20:,.1f} MiB freed")


@contextmanager
def _watching() -> Iterator["Watch"]:
    """What makes the watcher that fits where output goes when it is first asked for, and takes its bar away."""
    watch = Watch()
    try:
        yield watch
    finally:
        watch.close()


class Watch:
    """A watcher that is made, and imported, once something is to be watched."""

    def __init__(self) -> None:
        self._made: Plain | None = None

    def __call__(self) -> "Plain":
        """The watcher."""
        if self._made is None:
            from fedgala.cli.progress import observer

            self._made = observer(quiet=False)
        return self._made

    def close(self) -> None:
        """Take its bar away, if there is one."""
        if close := getattr(self._made, "close", None):
            close()


def _report(found: Check) -> Iterator[str]:
    listing = found.listing
    yield f"{listing.name}: {printable(str(listing.root))}, read as {listing.layout}"
    yield ""
    yield table(*(_by_domain(found) if len(listing.classes) <= _WIDE else _by_class(found)))
    yield ""
    if found.differences:
        yield "here/known where the two differ: " + some(found.differences, 8)
    for name, labels in found.absent.items():
        yield f"{name} has no {some(labels, 8)}"
    yield from listing.notes()
    for skip in found.unreadable[:_LINES]:
        yield f"unreadable: {skip}"
    if len(found.unreadable) > _LINES:
        yield f"unreadable: {len(found.unreadable) - _LINES:,} more, which --json names"
    if found.duplicates:
        spare = sum(len(names) - 1 for names in found.duplicates)
        pairs = some((" = ".join(names) for names in found.duplicates), 3)
        yield f"{counted(spare, 'picture')} there more than once: {pairs}"
    yield from (f"not usable: {problem}" for problem in found.problems)
    yield found.verdict


def _by_domain(found: Check) -> tuple[list[str], list[list[str]]]:
    """A row for each domain, as papers print it."""
    classes = found.entry.classes if found.entry else found.listing.classes
    rows = [[name, *(_cell(found, name, label) for label in classes), _cell(found, name)] for name in found.counts]
    sums = [sum(count[label] for count in found.counts.values()) for label in classes]
    total = sum(count.total() for count in found.counts.values())
    return ["", *classes, "total"], [*rows, ["total", *(f"{number:,}" for number in (*sums, total))]]


def _by_class(found: Check) -> tuple[list[str], list[list[str]]]:
    """A row for each class, where there are many."""
    classes = found.entry.classes if found.entry else found.listing.classes
    rows = [[label, *(_cell(found, name, label) for name in found.counts)] for label in classes]
    return ["", *found.counts], [*rows, ["total", *(_cell(found, name) for name in found.counts)]]


def _cell(found: Check, domain: str, label: str | None = None) -> str:
    """A count, with the known one where that is another; a total without a class."""
    held = found.counts[domain]
    if label is not None and None in held:
        return "-"
    here = held.total() if label is None else held[label]
    release = found.inventory
    if release is None:
        return f"{here:,}"
    row = dict(zip(found.entry.classes, release.table.get(domain, ()), strict=False)) if found.entry else {}
    known = release.totals[domain] if label is None else row.get(label, here)
    return f"{here:,}" if here == known else f"{here:,}/{known:,}"


def _download(name: str | None) -> None:
    """Have the copy on huggingface.co in the cache of its library."""
    if name is None:
        raise ConfigError("--download: name the data set too; `fedgala data fetch` names all that are known")
    entry = entry_of(name)
    if entry.remote is None:
        raise ConfigError(
            f"{entry.name}: no copy on huggingface.co is known, `fedgala data fetch {entry.name}` says where to get it"
        )
    print(f"accept   {entry.licence}", flush=True)
    listing = resolve(entry.remote)
    print(f"got      {counted(len(listing.items), 'picture')} of {counted(len(listing.domains), 'domain')}")
    print(f"then     fedgala train --data {entry.remote}")


def _card(entry: Entry) -> Iterator[str]:
    yield f"{entry.name}: {len(entry.domains)} domains ({', '.join(entry.domains)}), {len(entry.classes)} classes"
    for release in entry.inventories:
        yield f"holds    {sum(release.totals.values()):,} pictures{f' ({release.name})' if release.name else ''}"
    yield from (f"get it   {place}" for place in entry.home)
    yield f"accept   {entry.licence}"
    yield f"layout   {entry.layout}"
    yield f"study    {entry.protocol}"
    yield from (f"note     {note}" for note in entry.notes)
    wanted = f"{entry.name.lower()}:FOLDER" if entry.part_of else "FOLDER"
    yield f"then     fedgala data check {wanted}"
    if entry.remote:
        yield f"or       fedgala data fetch {entry.name} --download, then --data {entry.remote}"
