"""What it costs to get pictures to training: decoding into the store, opening it, and memory as a data set grows.

    python benchmarks/data.py /data/pacs128.tar              decode and open, beside Pillow in one thread
    python benchmarks/data.py --grow 20000 590000            small pictures in a tar: time and memory for each count

The cache is a fresh temporary folder. Memory is the process's own (without mapped pictures), sampled while it works.
"""

import argparse
import io
import json
import os
import platform
import random
import statistics
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from PIL import Image

from fedgala.data.decode import THREADS
from fedgala.data.resolve import resolve
from fedgala.data.store import open_store
from fedgala.report.tables import table

SIDE = 16  # pixels of the small pictures


def pillow_rate(path: str, count: int) -> float:
    """Pictures a second that Pillow alone decodes in one thread, bytes in memory, the same pictures."""
    items = random.Random(0).sample(resolve(path).items, count)
    contents = [item.source.read() for item in items]
    began = time.perf_counter()
    for content in contents:
        Image.open(io.BytesIO(content)).convert("RGB").load()
    return count / (time.perf_counter() - began)


def measure(path: str, repeats: int) -> dict[str, list[float]]:
    """Pictures a second decoded into a fresh store, and seconds to open it again, for each repeat."""
    found: dict[str, list[float]] = {"decoded a second": [], "Pillow, one thread, a second": [], "seconds to open": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            listing = resolve(path)
            began = time.perf_counter()
            open_store(listing, cache=Path(cache))
            found["decoded a second"].append(len(listing.items) / (time.perf_counter() - began))
            began = time.perf_counter()
            open_store(resolve(path), cache=Path(cache))
            found["seconds to open"].append(time.perf_counter() - began)
        found["Pillow, one thread, a second"].append(pillow_rate(path, min(2000, len(listing.items))))
    return found


def tar_of(count: int, path: Path) -> None:
    """A tar of `count` small PNG pictures in four domains and ten classes."""
    buffer, chance = io.BytesIO(), random.Random(0)
    Image.frombytes("RGB", (SIDE, SIDE), chance.randbytes(3 * SIDE**2)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            entry = tarfile.TarInfo(f"grown/domain{number % 4}/class{number % 10}/{number}.png")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def own_memory() -> float:
    """GB of this process that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e6


@contextmanager
def sampled(seen: list[float]) -> Iterator[None]:
    """Adds the memory of this process to `seen`, many times a second."""
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            seen.append(own_memory())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def grow(counts: list[int]) -> list[list[str]]:
    """A row for each count: seconds to decode and to open, memory for it, and for a pass over all batches."""
    rows = []
    for count in counts:
        with tempfile.TemporaryDirectory() as place:
            tar_of(count, Path(place, "grown.tar"))
            before, loading, training = own_memory(), [0.0], [0.0]
            began = time.perf_counter()
            with sampled(loading):
                open_store(resolve(f"{place}/grown.tar"), cache=Path(place, "cache"))
            decoded = time.perf_counter() - began
            began = time.perf_counter()
            dataset = open_store(resolve(f"{place}/grown.tar"), cache=Path(place, "cache"))
            opened = time.perf_counter() - began
            with sampled(training):
                for domain in dataset.domains:
                    for batch in torch.randperm(len(domain)).split(128):  # type: ignore[no-untyped-call]
                        domain.pictures(batch)
            stored = sum(domain.num_bytes for domain in dataset.domains) / 1e9
            used = [max(0.0, max(seen) - before) for seen in (loading, training)]
            rows.append([f"{count:,}", f"{stored:.2f}", f"{decoded:.1f}", f"{opened:.2f}", *(f"{u:.2f}" for u in used)])
    return rows


def main() -> None:
    """Measure, print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="a folder or archive of pictures")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--grow", type=int, nargs="+", default=[], metavar="COUNT")
    parser.add_argument("--json", type=Path, help="also save the numbers here")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {THREADS} threads, Python {platform.python_version()}"
    found = measure(arguments.data, arguments.repeats) if arguments.data else {}
    rows = [[name, f"{statistics.median(v):,.2f}", f"{min(v):,.2f} to {max(v):,.2f}"] for name, v in found.items()]
    if rows:
        print(table([machine, "median", f"of {arguments.repeats}"], rows))
    if grown := grow(arguments.grow):
        print(table(["pictures", "store, GB", "decode, s", "open, s", "GB to load", "GB to train"], grown))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "measured": found, "grown": grown}, indent=1) + "\n")


if __name__ == "__main__":
    main()
