"""Text lists and tables that say domain and class where folders do not: ``art_train.txt``, ``metadata.csv``.

A list is named after its domain and has lines ``path label``; a table has a header with columns for path, domain and
class. A class is called what the list calls it, a number included: where counting starts then does not matter.
"""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fedgala.data.catalog import SPLITS, Entry, recognise
from fedgala.data.folder import File, Tree
from fedgala.data.listing import Item, Listing, PictureError, counted, list_items, printable, some

COLUMNS = {
    "path": ("path", "data", "file", "filename", "file_name", "filepath", "image", "img"),
    "domain": ("domain", "env", "environment", "site", "client"),
    "label": ("category", "class", "cat", "label", "classname", "y"),
}
_SPLIT = re.compile(
    rf"[_-]?({'|'.join(sorted(SPLITS, key=len, reverse=True))}|traintest|list|kfold|fold)(?=[_-]|\d*$)\d*"
)
_ENOUGH = 0.5  # of the pictures, for lists to be taken for theirs

Row = tuple[str, str, str]  # path, domain, class


def listed_pictures(tree: Tree, only: Entry | None, remarks: list[str]) -> Listing | None:
    """The pictures that lists place; None where there are none, they miss most pictures, or folders say as much."""
    rows = {path: found for path, file in tree.named(".txt", ".csv", ".tsv") if (found := _read(path, file, remarks))}
    if not rows:
        return None
    where = _Index(tree)
    placed: dict[tuple[str, str, str], File] = {}
    absent: defaultdict[str, list[str]] = defaultdict(list)
    for path, found in rows.items():
        for name, domain, label in found:
            if hit := where.find(name):
                placed[domain, label, hit[0]] = hit[1]
            else:
                absent[path].append(name)
    listed = Counter(name for *_, name in placed)
    told = len({(domain, label) for domain, label, _ in placed})
    if len(listed) < _ENOUGH * len(where.names) or told <= len(tree.filled):
        return None
    known = recognise(Counter((domain, label) for domain, label, _ in placed), only)
    pairs = known[1] if known else {}
    items = [Item(*pairs.get((d, c), (d, c)), name, file.source) for (d, c, name), file in placed.items()]
    remarks += _remarks(absent, listed, where.names, {label for _, label, _ in placed})
    called = known[0].name if known else None
    return Listing(
        called or tree.name,
        tree.root,
        list_items(items),
        tree.others(*rows),
        tree.hollow(),
        layout=f"lists ({some(rows)})",
        known=called,
    )


def _remarks(
    absent: Mapping[str, list[str]], listed: Counter[str], there: Sequence[str], labels: set[str]
) -> Iterator[str]:
    """What to know of lists that do not quite fit the pictures, and of classes that are numbers."""
    for path, names in absent.items():
        yield f"{path}: {counted(len(names), 'line')} about pictures that are not here: {some(names)}"
    if twice := [name for name, count in listed.items() if count > 1]:
        yield f"{counted(len(twice), 'picture')} listed for several classes or domains: {some(twice)}"
    if spare := [name for name in there if name not in listed]:
        yield f"{counted(len(spare), 'picture')} in no list left out: {some(spare)}"
    if all(re.fullmatch(r"[0-9]{1,9}", label) for label in labels):
        yield f"classes are called by the lists' numbers, {min(map(int, labels))} to {max(map(int, labels))}"


def chosen(tree: Tree, folder: str) -> set[Row] | None:
    """The pictures that the lists in `folder` name, by domain, class and file name; None without such lists."""
    remarks: list[str] = []
    found = None
    for path, file in tree.named(".txt"):
        if folder in path.split("/") or path.endswith("_list.txt"):
            found = found or set()
            for name, *_ in _read(path, file, remarks):
                domain, label, base = ("", "", *name.split("/"))[-3:]
                found.add((domain, label, base))
    return found


class _Index:
    """The pictures of a tree by as much of their path as tells them apart."""

    def __init__(self, tree: Tree):
        self.names: list[str] = []
        self._by_end: defaultdict[str, list[tuple[str, File]]] = defaultdict(list)
        for folder in tree.filled:
            for file in folder.pictures:
                self.names.append(folder.name(file))
                self._by_end[file.name].append((folder.name(file), file))

    def find(self, name: str) -> tuple[str, File] | None:
        """The one picture whose path shares most of its end with `name`."""
        found = self._by_end.get(name.rpartition("/")[2], [])
        if len(found) > 1:
            steps = name.split("/")[::-1]
            alike = [next((n for n, (a, b) in enumerate(zip(steps, hit[0].split("/")[::-1], strict=False)) if a != b),
                          len(steps)) for hit in found]  # fmt: skip
            found = [hit for hit, count in zip(found, alike, strict=True) if count == max(alike)]
        return found[0] if len(found) == 1 else None


def _read(path: str, file: File, remarks: list[str]) -> list[Row]:
    """The rows of a list or table; nothing where it is neither."""
    try:
        text = file.source.read().decode("utf-8-sig")
    except (OSError, PictureError, UnicodeDecodeError):
        remarks.append(f"{path} cannot be read as text")
        return []
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    found = list(_table(lines) if re.search(r"\.[ct]sv$", path.lower()) else _list(path, lines))
    bad = len(lines) - len(found) - (not path.lower().endswith(".txt"))
    if found and bad > 0:
        remarks.append(f"{path}: {counted(bad, 'line')} without a path and a class")
    return found


def _list(path: str, lines: list[str]) -> Iterator[Row]:
    domain = _SPLIT.sub("", path.rpartition("/")[2][: -len(".txt")].casefold()).strip("_-")
    for line in lines:
        name, _, label = line.strip().rpartition(" ")
        if name and re.fullmatch(r"[\w-]+", label):
            yield printable(name.strip()).replace("\\", "/"), _plain(domain) or "all", label


def _table(lines: list[str]) -> Iterator[Row]:
    try:
        rows = csv.DictReader(lines, delimiter="\t" if "\t" in lines[0] else ",")
        columns = {name.strip().casefold(): name for name in rows.fieldnames or () if name}
        used = [next((columns[word] for word in words if word in columns), None) for words in COLUMNS.values()]
        for row in rows:
            values = [str(row.get(column) or "").strip() for column in used if column]
            if len(values) == len(used) and all(values):
                yield printable(values[0]).replace("\\", "/"), _plain(values[1]), _plain(values[2])
    except (csv.Error, IndexError):
        return


def _plain(name: str) -> str:
    """`name` as one that a folder could have."""
    return printable(name).replace("/", "_")
