"""Camera-trap images beside annotations in JSON: the raw form of TerraIncognita.

A file holds `images` with `id`, `file_name` and `location`, `annotations` with `image_id` and `category_id`, and
`categories` with `id` and `name`. Images are looked up by id, where DomainBed's script compares all with all. As there,
an image that shows animals of two classes is in both.
"""

import json
from collections import Counter, defaultdict
from typing import Any

from fedgala.data.catalog import CATALOG, Entry
from fedgala.data.folder import File, Tree
from fedgala.data.listing import Item, Listing, PictureError, counted, list_items, printable, some
from fedgala.errors import DataError

_PARTS = ("images", "annotations", "categories")


def annotated_images(tree: Tree, only: Entry | None, remarks: list[str]) -> Listing | None:
    """The images that JSON files give a place and an animal of the catalogue; None where no file does."""
    tables = {path: table for path, file in tree.named(".json") if (table := _read(path, file, remarks)) is not None}
    if not tables:
        return None
    entry = only or CATALOG["TerraIncognita"]
    pictures = {file.name: (folder.name(file), file) for folder in tree.filled for file in folder.pictures}
    wanted: set[tuple[str, str, str]] = set()  # domain, class, file name
    for path, table in tables.items():
        wanted |= _placed(path, table, entry, remarks)
    items = [Item(d, c, pictures[name][0], pictures[name][1].source) for d, c, name in wanted if name in pictures]
    if not items:
        if wanted:
            named = f"{some(tables)} in '{printable(str(tree.root))}' names {counted(len(wanted), 'image')}"
            raise DataError(f"{named} of {entry.name}, none of which is here: put the images beside it")
        return None
    if absent := sorted({name for *_, name in wanted} - set(pictures)):
        remarks.append(f"{counted(len(absent), 'image')} annotated but not here: {some(absent)}")
    used = {item.name for item in items}
    if spare := sorted(name for name, _ in pictures.values() if name not in used):
        remarks.append(f"{counted(len(spare), 'picture')} of other places or animals left out: {some(spare)}")
    layout = f"image files beside annotations ({some(tables)})"
    return Listing(
        entry.name, tree.root, list_items(items), tree.others(*tables), tree.hollow(), layout=layout, known=entry.name
    )


def _read(path: str, file: File, remarks: list[str]) -> dict[str, list[Any]] | None:
    """The content of a file, if it is annotations."""
    try:
        table = json.loads(file.source.read())
    except (OSError, PictureError, ValueError, RecursionError):
        remarks.append(f"{path} is not JSON, or cannot be read: get it again if it holds annotations")
        return None
    if isinstance(table, dict) and all(isinstance(table.get(part), list) for part in _PARTS):
        return table
    return None


def _placed(path: str, table: dict[str, list[Any]], entry: Entry, remarks: list[str]) -> set[tuple[str, str, str]]:
    """Domain, class and file name of each image of `entry`; rows that lack something are counted in `remarks`."""
    odd: Counter[str] = Counter()
    rows = {part: [row for row in table[part] if isinstance(row, dict)] for part in _PARTS}
    names = {_text(row, "id"): _text(row, "name") for row in rows["categories"]}
    files: defaultdict[str, str] = defaultdict(str)
    domains: dict[str, str] = {}
    for row in rows["images"]:
        domain = entry.domain(_text(row, "location"))
        name = _text(row, "file_name").replace("\\", "/").rpartition("/")[2]
        odd["images"] += not name or not _text(row, "id") or not _text(row, "location")
        if domain and name:
            files[_text(row, "id")], domains[_text(row, "id")] = name, domain
    found = set()
    for row in rows["annotations"]:
        image, category = _text(row, "image_id"), _text(row, "category_id")
        odd["annotations"] += not image or category not in names
        if image in domains and (label := entry.label(names.get(category, ""))):
            found.add((domains[image], label, files[image]))
    for part in _PARTS:
        odd[part] += len(table[part]) - len(rows[part])
    remarks += [
        f"{path}: {counted(count, 'row')} of {part} without what is needed" for part, count in odd.items() if count
    ]
    return found


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    return printable(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else ""
