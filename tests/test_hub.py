"""Rows of a Hugging Face data set: the same value as folders, whatever its columns are called and wherever it lies."""

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedgala
from fedgala.cli.app import run
from fedgala.config import DataConfig, RunConfig
from fedgala.data.catalog import CATALOG
from fedgala.data.check import check
from fedgala.data.listing import PictureError
from fedgala.data.resolve import resolve
from fedgala.data.rows import list_rows
from fedgala.data.store import open_store
from fedgala.errors import ConfigError, DataError
from layouts import Files, pixels, small, spelled, write
from test_resolve import value

datasets = pytest.importorskip("datasets")
MINE = {f"{d}/{c}/{n}.png": pixels(ord(d) * ord(c) + n) for d in "ab" for c in "xy" for n in (2, 10)}
INFOGRAPH = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def rows(
    files: Files, domain: Any = None, label: Any = None, image: Any = None, names: str = "image domain label"
) -> Any:
    """A data set with a row for each file; the columns are of the types given, or an Image, text and ClassLabel."""
    split = [path.split("/") for path in files]
    label = label or datasets.ClassLabel(names=sorted({c for _, c, _ in split}))
    domain = domain or datasets.Value("string")
    image = image or datasets.Image()
    plain = getattr(image, "dtype", "") == "binary"
    columns = (
        [data if plain else {"bytes": data, "path": path.rpartition("/")[2]} for path, data in files.items()],
        [_cast(domain, d, sorted({d for d, _, _ in split})) for d, _, _ in split],
        [_cast(label, c, sorted({c for _, c, _ in split})) for _, c, _ in split],
    )
    features = datasets.Features(dict(zip(names.split(), (image, domain, label), strict=True)))
    return datasets.Dataset.from_dict(dict(zip(names.split(), columns, strict=True)), features=features)


def _cast(kind: Any, name: str, names: list[str]) -> object:
    return names.index(name) if kind.dtype.startswith("int") else name


def saved(whole: Any, root: Path, parts: int = 2) -> Path:
    """As parquet files that the hub would hold, dealt out to the splits train and test, no row where it was."""
    whole = whole.shuffle(seed=0)
    (root / "data").mkdir(parents=True)
    for number, split in enumerate(("train", "test")[:parts]):
        whole.shard(parts, number).to_parquet(root / "data" / f"{split}-00000-of-00001.parquet")
    return root


