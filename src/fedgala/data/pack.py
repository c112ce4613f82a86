"""A data set as one file to take along: a tar of small WebP pictures that is read in place wherever it goes."""

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath

from PIL import Image

from fedgala.data.decode import in_order
from fedgala.data.domain import Dataset, DomainData
from fedgala.data.layouts import MANIFEST
from fedgala.errors import ConfigError
from fedgala.storage import write_atomically

_CHUNK = 32  # pictures that one thread encodes at a time


def pack(
    dataset: Dataset, names: Sequence[str], path: Path, quality: int, progress: Callable[[int, int], None]
) -> None:
    """Write ``NAME/DOMAIN/CLASS/FILE.webp`` for each picture, in order, and a manifest that says where domains are.

    The same pictures give the same bytes. `names` are those of the original files, kept where they stay apart.

    Raises:
        ConfigError: the file's name is not that of a tar.
        CheckpointError: it cannot be written.
    """
    if path.suffix != ".tar":
        raise ConfigError(f"'{path}': a pack is a tar, so its name ends in .tar")
    members = list(_members(dataset, names))
    manifest = json.dumps({"name": dataset.name, "classes": dataset.classes, "domains": dataset.names}).encode()

    def write(temporary: Path) -> None:
        """All pictures, the manifest before them."""
        done = 0
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, f"{dataset.name}/{MANIFEST}", manifest)
            for domain in dataset.domains:
                index = range(len(domain))
                with closing(in_order(partial(_encode, domain, quality=quality), index, _CHUNK)) as results:
                    for result in results:
                        for content in result:
                            _add(tar, members[done], content)
                            done += 1
                        progress(done, len(members))

    write_atomically(path, write)


def _members(dataset: Dataset, names: Sequence[str]) -> Iterator[str]:
    """The name of each picture in the tar: that of its file, with its number where two would be the same."""
    folders, stems, start = [], [], 0
    for domain in dataset.domains:
        labels = [-1] * len(domain) if domain.labels is None else domain.labels.tolist()
        folders += [[domain.name] if label < 0 else [domain.name, dataset.classes[label]] for label in labels]
        stems += [PurePosixPath(name).stem for name in names[start : start + len(domain)]]
        start += len(domain)
    uses = Counter(("/".join(folder), stem) for folder, stem in zip(folders, stems, strict=True))
    clash = {place for (place, _), count in uses.items() if count > 1}
    for number, (folder, stem) in enumerate(zip(folders, stems, strict=True)):
        unique = f"{number:06d}_{stem}" if "/".join(folder) in clash else stem
        yield "/".join([dataset.name, *folder, f"{unique}.webp"])


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _encode(domain: DomainData, index: Sequence[int], quality: int) -> list[bytes]:
    return [_webp(domain, one, quality) for one in index]


def _webp(domain: DomainData, index: int, quality: int) -> bytes:
    buffer = io.BytesIO()
    pixels = domain.picture(index).permute(1, 2, 0).contiguous().numpy()
    Image.fromarray(pixels).save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()
