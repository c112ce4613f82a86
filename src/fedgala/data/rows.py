"""Pictures in the rows of a Hugging Face data set, which a partition of flwr-datasets is too, as a listing.

Columns say here what folders say elsewhere. Only those of domain and class are read as a whole; the bytes of a picture
are taken out of the table, which lies mapped into memory, row by row as they are needed, and `datasets` decodes none.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedgala.data.cache import digest
from fedgala.data.catalog import Entry, key, recognise
from fedgala.data.folder import FileSource
from fedgala.data.listing import MAX_BYTES, Item, Listing, PictureError, counted, list_items, printable, some
from fedgala.data.lists import COLUMNS
from fedgala.errors import DataError

_PICTURES = ("image", "img", "picture", "photo")
_NAMES = ("string", "large_string", "int", "uint")  # how the types begin that can name a domain or a class


@dataclass(frozen=True, slots=True)
class RowSource:
    """The picture of one row."""

    table: Any  # a `datasets.Dataset` of one column, the bytes, that gives Arrow tables
    row: int
    file: str | None  # where the bytes are if the row has none
    version: str  # of the table

    def read(self) -> bytes:
        """The row's bytes, or those of the file that it names."""
        data = self.table[self.row].column(0)[0]
        if not data.is_valid:
            if self.file is None:
                raise PictureError("neither bytes nor a file in its row")
            return FileSource(self.file).read()
        buffer = data.as_buffer()  # still in the mapped file
        if buffer.size > MAX_BYTES:
            raise PictureError(f"{buffer.size >> 20:,} MiB, at most {MAX_BYTES >> 20} are read")
        return bytes(buffer.to_pybytes())

    def stamp(self) -> str:
        """The table's, the place in it, and that of a file that may hold the bytes."""
        file = FileSource(self.file).stamp() if self.file and os.path.isabs(self.file) else ""
        return f"{self.version} {self.row} {file}"


@dataclass(frozen=True, slots=True)
class _Row:
    domain: str | None
    label: str | None
    name: str
    source: RowSource


def list_rows(data: Any, name: str = "dataset", root: Path | None = None, only: Entry | None = None) -> Listing:
    """The listing of a `datasets.Dataset`, such as a partition of flwr-datasets, or of all splits of a `DatasetDict`.

    Columns are recognised by type and name: pictures (``image``), their domain (``domain``, ``site``, ``client``, ...)
    and, if there is one, their class (``label``, ``category``, ...). Domains and classes of the catalogue are called as
    it calls them. Classes get their numbers from what is listed: of partitions that lack some, join before numbering.

    Args:
        data: what to list; it stays where it is, and must remain readable while the listing is used.
        name: of the data set, where the catalogue knows none.
        root: what to call its place in messages; `name` where None.
        only: leave out all but this data set of the catalogue.

    Raises:
        DataError: no such columns, or no pictures.
    """
    root = root or Path(name)
    parts = dict(data) if isinstance(data, Mapping) else {str(data.split or "row"): data}
    used: dict[str, None] = {}
    rows = [row for split, part in parts.items() for row in _rows(part, split, root, used)]
    remarks: list[str] = []
    items = tuple(_kept(rows, remarks))
    known = recognise(Counter(_place(item) for item in items), only)
    if not items or (only and not known):
        raise DataError(f"'{root}' holds no picture{f' of {only.name}' if only else ' with a domain'}")
    called = known[0].name if known else None
    placed = tuple(_placed(items, known[1], remarks)) if known else items
    if only and only.lists:
        remarks.append(f"rows have no lists beside them: all pictures of the {len(only.classes)} classes are taken")
    layout = f"rows with columns {', '.join(used)}"
    return Listing(called or name, root, list_items(placed), remarks=tuple(remarks), layout=layout, known=called)


def _rows(part: Any, split: str, root: Path, used: dict[str, None]) -> Iterator[_Row]:
    """The rows of one split; the columns that say so are added to `used`."""
    from datasets import Dataset, Image

    if not isinstance(part, Dataset):
        raise DataError(
            f"'{root}' is of type {type(part).__name__}, a datasets.Dataset is needed: load it without streaming"
        )
    image = _picture_column(part.features, root)
    domain = _column(part.features, COLUMNS["domain"], _names_something)
    label = _column(part.features, COLUMNS["label"], _names_something)
    if domain is None:
        wanted = ", ".join(COLUMNS["domain"])
        raise DataError(f"'{root}' has no column for the domain ({_types(part.features)}): call it one of {wanted}")
    used |= dict.fromkeys(filter(None, (image, domain, label)))
    files = part.cast_column(image, Image(decode=False)).select_columns([image]).flatten().with_format("arrow")
    table = files.select_columns([f"{image}.bytes"])
    version = digest(files._fingerprint, *(FileSource(it["filename"]).stamp() for it in files.cache_files))
    domains, paths = _names(part, domain), _whole(files, f"{image}.path")
    labels = _names(part, label) if label else [None] * len(domains)
    for row, (place, path) in enumerate(zip(zip(domains, labels, strict=True), paths, strict=True)):
        base = printable((path or "").replace("\\", "/").rpartition("/")[2])
        name = f"{split}[{row}]" + f"/{base}" * bool(base)
        yield _Row(*place, name, RowSource(table, row, path, version))


