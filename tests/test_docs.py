"""What the documentation tells people to type works: its console blocks are typed, in order, page by page."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with ``photos/`` in it: four sites, two classes, 36 pictures each."""
    generator = np.random.default_rng(0)
    for domain in ("art", "cartoon", "photo", "sketch"):
        for kind in ("cat", "dog"):
            (tmp_path / "photos" / domain / kind).mkdir(parents=True)
            for number in range(36):
                pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / domain / kind / f"{number}.jpg")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_of(page: Path, place: Path) -> None:
    for command in commands(page):
        if command.startswith(("pip ", "make ")):
            continue  # what it installs is what runs here
        line = re.sub(r"^fedgala", f"{sys.executable} -c 'from fedgala.cli import main; main()'", command)
        done = subprocess.run(line, shell=True, cwd=place, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_of(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_record_on_the_page_on_extending_is_the_real_one() -> None:
    shown, real = (
        [line.partition("  #")[0].strip() for line in text.split("class SSLMethod")[1].split("```")[0].splitlines()]
        for text in ((ROOT / name).read_text() for name in ("docs/extend.md", "src/fedgala/ssl/base.py"))
    )
    fields = [line for line in shown if ": " in line]
    assert len(fields) == 8 and set(fields) <= set(real)


def test_functions_that_the_method_page_names_exist() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "fedgala").rglob("*.py"))
    oracles = (ROOT / "tests" / "oracles.py").read_text()
    for _, here, twin in re.findall(
        r"^\| (.+?) \| (.+?) \| (.*?) \|$", (ROOT / "docs" / "method.md").read_text(), re.M
    ):
        for name in re.findall(r"`[\w.]*?(\w+)`", here):
            assert re.search(rf"\b{name}\b", source) or (ROOT / "src" / "fedgala" / "data" / f"{name}.py").exists(), (
                name
            )
        for name in re.findall(r"^`(\w+)`", twin):
            assert f"def {name}(" in oracles, name
