"""Three hundred ways to break data: no traceback, nothing written outside of the cache, and each named in one line."""

import io
import json
import os
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedgala.cli.app import run
from layouts import Files, annotations, below, lists, pixels, small, write, write_tar, write_zip

Damage = Callable[[random.Random, Path], str]  # in a folder; what must be named, if anything

PLACES = [f"{d}/{c}/{n}.png" for d in "ab" for c in ("cat", "dog") for n in range(3)]
MINE = {path: pixels(number) for number, path in enumerate(PLACES)}
ANIMALS = ("cat", "dog", "bird", "coyote", "empty", "rabbit")
SEEN = [f"location_{n}/{c}/{n}{c}{i}.png" for n in (38, 43) for c in ANIMALS for i in range(2)]
TERRA = {path: pixels(number) for number, path in enumerate(SEEN)}
FLAT = {path: f"all/{path.replace('/', '_')}" for path in MINE}
LISTED = {FLAT[path]: data for path, data in MINE.items()}
LISTS = {
    f"{d}_train.txt": "".join(f"{FLAT[path]} {int('dog' in path) + 1}\n" for path in MINE if path[0] == d).encode()
    for d in "ab"
}
ROWS = ["path,site,class", *(f"{flat},{path[0]},{path[2:5]}" for path, flat in FLAT.items())]
TREES: dict[str, Files] = {
    "PACS": below("PACS", small("PACS", 1)) | below("splits", lists(small("PACS", 1), ("train_kfold",), 1)),
    "mine": MINE,
    "bare": {path.replace("/dog/", "/").replace("/cat/", "/c"): data for path, data in MINE.items()},
    "terra": annotations(TERRA, 2),
    "lists": LISTED | LISTS,
    "table": LISTED | {"t.csv": "\n".join(ROWS).encode()},
}


def some_file(rng: random.Random, root: Path, *suffixes: str) -> Path:
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix in (suffixes or (".png",)))
    return rng.choice(paths or sorted(path for path in root.rglob("*") if path.is_file()))


def truncate(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root)
    path.write_bytes(path.read_bytes()[: rng.randrange(40)])
    return path.name


def not_a_picture(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root)
    path.write_bytes(rng.choice([b"", b"<html>404</html>", b"%!PS-Adobe-3.0 EPSF-3.0\n", rng.randbytes(200)]))
    return path.name


def flip_bytes(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root, ".png", ".txt", ".csv", ".json")
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 9)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    return ""


def remove(rng: random.Random, root: Path) -> str:
    some_file(rng, root, ".png", ".txt", ".csv", ".json").unlink()
    return ""


def other_name(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root)
    names = ["ünï cödé 画像.png", " a  b .png", "line\nbreak.png", os.fsdecode(b"\xff\xfe.png"), "-rf.png"]
    names += ["x" * 200 + ".png", "'; rm -rf .png", "%s{}.png", "a\u202eb.png", "CON.png"]
    path.rename(path.with_name(rng.choice(names)))
    return ""


def wrong_extension(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root)
    return path.rename(path.with_suffix(rng.choice([".txt", ".tiff", ".gz", ".pdf", ".jpg.part"]))).name if rng else ""


def circle(rng: random.Random, root: Path) -> str:
    folder = some_file(rng, root).parent
    (folder / "circle").symlink_to(rng.choice([folder, folder.parent, root]))
    return "circle"


def odd_entry(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root).parent / "odd.png"
    makers: list[Callable[[], None]]
    makers = [lambda: path.symlink_to("nowhere"), lambda: path.symlink_to(path.name), lambda: os.mkfifo(path)]
    rng.choice(makers)()
    return "odd.png"


def empty_folder(rng: random.Random, root: Path) -> str:
    (some_file(rng, root).parent / "hollow").mkdir()
    return "hollow"


def copy_of_another(rng: random.Random, root: Path) -> str:
    path, other = some_file(rng, root), some_file(rng, root)
    path.with_name("copy.png").write_bytes(other.read_bytes())
    return "copy.png" if root.name in ("PACS", "mine", "bare") else ""


def too_deep(rng: random.Random, root: Path) -> str:
    place = some_file(rng, root).parent / "/".join(["deep"] * rng.randint(1, 20))
    place.mkdir(parents=True)
    (place / "1.png").write_bytes(pixels(0))
    return ""


def spoil_json(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root, ".json")
    data = path.read_bytes()
    spoiled: list[bytes] = [
        data[: rng.randrange(len(data))],
        b"[" * 5000,
        b"null",
        b"\xff",
        b"1" * 5000,
        b"",
        b'{"images": 3}',
    ]
    path.write_bytes(rng.choice(spoiled))
    return ""


