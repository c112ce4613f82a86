"""One door to every data set: the embedded one by its name, any other by its folder."""

from collections.abc import Callable
from pathlib import Path

from fedgala.config import DataConfig
from fedgala.data.domain import Dataset
from fedgala.data.folder import Listing, list_folder
from fedgala.data.shapes import make_shapes
from fedgala.data.store import Report, open_store
from fedgala.observe import Observer

EMBEDDED: dict[str, Callable[[], Dataset]] = {"shapes": make_shapes}


def open_dataset(config: DataConfig, watcher: Observer) -> Dataset:
    """The pictures that `config` names; what was left out on the way is said to `watcher`.

    Raises:
        DataError: there is no such folder, or nothing in it that can be used.
    """
    listing = find_listing(config)
    if listing is None:
        dataset = EMBEDDED[config.path]()
        return dataset if config.limit is None else dataset.limited(config.limit)
    for line in listing.notes():
        watcher.note(line)

    def tell(report: Report) -> None:
        if report.skipped:
            watcher.note(report.line())

    return open_store(
        listing, config.size, strict=config.strict, limit=config.limit, progress=watcher.decoding, report=tell
    )


def find_listing(config: DataConfig) -> Listing | None:
    """The files of a folder; None for an embedded data set."""
    return None if config.path in EMBEDDED else list_folder(Path(config.path))
