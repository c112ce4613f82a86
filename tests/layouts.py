"""Small copies of the benchmarks, written in every layout that people have them in."""

import io
import itertools
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from fedgala.data.catalog import CATALOG

Files = dict[str, bytes]  # by path


def pixels(number: int, side: int = 4) -> bytes:
    """A picture like no other."""
    noise = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    return file.getvalue()


def small(name: str, each: int = 2, classes: int | None = None) -> Files:
    """`each` pictures of every domain and class of a data set: ``domain/class/pic_1.png``."""
    entry = CATALOG[name]
    places = itertools.product(sorted(entry.domains), sorted(entry.classes)[:classes], range(1, each + 1))
    return {f"{d}/{c}/pic_{i}.png": pixels(n) for n, (d, c, i) in enumerate(places)}


def spelled(files: Files, domain: Callable[[str], str], label: Callable[[str], str] = str) -> Files:
    """The same with folders by other names."""
    parts = {path: path.split("/") for path in files}
    return {"/".join([domain(d), label(c), name]): files[path] for path, (d, c, name) in parts.items()}


def below(top: str, files: Files) -> Files:
    return {f"{top}/{path}": data for path, data in files.items()}


def split(files: Files, names: Iterable[str] = ("train", "val"), level: int = 1) -> Files:
    """The same with a folder for each split, its pictures dealt out."""
    found = {}
    for (path, data), name in zip(files.items(), itertools.cycle(names), strict=False):
        steps = path.split("/")
        found["/".join([*steps[:level], name, *steps[level:]])] = data
    return found


def lists(files: Files, splits: Iterable[str] = ("train", "test"), first: int = 0, end: str = ".txt") -> Files:
    """Text lists ``domain_split.txt`` of paths and class numbers."""
    labels = sorted({path.split("/")[1] for path in files})
    domains = sorted({path.split("/")[0] for path in files})
    found = {}
    for domain, name in itertools.product(domains, splits):
        paths = [path for path in files if path.startswith(f"{domain}/")]
        lines = [f"{path} {labels.index(path.split('/')[1]) + first}\n" for path in paths]
        found[f"{domain}_{name}{end}"] = "".join(lines).encode()
    return found


def table(files: Files, columns: str = ",split,domain_remapped,domain,category,y,path", top: str = "") -> bytes:
    """A table in the manner of WILDS, or with other columns."""
    labels = sorted({path.split("/")[1] for path in files})
    lines = [columns]
    for number, path in enumerate(files):
        d, c, _ = path.split("/")
        row = {"": number, "split": "train", "domain_remapped": 0, "domain": d, "category": c, "cat": c,
               "y": labels.index(c), "path": top + path, "data": top + path}  # fmt: skip
        lines.append(",".join(str(row[column]) for column in columns.split(",")))
    return "\n".join(lines).encode()


def annotations(files: Files, parts: int = 5) -> Files:
    """The raw form of TerraIncognita: images in one folder, and what they show in JSON."""
    names = sorted({path.rpartition("/")[2] for path in files})
    categories = [*sorted({path.split("/")[1] for path in files}), "car", "badger"]
    place = {path.rpartition("/")[2]: path.split("/")[0].removeprefix("location_") for path in files}
    images = [{"id": f"id-{n}", "file_name": n, "location": int(place[n]), "width": 4} for n in names]
    images += [
        {"id": "far", "file_name": "far.png", "location": 7},
        {"id": "off", "file_name": "off.png", "location": 38},
    ]
    marks = [{"id": str(i), "image_id": f"id-{p.rpartition('/')[2]}", "category_id": categories.index(p.split("/")[1])}
             for i, p in enumerate([*files, *files])]  # fmt: skip
    marks.append({"id": "car", "image_id": "off", "category_id": categories.index("car")})
    kinds = [{"id": i, "name": name} for i, name in enumerate(categories)]
    found: Files = {f"eccv_18_all_images_sm/{path.rpartition('/')[2]}": data for path, data in files.items()}
    found |= {"eccv_18_all_images_sm/far.png": pixels(10**6), "eccv_18_all_images_sm/off.png": pixels(10**6 + 1)}
    for part, name in enumerate(["train", "cis_val", "cis_test", "trans_val", "trans_test"][:parts]):
        here = images[part::parts]
        ids = {image["id"] for image in here}
        content = {"images": here, "annotations": [m for m in marks if m["image_id"] in ids], "categories": kinds}
        found[f"eccv_18_annotation_files/{name}_annotations.json"] = json.dumps(content).encode()
    return found


def unique_names(files: Files) -> Files:
    """TerraIncognita's names are its own throughout; one image shows two animals, and so has two places."""
    named = {f"{path.rpartition('/')[0]}/{number:04d}.png": data for number, (path, data) in enumerate(files.items())}
    first, data = next(iter(named.items()))
    domain, _, name = first.split("/")
    return named | {f"{domain}/raccoon/{name}": data}


def write(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def write_tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def write_zip(path: Path, files: Mapping[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path