def spoil_rows(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root, ".json")
    table = json.loads(path.read_text()) if path.suffix == ".json" else {}
    for rows in table.values():
        for _ in range(3):
            row = rng.choice(rows)
            if isinstance(row, dict):
                odd: list[object] = [
                    None,
                    -1,
                    1.5,
                    True,
                    [],
                    {},
                    "",
                    "../../x.png",
                    "\ud800",
                    float("nan"),
                    "x\ny",
                    10**30,
                ]
                row[rng.choice(sorted(row))] = rng.choice(odd)
            rows.append(rng.choice([None, 7, {}, [], row]))
    path.write_text(json.dumps(table))
    return path.name if path.suffix == ".json" else ""


def spoil_lines(rng: random.Random, root: Path) -> str:
    path = some_file(rng, root, ".txt", ".csv")
    if path.suffix not in (".txt", ".csv"):
        return ""
    lines = path.read_bytes().split(b"\n")
    odd = [b"a b c d", b"/etc/passwd 1", b"../../x.png 2", b"gone.png 99999999999", b"nolabel", b"\xff\xfe", b",,,"]
    odd += [b'"', lines[0], lines[-2], b"x" * 9000, b"all/a_cat_0.png 7", b"all/a_cat_0.png,z,z", b"\0"]
    for _ in range(rng.randint(1, 4)):
        lines.insert(rng.randrange(1, len(lines)), rng.choice(odd))
    path.write_bytes(rng.choice([b"\n", b"\r\n"]).join(lines))
    return path.name if b"nolabel" in lines and root.name in ("lists", "table") else ""


DAMAGE: list[Damage] = [truncate, not_a_picture, flip_bytes, remove, other_name, wrong_extension, circle, odd_entry,
                        empty_folder, copy_of_another, too_deep, spoil_json, spoil_rows, spoil_lines]  # fmt: skip


def wrapped(rng: random.Random, root: Path) -> tuple[Path, str]:
    """The tree as an archive with something wrong about it."""
    files = {
        os.fsencode(path.relative_to(root.parent)).decode("latin-1"): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    kind = rng.choice(["tar", "tar.gz", "zip"])
    path = root.parent / f"packed.{kind}"
    named = ""
    if rng.random() < 0.5:
        named = rng.choice(["/etc/up.png", "../up.png", "x/../../up.png", "C:\\up.png"])
        files[named] = pixels(5)
    if kind == "zip":
        write_zip(path, files)
        if rng.random() < 0.3:
            with zipfile.ZipFile(path, "a") as archive:
                link = zipfile.ZipInfo(named := "link.png")
                link.external_attr = 0o120777 << 16
                archive.writestr(link, "/etc/passwd")
    else:
        write_tar(path, files, "w:gz" if kind == "tar.gz" else "w")
        if kind == "tar" and rng.random() < 0.5:
            add_odd(rng, path)
    if rng.random() < 0.5:
        data = bytearray(path.read_bytes())
        data = data[: rng.randrange(len(data))] if rng.random() < 0.5 else data
        for _ in range(rng.randint(0, 20)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        named = ""
    return path, named


def add_odd(rng: random.Random, path: Path) -> None:
    with tarfile.open(path, "a") as tar:
        entry = tarfile.TarInfo(rng.choice(["odd.png", tar.getnames()[0], "a" * 300 + ".png"]))
        entry.type = rng.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.REGTYPE])
        entry.linkname = "../../../etc/passwd"
        tar.addfile(entry, io.BytesIO())


def everything(root: Path) -> dict[str, bytes | str]:
    """All below a folder but the cache."""
    found: dict[str, bytes | str] = {}
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "cache"]
        for name in [*folders, *names]:
            path = Path(place, name)
            is_file = path.is_file() and not path.is_symlink()
            found[str(path)] = path.read_bytes() if is_file else "link or folder"
    return found


@pytest.mark.parametrize("seed", range(300))
def test_broken_data_is_one_line(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDGALA_CACHE", str(tmp_path / "cache"))
    rng = random.Random(seed)
    name = rng.choice(sorted(TREES))
    root = write(tmp_path / "in" / name, TREES[name])
    damage = DAMAGE[seed % len(DAMAGE)]
    named = damage(rng, root)
    target = root
    if seed % 3 == 0:
        target, named = wrapped(rng, root)
    before = everything(tmp_path)

    code = run(["data", "check", str(target)])

    output, errors = capsys.readouterr()
    assert everything(tmp_path) == before
    assert code in (0, 2)
    assert "Traceback" not in output + errors
    if not output:
        assert code == 2 and errors.startswith("fedgala: ") and errors.count("\n") == 1
    elif named:
        assert any(named in line for line in output.splitlines()), f"{damage.__name__}: {named}\n{output}"
