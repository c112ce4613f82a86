"""Trees whose folders say domain and class: those of the catalogue at any depth, ours, and everybody's own.

A layout is a function from a tree to a listing, or to None where the tree is laid out in another way. The data set of
the catalogue to look for may be given, and what the reader should know goes to `remarks`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from fedgala.data.catalog import CATALOG, SPLITS, Entry, recognise
from fedgala.data.folder import Tree
from fedgala.data.listing import LAYOUT, SUFFIXES, Item, Listing, PictureError, counted, list_items, printable, some
from fedgala.errors import DataError

MANIFEST = "fedgala.json"  # at the top of a data set that `fedgala data pack` wrote
_NEARLY_ALL = 0.9

Path = tuple[str, ...]


def known_folders(tree: Tree, only: Entry | None, remarks: list[str]) -> Listing | None:
    """A data set of the catalogue, by the names of its folders at any depth, with splits merged."""
    found = recognise({folder.path: len(folder.pictures) for folder in tree.filled}, only)
    if found is None:
        return None
    entry, placed = found
    _refuse_copies(tree, entry, placed)
    layout = f"class folders in domain folders{_merged(placed, placed.values())}"
    items = _items(tree, placed, remarks)
    return Listing(entry.name, tree.root, items, tree.others(MANIFEST), tree.hollow(), layout=layout, known=entry.name)


def packed_folders(tree: Tree, only: Entry | None, remarks: list[str]) -> Listing | None:
    """What `fedgala data pack` wrote: the manifest lies where the domains do."""
    for folder in tree.folders:
        for file in folder.others:
            if file.name == MANIFEST:
                try:
                    name = json.loads(file.source.read())["name"]
                except (OSError, PictureError, ValueError, TypeError, LookupError):
                    return None  # the folders say as much
                placed = _place({it.path: it.path for it in tree.filled}, folder.path)
                items = _items(tree, placed, remarks)
                return (
                    Listing(printable(str(name)), tree.root, items, tree.others(MANIFEST), layout="packed by fedgala")
                    if items
                    else None
                )
    return None


def plain_folders(tree: Tree, only: Entry | None, remarks: list[str]) -> Listing | None:
    """Anyone's domains: ``<domain>/<class>/*.jpg`` or ``<domain>/*.jpg``, below any number of single folders.

    Raises:
        DataError: there are no pictures, or domain and class cannot be told.
    """
    cut = _without_splits([folder.path for folder in tree.filled])
    if not any(cut.values()):
        raise _nothing(tree)
    top = _top(tree, cut)
    placed = _place(cut, top)
    _refuse_mixtures(tree, placed)
    _refuse_one_domain(tree, {domain for domain, label in placed.values() if label is None}, placed)
    labels = {label for _, label in placed.values()}
    kind = "domain folders without classes" if labels == {None} else "class folders in domain folders"
    below = f" below {'/'.join(top)}" if top else ""
    name, layout = top[-1] if top else tree.name, f"{kind}{below}{_merged(cut, cut.values())}"
    return Listing(name, tree.root, _items(tree, placed, remarks), tree.others(MANIFEST), tree.hollow(), layout=layout)


def _items(tree: Tree, placed: Mapping[Path, tuple[str, str | None]], remarks: list[str]) -> tuple[Item, ...]:
    """The pictures of the folders that have a place; those of others are counted in `remarks`."""
    spare = [folder for folder in tree.filled if folder.path not in placed]
    if spare:
        count = counted(sum(len(folder.pictures) for folder in spare), "picture")
        remarks.append(
            f"{count} left out, not in the place of any class: {some(it.place or 'at the top' for it in spare)}"
        )
    return list_items(
        Item(*placed[folder.path], folder.name(file), file.source)
        for folder in tree.filled
        if folder.path in placed
        for file in folder.pictures
    )


def _place(cut: dict[Path, Path], top: Path) -> dict[Path, tuple[str, str | None]]:
    """Domain and class by the one or two folders below `top`; folders that lie elsewhere have no place."""
    below = {path: steps[len(top) :] for path, steps in cut.items() if steps[: len(top)] == top}
    return {path: (it[0], it[1] if len(it) == 2 else None) for path, it in below.items() if 1 <= len(it) <= 2}


def _without_splits(paths: Iterable[Path]) -> dict[Path, Path]:
    """Each path without the levels at which there are nothing but splits; `train` and `val` alone are domains."""
    paths = list(paths)
    beside = defaultdict(set)
    for path in paths:
        for depth, step in enumerate(path):
            beside[path[:depth]].add(step.casefold())
    first = int(max(map(len, paths), default=0) <= 2)
    return {
        path: tuple(step for depth, step in enumerate(path) if depth < first or beside[path[:depth]] - SPLITS)
        for path in paths
    }


def _top(tree: Tree, cut: dict[Path, Path]) -> Path:
    """The folder that holds the domains: what lies two levels above the deepest pictures, if nearly all share it."""
    pictures: Counter[Path] = Counter()
    deepest = max(map(len, cut.values()))
    single = len({steps[0] for steps in cut.values() if steps}) == 1
    above = 1 if tree.archive and single and deepest == 2 else max(deepest - 2, 0)
    for folder in tree.filled:
        pictures[cut[folder.path][:above]] += len(folder.pictures)
    top, most = pictures.most_common(1)[0]
    if len(top) == above and most >= _NEARLY_ALL * sum(pictures.values()):
        return top
    depth = Counter({it.path: len(it.pictures) for it in tree.filled}).most_common(1)[0][0]
    if len(cut[depth]) < deepest:
        deep = next(path for path, steps in cut.items() if len(steps) == deepest)
        raise DataError(
            f"the pictures in '{_at(tree, deep)}' lie a folder deeper than most: the layout is DIR/{LAYOUT}, so move "
            "them up or away"
        )
    several = some(sorted("/".join(steps) for steps in pictures if len(steps) == above))
    raise DataError(f"'{_at(tree)}' holds several data sets ({several}): name one of these folders")


def _merged(cut: Iterable[Path], kept: Iterable[tuple[str | None, ...]]) -> str:
    """What to say of splits that were merged."""
    splits = {step for path, names in zip(cut, kept, strict=True) for step in path if step.casefold() in SPLITS
              and step not in names}  # fmt: skip
    return f", {' and '.join(sorted(splits))} merged" if splits else ""


def _refuse_copies(tree: Tree, entry: Entry, placed: dict[Path, tuple[str, str]]) -> None:
    homes: defaultdict[tuple[str, str], set[Path]] = defaultdict(set)
    for path, pair in placed.items():
        homes[pair].add(tuple(step for step in path if step.casefold() not in SPLITS)[:-2])
    for copies in homes.values():
        if len(copies) > 1:
            places = some(sorted(_at(tree, it) for it in copies))
            raise DataError(f"'{_at(tree)}' holds {entry.name} {len(copies)} times ({places}): name one of them")


def _refuse_mixtures(tree: Tree, placed: dict[Path, tuple[str, str | None]]) -> None:
    folders = {folder.path: folder for folder in tree.filled}
    labels: defaultdict[str, list[str]] = defaultdict(list)
    for domain, label in placed.values():
        labels[domain] += [label] if label is not None else []
    for path, (domain, label) in placed.items():
        if label is None and labels[domain]:
            own = folders[path].pictures
            raise DataError(
                f"'{_at(tree, path)}' mixes {counted(len(own), 'picture')} of its own "
                f"({some((file.name for file in own), 2)}) with class folders ({some(labels[domain], 2)}): "
                "a domain has either, so move one of them"
            )


def _refuse_one_domain(tree: Tree, bare: set[str], placed: dict[Path, tuple[str, str | None]]) -> None:
    """Classes of the catalogue in the place of domains, in a folder that is named after a domain."""
    for entry in CATALOG.values():
        domain, known = entry.domain(tree.name), {name for name in bare if entry.label(name)}
        if domain and 2 * len(known) >= len(entry.classes) and len(known) >= _NEARLY_ALL * len(placed):
            raise DataError(
                f"'{_at(tree)}' is the domain {domain} of {entry.name} alone: name the folder above it, "
                f"'{printable(str(tree.root.parent))}'"
            )


def _nothing(tree: Tree) -> DataError:
    loose = sum(len(folder.pictures) for folder in tree.filled)
    stray = f"{counted(loose, 'picture')} in no domain folder" if loose else "no pictures"
    kinds = " ".join(sorted(suffix[1:] for suffix in SUFFIXES))
    return DataError(f"'{_at(tree)}' holds {stray}: name the folder that holds {LAYOUT}; {kinds} are read")


def _at(tree: Tree, path: Path = ()) -> str:
    return printable(str(PurePosixPath(str(tree.root), *path)))