def _kept(rows: list[_Row], remarks: list[str]) -> Iterator[Item]:
    """What has a domain, and a class if others of its domain do."""
    labelled = {row.domain for row in rows if row.label is not None}
    homeless = [row.name for row in rows if row.domain is None]
    bare = [row.name for row in rows if row.domain in labelled - {None} and row.label is None]
    if homeless:
        remarks.append(f"{counted(len(homeless), 'row')} without a domain left out: {some(homeless)}")
    if bare:
        remarks.append(f"{counted(len(bare), 'row')} without a class left out of domains with classes: {some(bare)}")
    for row in rows:
        if row.domain is not None and (row.label is not None or row.domain not in labelled):
            yield Item(row.domain, row.label, row.name, row.source)


def _placed(
    items: Iterable[Item], places: Mapping[tuple[str, ...], tuple[str, str]], remarks: list[str]
) -> Iterator[Item]:
    """The items of a data set of the catalogue, called as it calls them."""
    spare: Counter[str] = Counter()
    for item in items:
        if place := places.get(_place(item)):
            yield Item(*place, item.name, item.source)
        else:
            spare["/".join(_place(item))] += 1
    if spare:
        remarks.append(f"{counted(spare.total(), 'picture')} left out, of none of its classes: {some(sorted(spare))}")


def _place(item: Item) -> tuple[str, ...]:
    return (item.domain,) if item.label is None else (item.domain, item.label)


def _picture_column(features: Mapping[str, Any], root: Path) -> str:
    pictures = [name for name, kind in features.items() if _holds_pictures(kind)]
    chosen = _column(features, _PICTURES, lambda kind: _holds_pictures(kind) or _type(kind) == "binary")
    if chosen is None and len(pictures) == 1:
        return pictures[0]
    if chosen is None:
        found = f"several columns of pictures ({some(pictures)})" if pictures else "no column of pictures"
        raise DataError(f"'{root}' has {found}: call it image, an Image or bytes; there are {_types(features)}")
    return chosen


def _column(features: Mapping[str, Any], names: Iterable[str], fits: Callable[[Any], bool]) -> str | None:
    """The first of `names` that a fitting column has, in any spelling."""
    spelled = {key(name): name for name, kind in features.items() if fits(kind)}
    return next((spelled[key(name)] for name in names if key(name) in spelled), None)


def _holds_pictures(kind: Any) -> bool:
    return type(kind).__name__ == "Image" or (isinstance(kind, dict) and kind.keys() == {"bytes", "path"})


def _names_something(kind: Any) -> bool:
    return _type(kind).startswith(_NAMES)


def _type(kind: Any) -> str:
    return str(getattr(kind, "dtype", ""))


def _types(features: Mapping[str, Any]) -> str:
    """``columns image (Image), label (ClassLabel)``."""
    kinds = ((name, _type(kind) if type(kind).__name__ == "Value" else type(kind).__name__) for name, kind in
             features.items())  # fmt: skip
    return "columns " + some((f"{printable(name)} ({kind})" for name, kind in kinds), 8)


def _names(part: Any, column: str) -> list[str | None]:
    """What each row says there, as a name that may serve as a folder's; None for nothing, and for numbers below 0."""
    known = getattr(part.features[column], "names", None)
    spelled: dict[object, str | None] = {None: None}
    values = _whole(part.with_format("arrow"), column)
    for value in dict.fromkeys(values):
        if value is not None:
            unknown = isinstance(value, int) and value < 0
            text = known[value] if known and not unknown else value
            spelled[value] = None if unknown else printable(str(text)).strip().replace("/", "_") or None
    return [spelled[value] for value in values]


def _whole(table: Any, column: str) -> list[Any]:
    """All values of a column, of which only its own part of the table is read."""
    values: list[Any] = table.select_columns([column])[:].column(0).to_pylist()
    return values
