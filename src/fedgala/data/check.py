"""What a data set holds, beside what a complete copy would: counts, missing and extra, duplicates, unreadable files.

Every picture is decoded once, and the outcome is kept under the paths, sizes and times of the files, so that asking
again reads none of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedgala.data.cache import digest, recall
from fedgala.data.catalog import CATALOG, Entry, Inventory
from fedgala.data.decode import Skipped, look_at_all
from fedgala.data.listing import Listing, counted, some

VERSION = 1  # of what is kept
_SIZE = 128  # pixels, at which pictures are tried


@dataclass(frozen=True, slots=True)
class Difference:
    """A count that is not the known one; of a whole domain where the class is None."""

    domain: str
    label: str | None
    here: int
    known: int

    def __str__(self) -> str:
        place = self.domain if self.label is None else f"{self.domain}/{self.label}"
        return f"{place} {self.here:,} of {self.known:,}" if self.here < self.known else f"{place} {self.here:,}, " \
            f"{self.here - self.known:,} more than {self.known:,}"  # fmt: skip


@dataclass(frozen=True)
class Check:
    """The outcome, for the pictures that can be read."""

    listing: Listing
    unreadable: tuple[Skipped, ...]
    duplicates: tuple[tuple[str, ...], ...]  # names of files with the same bytes

    @cached_property
    def entry(self) -> Entry | None:
        """What the catalogue says of the data set."""
        return CATALOG[self.listing.known] if self.listing.known else None

    @cached_property
    def counts(self) -> Mapping[str, Counter[str | None]]:
        """Readable pictures by domain and class, with each domain of the catalogue."""
        lost = {skip.name for skip in self.unreadable}
        names = {*self.listing.domains, *(self.entry.domains if self.entry else ())}
        counts: dict[str, Counter[str | None]] = {name: Counter() for name in sorted(names)}
        for item in self.listing.items:
            counts[item.domain][item.label] += item.name not in lost
        return counts

    @cached_property
    def inventory(self) -> Inventory | None:
        """The known release that differs least."""
        known = self.entry.inventories if self.entry else ()
        return min(known, key=lambda one: sum(abs(it.here - it.known) for it in self.compare(one)), default=None)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Where the counts are not those of the inventory."""
        return tuple(self.compare(self.inventory)) if self.inventory else ()

    @property
    def complete(self) -> bool:
        """Whether it holds what a known release does, all of it readable."""
        return self.inventory is not None and not self.differences and not self.unreadable

    @cached_property
    def absent(self) -> Mapping[str, tuple[str, ...]]:
        """By domain that has labels, the classes of which it has no picture."""
        classes = self.entry.classes if self.entry else self.listing.classes
        labelled = {name: count for name, count in self.counts.items() if any(label for label in count)}
        lacking = {name: tuple(c for c in classes if not count[c]) for name, count in labelled.items()}
        return {name: labels for name, labels in lacking.items() if labels}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nothing can be trained on it; nothing where it can."""
        found = []
        filled = [name for name in self.listing.domains if self.counts[name].total()]
        if len(filled) < 2:
            found.append(f"{counted(len(filled), 'domain')} with pictures ({some(filled)}), at least 2 are needed")
        if dead := [name for name in self.listing.domains if name not in filled]:
            found.append(f"no picture can be read of {some(dead)}")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """``PACS, complete``, or what it is instead."""
        name, total = self.listing.name, sum(count.total() for count in self.counts.values())
        if self.entry is None:
            return f"{name}: {counted(total, 'picture')} in {counted(len(self.listing.domains), 'domain')}, " \
                "a data set of your own"  # fmt: skip
        if self.inventory is None:
            return f"{name}: {counted(total, 'picture')}; there is no count to compare with"
        release = f" ({self.inventory.name})" if self.inventory.name else ""
        if self.complete:
            return f"{name}, complete{release}"
        missing = sum(max(it.known - it.here, 0) for it in self.differences)
        extra = sum(max(it.here - it.known, 0) for it in self.differences)
        return f"{name}, not complete{release}: {counted(missing, 'picture')} missing, {extra:,} extra"

    def compare(self, known: Inventory) -> list[Difference]:
        """Where the counts are not those of `known`, by class where it knows them."""
        rows: list[Difference] = []
        for domain, total in known.totals.items():
            held = self.counts[domain]
            if domain in known.table and self.entry:
                pairs = zip(self.entry.classes, known.table[domain], strict=True)
                rows += [Difference(domain, label, held[label], count) for label, count in pairs]
            else:
                rows.append(Difference(domain, None, held.total(), total))
        return [row for row in rows if row.here != row.known]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        release = self.inventory
        return {
            "name": self.listing.name,
            "known": self.listing.known,
            "path": str(self.listing.root),
            "layout": self.listing.layout,
            "verdict": self.verdict,
            "usable": not self.problems,
            "complete": self.complete,
            "problems": self.problems,
            "pictures": sum(count.total() for count in self.counts.values()),
            "domains": {
                name: {"total": count.total(), "classes": {label: n for label, n in sorted(count.items()) if label}}
                if None not in count else {"total": count.total(), "classes": None}
                for name, count in self.counts.items()
            },
            "inventory": release and {"name": release.name, "totals": dict(release.totals)},
            "differences": [[it.domain, it.label, it.here, it.known] for it in self.differences],
            "absent": {name: list(labels) for name, labels in self.absent.items()},
            "unreadable": [[skip.name, skip.reason] for skip in self.unreadable],
            "duplicates": [list(names) for names in self.duplicates],
            "notes": self.listing.notes(),
        }  # fmt: skip


def check(listing: Listing, progress: Callable[[int, int], None], cache: Path | None = None) -> Check:
    """Try every picture of `listing`, unless that was done and nothing has changed since."""
    total = len(listing.items)
    kept = recall(
        "checks",
        digest(VERSION, *((it.domain, it.name, it.source.stamp()) for it in listing.items)),
        lambda: _try_all(listing, lambda done: progress(done, total)),
        cache,
    )
    unreadable = tuple(Skipped(*row) for row in kept["unreadable"])
    return Check(listing, unreadable, tuple(tuple(names) for names in kept["duplicates"]))


def _try_all(listing: Listing, progress: Callable[[int], None]) -> dict[str, Any]:
    looks = look_at_all(listing.items, progress, _SIZE)
    same: defaultdict[bytes, dict[str, None]] = defaultdict(dict)
    for look in looks:
        if not look.skipped:
            same[look.digest][look.item.name] = None
    bad = dict.fromkeys((it.skipped.domain, it.skipped.name, it.skipped.reason) for it in looks if it.skipped)
    return {"unreadable": list(bad), "duplicates": [list(names) for names in same.values() if len(names) > 1]}
