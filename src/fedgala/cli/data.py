"""Commands about pictures: what is there, what it looks like, one file to take along."""

import io
import tarfile
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from fedgala.cli.progress import observer
from fedgala.config import DataConfig
from fedgala.data.domain import Dataset, DomainData
from fedgala.data.source import open_named
from fedgala.data.store import clear_cache, default_cache
from fedgala.report.sheet import contact_sheet
from fedgala.report.tables import table
from fedgala.storage import write_atomically

app = typer.Typer(no_args_is_help=True, help="Look at pictures before training: check, show, pack, cache.")
Data = Annotated[str, typer.Argument(metavar="DATA", help="a folder of pictures, or shapes", show_default=False)]
Size = Annotated[int, typer.Option(help="longest side of a stored picture, pixels")]


@app.command()
def check(
    data: Data, size: Size = 128, strict: Annotated[bool, typer.Option(help="refuse unreadable files")] = False
) -> None:
    """Say how a folder is read: pictures per domain and class, and what is skipped and why.

    Layouts: DIR/DOMAIN/CLASS/picture.jpg with labels, DIR/DOMAIN/picture.jpg without.
    """
    dataset, _ = open_named(DataConfig(path=data, size=size, strict=strict), observer(quiet=True))
    rows = [[domain.name, *_counts(dataset, domain), str(len(domain))] for domain in dataset.domains]
    print(table([dataset.name, *dataset.classes, "total"], rows))
    labelled = sum(domain.labels is not None for domain in dataset.domains)
    print(f"{sum(map(len, dataset.domains))} pictures, {len(dataset.domains)} domains, {labelled} of them labelled")


@app.command()
def show(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="the picture to write")] = Path("sheet.png"),
    columns: Annotated[int, typer.Option(min=1, max=50, help="pictures per domain and class")] = 6,
    size: Size = 128,
) -> None:
    """Save a contact sheet: a row per class, a group of columns per domain."""
    dataset, _ = open_named(DataConfig(path=data, size=size), observer(quiet=True))
    contact_sheet(dataset, output, columns)
    print(output)


@app.command()
def pack(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="the tar file to write")],
    size: Size = 128,
    quality: Annotated[int, typer.Option(min=1, max=100, help="of the WebP pictures")] = 90,
) -> None:
    """Write one tar of small WebP pictures, NAME/DOMAIN/CLASS/NUMBER.webp, to take to another machine."""
    dataset, _ = open_named(DataConfig(path=data, size=size), observer(quiet=True))

    def write(temporary: Path) -> None:
        with tarfile.open(temporary, "w") as tar:
            for domain in dataset.domains:
                for index in range(len(domain)):
                    content = _webp(domain, index, quality)
                    entry = tarfile.TarInfo(_member(dataset, domain, index))
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))

    write_atomically(output, write)
    print(f"{output}: {sum(map(len, dataset.domains))} pictures, {output.stat().st_size / 2**20:.1f} MiB")


@app.command()
def cache(clear: Annotated[bool, typer.Option("--clear", help="delete all stored pictures")] = False) -> None:
    """Say where decoded pictures are kept, or delete them; the originals are never touched."""
    if clear:
        print(f"{clear_cache() / 2**20:.1f} MiB freed")
    else:
        print(default_cache())


def _counts(dataset: Dataset, domain: DomainData) -> list[str]:
    if domain.labels is None:
        return ["-"] * len(dataset.classes)
    return [str(count) for count in domain.labels.bincount(minlength=len(dataset.classes)).tolist()]


def _member(dataset: Dataset, domain: DomainData, index: int) -> str:
    label = [] if domain.labels is None else [dataset.classes[int(domain.labels[index])]]
    return "/".join([dataset.name, domain.name, *label, f"{index:06d}.webp"])


def _webp(domain: DomainData, index: int, quality: int) -> bytes:
    height, width = domain.sizes[index].tolist()
    pixels = domain.images[index, :, :height, :width].expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()
