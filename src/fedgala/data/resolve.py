"""From what a user names -- a folder or an archive, at any sensible level -- to the listing of a data set.

``NAME:PATH`` reads PATH as the data set NAME of the catalogue, which is how a part of DomainNet is chosen; ``hf:PATH``,
also behind a NAME, is left to `hub`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedgala.data.annotations import annotated_images
from fedgala.data.archive import SUFFIXES, read_archive
from fedgala.data.catalog import HUB, Entry, find
from fedgala.data.folder import FileSource, Folder, Tree, absent, joined, walk
from fedgala.data.hub import read_hub
from fedgala.data.layouts import known_folders, packed_folders, plain_folders
from fedgala.data.listing import Item, Listing, counted, printable, some
from fedgala.data.lists import chosen, listed_pictures
from fedgala.errors import DataError

Layout = Callable[[Tree, Entry | None, list[str]], Listing | None]
LAYOUTS: tuple[Layout, ...] = (known_folders, packed_folders, annotated_images, listed_pictures, plain_folders)


def resolve(named: str | Path) -> Listing:
    """The listing of the data set at a path, in the first layout that fits.

    Raises:
        DataError: there is nothing at the path, or nothing that can be read as a data set.
    """
    if not str(named):
        raise DataError("there is no folder or archive '': name one, hf:OWNER/NAME, or shapes")
    only, path = _split(str(named))
    if path.as_posix().startswith(HUB):
        return read_hub(path.as_posix(), only)
    tree = read_tree(path)
    remarks = list(tree.remarks)
    for layout in LAYOUTS[:-1] if only else LAYOUTS:
        if (listing := layout(tree, only, remarks)) is not None:
            items = _chosen(listing, tree, only, remarks) if only and only.lists else listing.items
            return replace(listing, items=items, remarks=tuple(remarks))
    assert only
    raise DataError(
        f"'{printable(str(path))}' holds nothing of {only.name}: expected {only.layout}; `fedgala data check` without "
        f"'{only.name}:' says what is there"
    )


def read_tree(path: Path) -> Tree:
    """The files of a folder or an archive; archives in a folder without pictures are read as if unpacked there."""
    path = Path(os.path.expanduser(path))  # which leaves a home that is not there as it is, to be named
    if path.is_file():
        return read_archive(path)
    if path.exists() and not path.is_dir():
        raise DataError(f"'{printable(str(path))}' is no folder and no file: name a folder or an archive")
    if not path.exists():
        raise absent(path)
    tree = walk(path)
    return tree if tree.filled else _with_archives(tree)


def _with_archives(tree: Tree) -> Tree:
    folders: list[Folder] = []
    remarks = list(tree.remarks)
    for folder in tree.folders:
        inside = [file for file in folder.others if file.name.lower().endswith(SUFFIXES)]
        folders.append(replace(folder, others=tuple(file for file in folder.others if file not in inside)))
        for file in inside:
            assert isinstance(file.source, FileSource)
            held = read_archive(Path(file.source.path))
            folders += [replace(it, path=(*folder.path, *it.path)) for it in held.folders if it.path]
            remarks += held.remarks
    return replace(tree, folders=joined(folders), remarks=tuple(remarks))


def _chosen(listing: Listing, tree: Tree, entry: Entry, remarks: list[str]) -> tuple[Item, ...]:
    """Only what the lists of `entry` name, if they are there."""
    named = chosen(tree, entry.lists or "")
    if named is None:
        remarks.append(f"no lists in {entry.lists}/: all pictures of the {len(entry.classes)} classes are taken")
        return listing.items
    wanted = {(entry.domain(domain), entry.label(label), base) for domain, label, base in named}
    held = {(it.domain, it.label, it.name.rpartition("/")[2]): it for it in listing.items}
    if not wanted & held.keys():
        raise DataError(f"the lists of {entry.name} in '{printable(str(listing.root))}' name no picture that is there")
    if lost := sorted(base for *_, base in wanted - held.keys()):
        remarks.append(f"{counted(len(lost), 'picture')} listed but not here: {some(lost)}")
    return tuple(item for place, item in held.items() if place in wanted)


def _split(named: str) -> tuple[Entry | None, Path]:
    """``domainnet-20:/data/DomainNet`` in its two halves; a path that has a colon of its own stays whole."""
    if found := re.match(r"([\w-]{2,}):(?=.)", named):
        entry = find(found[1])
        if entry and not Path(named).exists():
            return entry, Path(named[found.end() :])
    return None, Path(named)