HOME = dict(list(small("Office-Home", 1).items()))
CASES: dict[str, tuple[Files, Callable[[], Any]]] = {
    "PACS": (small("PACS"), lambda: rows(small("PACS"))),
    "Office-Home": (HOME, lambda: rows(spelled(HOME, str, lambda c: c.replace("_", " ")))),
    "DomainNet": (
        small("DomainNet", 1),
        lambda: rows(small("DomainNet", 1), datasets.ClassLabel(names=list(INFOGRAPH))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hub_copy_is_the_same_value_as_folders(name: str, tmp_path: Path) -> None:
    files, make = CASES[name]
    expected = value(write(tmp_path / "folders", files))
    assert expected[0] == name and expected[2] == tuple(sorted(CATALOG[name].classes))
    assert value(f"hf:{saved(make(), tmp_path / 'copy')}") == expected


def test_a_part_of_a_hub_copy_is_that_part(tmp_path: Path) -> None:
    folders = write(tmp_path / "folders", small("DomainNet", 1))
    copy = saved(CASES["DomainNet"][1](), tmp_path / "copy")
    assert value(f"domainnet-20:hf:{copy}") == value(f"domainnet-20:{folders}")
    (note,) = resolve(f"domainnet-20:hf:{copy}").notes()
    assert note.startswith("1,950 pictures left out, of none of its classes: clipart/The_Great_Wall_of_China, ")
    assert "all pictures of the 126 classes are taken" in resolve(f"mini-domainnet:hf:{copy}").notes()[1]


@pytest.mark.parametrize("names", ["image domain label", "img Site_ category", "Picture env Y"])
@pytest.mark.parametrize("image", ["Image", "struct", "binary"])
@pytest.mark.parametrize("kind", ["string", "large_string", "int8", "ClassLabel"])
def test_columns_are_recognised_by_type_and_name(names: str, image: str, kind: str) -> None:
    names = names.replace("Site_", "Site")
    pictures = {
        "Image": datasets.Image(),
        "struct": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
        "binary": datasets.Value("binary"),
    }
    types = [
        datasets.ClassLabel(names=list(it)) if kind == "ClassLabel" else datasets.Value(kind) for it in ("ab", "xy")
    ]
    listing = list_rows(rows(MINE, types[0], types[1], pictures[image], names), "mine")
    domains, classes = (("0", "1"), ("0", "1")) if kind == "int8" else (("a", "b"), ("x", "y"))
    assert (listing.name, listing.known, listing.domains, listing.classes) == ("mine", None, domains, classes)
    assert listing.layout == f"rows with columns {', '.join(names.split())}"
    assert {it.source.read() for it in listing.items} == set(MINE.values())
    assert [it.name for it in listing.items[:2]] == (
        ["row[0]", "row[1]"] if image == "binary" else ["row[0]/2.png", "row[1]/10.png"]
    )


def test_without_classes_and_without_some_values() -> None:
    whole = rows(MINE)
    bare = list_rows(whole.remove_columns("label"))
    assert (bare.classes, bare.notes()) == ((), ())
    domains = ["a", "a", "a", None, "b", " ", "b", "b"]
    gaps = (
        whole.remove_columns(["domain", "label"])
        .add_column("domain", domains)
        .add_column("y", [0, 1, -1, 0] + [-1] * 4)
    )
    listing = list_rows(gaps)
    assert [(it.domain, it.label) for it in listing.items] == [("a", "0"), ("a", "1")] + [("b", None)] * 3
    assert listing.notes() == (
        "2 rows without a domain left out: row[3]/10.png, row[5]/10.png",
        "1 row without a class left out of domains with classes: row[2]/2.png",
    )


def test_a_name_can_serve_as_that_of_a_folder() -> None:
    listing = list_rows(rows({"a/x/1.png": pixels(1)}, label=datasets.ClassLabel(names=["x/../ y\n"])).map(
        lambda row: {"label": 0}))  # fmt: skip
    assert listing.classes == ("x_.._ y\\n",)


def test_one_parquet_file_and_a_saved_data_set_are_read_too(tmp_path: Path) -> None:
    expected = value(write(tmp_path / "folders" / "mine", MINE))
    (saved(rows(MINE), tmp_path / "x", 1) / "data" / "train-00000-of-00001.parquet").rename(tmp_path / "mine.parquet")
    assert value(f"hf:{tmp_path / 'mine.parquet'}") == expected
    for place, whole in (("a", datasets.DatasetDict({"train": rows(MINE)})), ("b", rows(MINE))):
        whole.save_to_disk(tmp_path / place / "mine")
        assert value(f"hf:{tmp_path / place / 'mine'}") == expected


def test_a_partition_of_flwr_datasets_is_listed() -> None:
    partitioner = pytest.importorskip("flwr_datasets.partitioner", reason="flwr-datasets is not installed")
    natural = partitioner.NaturalIdPartitioner(partition_by="domain")
    natural.dataset = rows(small("PACS"))
    for number in range(4):
        listing = list_rows(natural.load_partition(number))
        (domain,) = listing.domains
        assert (listing.known, domain) == ("PACS", natural.partition_id_to_natural_id[number])
        assert listing.classes == CATALOG["PACS"].classes
        expected = [data for path, data in small("PACS").items() if path.startswith(domain)]
        assert [it.source.read() for it in listing.items] == expected


def test_chosen_rows_in_another_order_keep_their_bytes() -> None:
    chosen = rows(MINE).select([6, 1, 3]).with_format("numpy")
    listing = list_rows(chosen)
    held = list(MINE.values())
    assert [(it.name, it.source.read()) for it in listing.items] == [
        ("row[1]/10.png", held[1]), ("row[2]/10.png", held[3]), ("row[0]/2.png", held[6]),
    ]  # fmt: skip


def test_pictures_are_decoded_by_us_and_faults_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = MINE | {"a/x/10.png": MINE["a/x/10.png"][:-40], "b/x/10.png": MINE["a/x/2.png"]}
    copy = saved(rows(files), tmp_path / "mine", 1)
    monkeypatch.setattr(datasets.Image, "decode_example", None)
    found = check(resolve(f"hf:{copy}"), lambda done, total: None)
    assert [skip.reason for skip in found.unreadable] == ["truncated"]
    assert found.unreadable[0].name.startswith("train[") and found.unreadable[0].name.endswith("]/10.png")
    assert [len(same) for same in found.duplicates] == [2]
    assert len(open_store(found.listing)["a"]) == 3


def test_rows_may_name_files(tmp_path: Path) -> None:
    write(tmp_path, {"1.png": pixels(1)})
    paths = [{"bytes": None, "path": path} for path in (str(tmp_path / "1.png"), str(tmp_path / "2.png"), None)]
    whole = datasets.Dataset.from_dict({"image": paths, "domain": ["a"] * 3}).cast_column("image", datasets.Image())
    here, absent, nowhere = (it.source for it in sorted(list_rows(whole).items, key=lambda it: it.name))
    assert here.read() == pixels(1)
    with pytest.raises(FileNotFoundError):
        absent.read()
    with pytest.raises(PictureError, match="neither bytes nor a file in its row"):
        nowhere.read()
    before = here.stamp()
    write(tmp_path, {"1.png": pixels(2, 5)})
    assert here.stamp() != before


def test_stamps_stay_until_the_files_change(tmp_path: Path) -> None:
    def stamps(copy: Path) -> set[str]:
        return {it.source.stamp() for it in resolve(f"hf:{copy}").items}

    copy, kept = saved(rows(MINE), tmp_path / "mine", 1), tmp_path / "kept"
    rows(MINE).save_to_disk(kept)
    before = stamps(copy), stamps(kept)
    assert len(before[0]) == len(before[1]) == 8
    assert (stamps(copy), stamps(kept)) == before
    rows(MINE | {"a/x/2.png": pixels(999)}).to_parquet(copy / "data" / "train-00000-of-00001.parquet")
    os.utime(kept / "data-00000-of-00001.arrow")
    assert not stamps(copy) & before[0] and not stamps(kept) & before[1]


def test_rows_that_were_chosen_otherwise_have_other_stamps(tmp_path: Path) -> None:
    saved(rows(MINE), tmp_path / "mine", 1)
    whole = datasets.load_dataset("parquet", data_files=str(tmp_path / "mine" / "data" / "*"))["train"]
    first, again, last = (
        {it.source.stamp() for it in list_rows(whole.select(chosen)).items} for chosen in ([0, 1], [0, 1], [6, 7])
    )
    assert len(first) == 2 and first == again and not first & last


def refusal(named: str, kind: type[Exception], *words: str) -> None:
    with pytest.raises(kind) as caught:
        resolve(named)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_columns_that_do_not_say_enough(tmp_path: Path) -> None:
    whole = rows(MINE)
    for name, part, words in (
        (
            "a",
            whole.remove_columns("domain"),
            "no column for the domain (columns image (Image), label (ClassLabel)): call",
        ),
        (
            "b",
            whole.remove_columns("image"),
            "no column of pictures: call it image, an Image or bytes; there are columns",
        ),
        ("c", whole.rename_column("image", "one").add_column("two", [{"bytes": b"", "path": ""}] * 8), "(one, two)"),
    ):
        refusal(f"hf:{saved(part, tmp_path / name, 1)}", DataError, f"'hf:{tmp_path / name}'", words)
    copy = saved(whole, tmp_path / "e")
    refusal(f"VLCS:hf:{copy}", DataError, f"'hf:{copy}' holds no picture of VLCS")
    with pytest.raises(DataError, match="'mine' holds no picture with a domain"):
        list_rows(whole.select([]), "mine")
    with pytest.raises(DataError, match="of type IterableDataset, a datasets.Dataset is needed: load it without"):
        list_rows(whole.to_iterable_dataset())


def test_home_may_be_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    saved(rows(MINE), tmp_path / "mine")
    assert len(resolve("hf:~/mine").items) == 8


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for place in ("mine", "./a/b", "a/b/c", "a/b.parquet", "", str(tmp_path / "x")):
        refusal(f"hf:{place}", DataError, f"there is no folder or .parquet file '{place}'", "as hf:OWNER/NAME")
    write(tmp_path, {"x.tar": b"", "bad/x.parquet": b"bad", "empty/.x": b""})
    refusal(f"hf:{tmp_path / 'x.tar'}", DataError, "is no .parquet file: archives of pictures are named without hf:")
    refusal(
        f"hf:{tmp_path / 'bad'}", DataError, "cannot be read as a Hugging Face data set (Parquet file size is 3 bytes"
    )
    refusal(f"hf:{tmp_path / 'empty'}", DataError, "cannot be read as a Hugging Face data set (The directory at ")


def test_the_library_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    refusal("hf:flwrlabs/pacs", ConfigError, "'hf:flwrlabs/pacs' is read by", "pip install 'fedgala[hf]'")


class EmptyHub(http.server.BaseHTTPRequestHandler):
    """Answers as huggingface.co does where it holds no such repository."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_GET

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def empty_hub() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EmptyHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def command(*words: object, **environment: str) -> tuple[int, str, str]:
    call = [sys.executable, "-c", "from fedgala.cli import main; main()", *map(str, words)]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment)
    return done.returncode, done.stdout, done.stderr


def test_a_hub_out_of_reach_one_without_it_and_damage_are_one_line(empty_hub: str, tmp_path: Path) -> None:
    write(tmp_path, {"bad.parquet": b"bad"})
    code, output, errors = command("data", "check", f"hf:{tmp_path / 'bad.parquet'}")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    code, output, errors = command("data", "check", "hf:flwrlabs/pacs")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "huggingface.co cannot be reached for 'hf:flwrlabs/pacs': try again, or name a copy on disk" in errors
    code, output, errors = command("data", "check", "hf:a/b", HF_HUB_OFFLINE="0", HF_ENDPOINT=empty_hub)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "no folder 'a/b' here, and no data set of that name on huggingface.co that may be read" in errors


def test_what_is_not_watched_makes_no_noise_and_leaves_no_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = saved(rows(small("PACS")), tmp_path / "copy")
    capfd.readouterr()
    assert run(["data", "check", f"hf:{copy}"]) == 0
    output, errors = capfd.readouterr()
    lines = output.splitlines()
    assert lines[0] == f"PACS: hf:{copy}, read as rows with columns image, domain, label"
    assert lines[-1] == "PACS, not complete: 9,935 pictures missing, 0 extra"
    assert "Generating" not in errors and "%|" not in errors
    assert not datasets.are_progress_bars_disabled() and datasets.logging.get_verbosity() == 30


def test_a_run_on_rows_is_the_run_on_folders(tiny: Callable[..., RunConfig], folder: Path, tmp_path: Path) -> None:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.png")}
    copy = saved(rows(files), tmp_path / "copy" / "pictures")
    configs = tiny(), tiny(data={"path": f"hf:{copy}"})
    losses = [[row.get("loss") for row in fedgala.train(config).records.read()] for config in configs]
    assert losses[0] == losses[1] and any(losses[0])
    assert [config.folder.name[:15] for config in configs] == ["pictures-plain-"] * 2


def test_a_pack_of_rows_is_the_same_data_set(tmp_path: Path) -> None:
    copy = saved(rows(small("PACS")), tmp_path / "copy")
    assert run(["data", "pack", f"hf:{copy}", "-o", str(tmp_path / "p.tar")]) == 0
    found, packed = resolve(f"hf:{copy}"), resolve(tmp_path / "p.tar")
    assert (packed.known, [(it.domain, it.label) for it in packed.items]) == (
        "PACS", [(it.domain, it.label) for it in found.items],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [("hf:flwrlabs/pacs", "pacs"), ("domainnet-20:hf:wltjr1007/DomainNet", "DomainNet"), ("hf:/data/x.parquet", "x"),
     ("hf:mine", "mine"), ("hf:./a/b", "b")],
)  # fmt: skip
def test_names_of_runs_and_their_data(path: str, name: str) -> None:
    config = RunConfig(data=DataConfig(path=path))
    assert config.data.path == path
    assert config.folder == Path("runs") / f"{name}-{config.hash}"


def test_fetch_downloads_the_copy_on_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return run(["data", "fetch", *words]), *capsys.readouterr()

    assert {name: entry.hub for name, entry in CATALOG.items() if entry.hub} == {
        "PACS": "flwrlabs/pacs",
        "Office-Home": "flwrlabs/office-home",
        **dict.fromkeys(("DomainNet", "DomainNet-20", "mini-DomainNet"), "wltjr1007/DomainNet"),
    }
    assert "or       fedgala data fetch PACS --download, then --data hf:flwrlabs/pacs\n" in said("pacs")[1]
    assert "--data domainnet-20:hf:wltjr1007/DomainNet\n" in said("domainnet20")[1]
    assert "--download" not in said("VLCS")[1]
    asked: list[str] = []
    copy, load = saved(rows(small("PACS")), tmp_path / "copy"), datasets.load_dataset

    def load_copy(path: str) -> Any:
        asked.append(path)
        return load(str(copy))

    monkeypatch.setattr(datasets, "load_dataset", load_copy)
    code, output, _ = said("PACS", "--download")
    assert (code, asked) == (0, ["flwrlabs/pacs"])
    assert output.splitlines() == [
        "accept   not stated by its authors: for research, at your own judgement",
        "got      56 pictures of 4 domains",
        "then     fedgala train --data hf:flwrlabs/pacs",
    ]
    code, output, errors = said("VLCS", "--download")
    assert (code, output) == (2, "") and "VLCS: no copy on huggingface.co is known, `fedgala data fetch VLCS`" in errors
    code, output, errors = said("--download")
    assert (code, output) == (2, "") and "--download: name the data set too" in errors
