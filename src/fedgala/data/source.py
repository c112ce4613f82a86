"""One door to every data set: the embedded one by its name, any other by its folder or archive."""

from collections.abc import Callable
from functools import cache

from fedgala.config import NATIVE, DataConfig
from fedgala.data.catalog import EMBEDDED
from fedgala.data.domain import Dataset
from fedgala.data.listing import Listing
from fedgala.data.resolve import resolve
from fedgala.data.shapes import make_shapes
from fedgala.data.store import Report, open_store
from fedgala.observe import Observer

MAKERS: dict[str, Callable[[], Dataset]] = {EMBEDDED[0]: cache(make_shapes)}  # seconds, once a process


def open_dataset(config: DataConfig, watcher: Observer) -> Dataset:
    """The pictures that `config` names; what was left out on the way is said to `watcher`.

    Raises:
        DataError: there is no such folder or archive, or nothing in it that can be used.
    """
    return open_named(config, watcher)[0]


def open_named(config: DataConfig, watcher: Observer) -> tuple[Dataset, tuple[str, ...]]:
    """The pictures that `config` names, and for each, in order of the domains, the name of its file."""
    if config.path in MAKERS:
        watcher.working(f"drawing the pictures of {config.path}")
        whole = MAKERS[config.path]()
        dataset = whole if config.limit is None else whole.limited(config.limit)
        return dataset, tuple(f"{domain.name}/{i}" for domain in dataset.domains for i in range(len(domain)))
    dataset, listing = open_listing(resolve(config.path), config, watcher)
    return dataset, tuple(item.name for item in listing.items)


def open_listing(listing: Listing, config: DataConfig, watcher: Observer) -> tuple[Dataset, Listing]:
    """The pictures of `listing`, and those of its items that could be read."""
    if config.limit is not None:
        listing = listing.limited(config.limit)
    for line in listing.notes():
        watcher.note(line)
    reports: list[Report] = []
    dataset = open_store(
        listing,
        config.size or NATIVE,
        strict=config.strict,
        progress=lambda done, total: watcher.decoding(done // 2, total // 2),  # it counts reading and decoding
        report=reports.append,
    )
    for line in filter(None, (report.line() for report in reports)):
        watcher.note(line)
    return dataset, listing.without({entry.name for report in reports for entry in report.skipped})
