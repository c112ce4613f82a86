"""The page in a real browser: no complaints, nothing fetched, charts drawn, both themes, no sideways scrolling."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import browser
from fedgala import api
from fedgala.cli.app import run as command
from fedgala.config import RunConfig
from test_report import small

pytest.importorskip("plotly", reason="needs fedgala[report]")
pytestmark = pytest.mark.skipif(browser.executable() is None, reason="no Chromium here: apt-get install chromium")

DESKTOP, PHONE = (1280, 900), (390, 844)
DRAWN = """[...document.querySelectorAll(".chart")].map(place => [
  place.id, place.querySelectorAll("svg .trace, svg .hm image, svg .barlayer path, svg .point").length,
  place.querySelector(".main-svg").getBoundingClientRect().width - place.getBoundingClientRect().width])"""
INK = """[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor,
  getComputedStyle(document.querySelector(".chart .xtick text")).fill]"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("runs")
    runs = [api.train(RunConfig.from_dict(small(str(out), seed=seed))) for seed in (0, 1)]
    for folder in (runs[0].folder, out):
        assert command(["report", str(folder), "--device", "cpu", "-q"]) == 0
    return {"run": runs[0].folder / "report.html", "runs": out / "report.html"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def channels(color: str) -> list[int]:
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("kind", ["run", "runs"])
def test_page(kind: str, size: tuple[int, int], dark: bool, pages: dict[str, Path], page: browser.Page) -> None:
    page.open(pages[kind], *size, dark)
    assert page.errors == []
    assert page.requests == [pages[kind].resolve().as_uri()], "the page asked for something"
    for name, marks, over in page.run(DRAWN):
        assert marks > 0, f"{name} shows nothing"
        assert over <= 1, f"{name} is wider than its box"
    assert page.run("document.documentElement.scrollWidth") <= size[0] == page.run("innerWidth")
    ink, paper, tick = map(channels, page.run(INK))
    assert (sum(paper) < 200 and sum(ink) > 600) if dark else (sum(paper) > 700 and sum(ink) < 200)
    assert tick == ink, "the charts have colours of their own"


CHART = """window.chart = start => [...document.querySelectorAll("figure")].find(
  figure => figure.querySelector("h3")?.textContent.startsWith(start)).querySelector(".chart"); 0"""


def test_what_can_be_pressed_does_what_it_says(pages: dict[str, Path], page: browser.Page) -> None:
    page.open(pages["run"], *DESKTOP, dark=False)
    page.run(CHART)
    before = page.run(INK)
    click(page, "document.getElementById('theme')")
    after = page.run(INK)
    assert sum(channels(before[1])) > 700 and sum(channels(after[1])) < 200 and after[2] != before[2]
    last = page.run("JSON.stringify(chart('Cosines').data[0].z)")
    page.run("Plotly.animate(chart('Cosines'), ...chart('Cosines').layout.sliders[0].steps[0].args).then(() => 0)")
    assert page.run("JSON.stringify(chart('Cosines').data[0].z)") != last
    layers = "chart('Gradients in conflict, by layer')"
    labels: Any = page.run(f"{layers}.layout.updatemenus[0].buttons.map(button => button.label)")
    assert labels == ["mean of the clients", "art_painting", "cartoon", "photo"]
    page.run(f"Plotly.restyle({layers}, ...{layers}.layout.updatemenus[0].buttons[2].args).then(() => 0)")
    assert page.run(f"{layers}.data.map(trace => trace.visible)") == [False, False, True, False]
    click(page, "chart('Training loss').querySelector('.legendtoggle')")
    assert page.run("chart('Training loss').data.map(trace => trace.visible ?? true)") == ["legendonly", True, True]
    assert page.errors == []


def click(page: browser.Page, element: str) -> None:
    """Press the mouse there, and wait as long as a chart waits for a second click."""
    page.run(f"{element}.scrollIntoView({{block: 'center'}})")
    x, y = page.run(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({element}.getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    page.run("new Promise(done => setTimeout(done, 800))")


def test_the_test_sees_errors_and_requests(tmp_path: Path, page: browser.Page) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<html data-drawn=yes><img src='http://127.0.0.1:9/x.png'><script>console.error('loud'); nothing.here</script>"
    )
    page.open(bad, *DESKTOP, dark=False)
    page.run("new Promise(done => setTimeout(done, 300))")
    assert any("loud" in error for error in page.errors) and any("nothing" in error for error in page.errors)
    assert "http://127.0.0.1:9/x.png" in page.requests
