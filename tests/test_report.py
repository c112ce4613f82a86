"""The page of a run and of a folder of runs: what it says is what was recorded, and what is missing is said."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import torch

from fedgala import api
from fedgala.cli.app import run as command
from fedgala.config import RunConfig
from fedgala.observe import Observer
from fedgala.probe import accuracy
from fedgala.records import Record, Records
from fedgala.report.look import look, nearest, principal, spread
from fedgala.run import Run
from fedgala.studies.outcome import Entry

pytest.importorskip("plotly", reason="needs fedgala[report]")

from fedgala.report import alignment_figures, figures
from fedgala.report.members import find_members
from fedgala.report.run_page import unit_names
from fedgala.report.study_page import write_study_page

Make = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two rounds on the embedded pictures, a few of each domain."""
    return api.train(RunConfig.from_dict(small(str(tmp_path_factory.mktemp("runs")))))


def small(out: str, **over: Any) -> dict[str, Any]:
    return {
        "out": out, "data": {"path": "shapes", "target": "sketch", "size": 32, "limit": 48}, "views": {"crop": 16},
        "model": {"encoder": "small", "projector_hidden": 16, "projector_output": 8},
        "federation": {"rounds": 2, "epochs": 1.0, "batch_size": 16}, "probe": {"epochs": 5, "splits": 3},
        "engine": {"device": "cpu", "threads": 1}, **over,
    }  # fmt: skip


def charts(page: Path) -> dict[str, Any]:
    """The charts of a page by title."""
    text = page.read_text()
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text)
    titles = re.findall(r'<h3>([^<]*)</h3>\s*<div class="chart" id="(chart\d+)"', text)
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    assert len(titles) == len(data)
    return {title: data[name] for title, name in titles}


def a_round(number: int, clients: int = 2, **over: Any) -> Record:
    each = {f"site{i}": {"loss": number + i, "weight": 1 / clients, "conflict": 0.5, "conflicts": [0.25 * i, 1.0]}
            for i in range(clients)}  # fmt: skip
    cosines = torch.eye(clients).tolist()
    return {"kind": "round", "round": number, "seconds": 1.5, "peak_memory": {"process": 2e9}, "clients": each,
            "cosines": cosines, "loss": number, **over}  # fmt: skip


# What is computed.


def test_principal_components_by_hand() -> None:
    points = torch.tensor([[3.0, 0.0, 1.0], [-3.0, 0.0, 1.0], [0.0, -1.0, 1.0], [0.0, 1.0, 1.0]])
    places, shares = principal(points)
    torch.testing.assert_close(places, torch.tensor([[3.0, 0], [-3, 0], [0, -1], [0, 1]]).double())
    torch.testing.assert_close(shares, torch.tensor([0.9, 0.1]).double())


def test_principal_components_keep_distances_of_a_plane() -> None:
    generator = torch.Generator().manual_seed(0)
    plane = torch.randn(20, 2, generator=generator) @ torch.randn(2, 7, generator=generator) + 5
    places, shares = principal(plane)
    torch.testing.assert_close(torch.cdist(places, places).float(), torch.cdist(plane, plane), rtol=1e-3, atol=1e-3)
    assert float(shares.sum()) == pytest.approx(1)


def test_nearest_is_by_angle_and_ordered() -> None:
    bank = torch.tensor([[1.0, 1.0], [9.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    index, cosines = nearest(torch.tensor([[2.0, 0.1]]), bank, 3)
    assert index.tolist() == [[1, 0, 2]]
    naive = [math.cos(math.atan2(0.1, 2) - angle) for angle in (0, math.pi / 4, math.pi / 2)]
    assert cosines[0].tolist() == pytest.approx(naive, abs=1e-6)
    assert nearest(bank, bank, 9)[0].shape == (4, 4)


def test_spread_is_even_and_never_too_long() -> None:
    assert spread(5, 9).tolist() == [0, 1, 2, 3, 4] and spread(9, 3).tolist() == [0, 4, 8]


def test_confusion_of_the_page_is_that_of_the_recorded_probes(trained: Run) -> None:
    found = look(trained, None, "cpu", Observer())
    recorded = trained.records.read("evaluation")[-1]["probe"]["encoder"]
    for ratio, tables in found.confusion.items():
        assert accuracy(tables).tolist() == pytest.approx(recorded[f"{ratio:g}"], abs=1e-6)
    assert list(found.confusion) == [0.1, 0.3] and found.domains[-1].name == "sketch"


# Figures.


def test_a_line_for_each_client_and_none_where_nothing_was_recorded() -> None:
    rounds = [a_round(1), a_round(2)]
    drawn = figures.loss(rounds)
    assert drawn is not None
    assert [(line.name, list(line.y)) for line in drawn.data] == [("site0", [1, 2]), ("site1", [2, 3])]
    without = [{**record, "clients": {"a": {"loss": 1.0, "weight": 1.0}}} for record in rounds]
    assert figures.conflict(without) is None and alignment_figures.conflicts(without, []) is None
    assert figures.loss([]) is figures.cost([]) is figures.accuracy([]) is figures.monitors([]) is None


def test_many_clients_are_lowest_mean_and_highest() -> None:
    drawn = figures.loss([a_round(1, clients=13)])
    assert drawn is not None
    assert {line.name: list(line.y) for line in drawn.data} == {
        "highest client": [13], "mean of the clients": [7], "lowest client": [1]
    }  # fmt: skip


def test_conflicts_by_unit_average_over_who_took_part() -> None:
    rounds = [a_round(1), a_round(2)]
    del rounds[1]["clients"]["site1"]
    drawn = alignment_figures.conflicts(rounds, ["first", "second"])
    assert drawn is not None
    mean, first, second = drawn.data
    assert [list(row) for row in mean.z] == [[0.125, 0.0], [1.0, 1.0]] and list(mean.x) == [1, 2]
    assert [list(row) for row in first.z] == [[0.0, 0.0], [1.0, 1.0]]
    assert [list(row) for row in second.z] == [[0.25, None], [1.0, None]] and not second.visible


def test_cosines_have_a_frame_for_each_round_up_to_a_limit() -> None:
    drawn = alignment_figures.cosines([a_round(number) for number in range(1, 201)])
    assert drawn is not None
    names = [int(frame.name) for frame in drawn.frames]
    assert len(names) == alignment_figures.MAPS and names[0] == 1 and names[-1] == 200
    assert len(drawn.layout.sliders[0].steps) == len(names)
    rejected = alignment_figures.cosines([a_round(1, clients=3, rejected=["site1"], cosines=[[1, 0.5], [0.5, 1]])])
    assert rejected is not None and list(rejected.data[0].x) == ["site0", "site2"]
    assert alignment_figures.cosines([a_round(1, clients=1)]) is None


def test_covariance_and_information_show_the_last_measurement() -> None:
    pair = {"pair": ["a", "b"], "information": 0.5, "correlation": 0.25, "correlation_error": 0.01}
    drawn = alignment_figures.shift([{"domains": []}, {"domains": [pair]}])
    assert drawn is not None and list(drawn.data[0].x) == [0.5] and list(drawn.data[0].text) == ["a and b"]
    assert alignment_figures.shift([]) is None


@pytest.mark.parametrize("unit", ["tensor", "layer", "model"])
def test_units_have_the_names_of_the_model(unit: str, tiny: Make) -> None:
    config = tiny(local={"unit": unit, "rule": "discard"})
    run = api.train(config)
    names = unit_names(run, run.records.read("round"))
    length = len(run.records.read("round")[-1]["clients"]["dark"]["conflicts"])
    assert len(names) == length == len(set(names))
    assert names[0] == {"tensor": "encoder.conv1.weight", "layer": "encoder.conv1", "model": "model"}[unit]


# Pages.


def test_page_of_a_run_says_what_was_recorded(trained: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert command(["report", str(trained.folder), "-o", str(page), "--device", "cpu", "-q"]) == 0
    found, text = charts(page), page.read_text()
    assert set(found) >= {
        "Training loss", "Accuracy on the unseen domain", "Monitors, which need no labels", "Time and memory",
        "Gradients in conflict, by client", "Weights of the clients", "Gradients in conflict, by layer", "Confusion",
        "Accuracy of each class", "The unseen domain by class", "All domains",
    }  # fmt: skip
    losses = [record["clients"]["photo"]["loss"] for record in trained.records.read("round")]
    line = next(line for line in found["Training loss"]["data"] if line["name"] == "photo")
    assert line["y"] == pytest.approx(losses)
    assert sum(len(trace["x"]) for trace in found["The unseen domain by class"]["data"]) == 48
    assert text.count("<img ") >= 8 * 6 and "federation.rounds" in text and "what it is" in text
    for outside in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert outside.startswith(("data:image/", "#"))


def test_a_page_is_the_same_bytes_again(trained: Run, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        assert command(["report", str(trained.folder), "-o", str(tmp_path / name), "--device", "cpu", "-q"]) == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_where_the_pictures_are_gone_the_page_says_so_and_where_they_are_now_helps(
    tiny: Make, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = api.train(tiny())
    moved = shutil.move(folder, tmp_path / "elsewhere")
    assert command(["report", str(run.folder), "--device", "cpu"]) == 0
    assert "the page is without pictures" in capsys.readouterr().err
    page = run.folder / "report.html"
    assert "This page is without what needs the pictures" in page.read_text() and "Confusion" not in charts(page)
    assert len(charts(page)["Training loss"]["data"]) == 2
    assert command(["report", str(run.folder), "--device", "cpu", "--data", str(moved)]) == 0
    assert "Confusion" in charts(page)


def test_page_without_labels_or_target(tiny: Make, folder: Path, tmp_path: Path) -> None:
    for picture in folder.rglob("*.png"):
        picture.rename(picture.parents[1] / f"{picture.parent.name}{picture.name}")
    run = api.train(tiny(data={"target": None}))
    assert command(["report", str(run.folder), "--device", "cpu", "-q"]) == 0
    found = charts(run.folder / "report.html")
    assert "All domains" in found and "Confusion" not in found and "Accuracy on the unseen domain" not in found


def test_page_of_an_unfinished_run(trained: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(trained.folder, tmp_path / "copy")
    (copy / "encoder.safetensors").unlink()
    kept = (copy / "records.jsonl").read_text().splitlines(keepends=True)[:2]
    (copy / "records.jsonl").write_text("".join(kept))
    assert command(["report", str(copy), "-q"]) == 0
    text = (copy / "report.html").read_text()
    assert "1 of 2 rounds done" in text and "the run is not finished" in text


def test_names_in_a_page_are_text_and_not_markup(tiny: Make, folder: Path) -> None:
    (folder / "dark").rename(folder / "<b>dark")
    run = api.train(tiny())
    assert command(["report", str(run.folder), "--device", "cpu", "-q"]) == 0
    assert "<b>dark" not in (run.folder / "report.html").read_text()


def test_page_of_a_folder_lays_runs_side_by_side(trained: Run, tmp_path: Path) -> None:
    out = trained.folder.parent
    api.train(RunConfig.from_dict(small(str(out), seed=1)))
    api.train(RunConfig.from_dict(small(str(out), server={"rule": "fedavg"})))
    assert [member.label for member in find_members(out)].count("agreement") == 2
    page = tmp_path / "all.html"
    assert command(["report", str(out), "-o", str(page)]) == 0
    found, text = charts(page), page.read_text()
    names = {line["name"] for line in found["Training loss"]["data"]}
    assert names == {"agreement, seed 0", "agreement, seed 1", "fedavg, seed 0"}
    assert re.search(r"<td>agreement</td><td class=\"number\">[\d.]+ ± [\d.]+ \(2\)</td>", text)
    assert "3 of 3" in text


def test_page_of_a_study_has_its_tables_from_records_alone(
    trained: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs" / trained.folder.name
    place.mkdir(parents=True)
    shutil.copy(trained.records.path, place)
    begun = {"label": "FedGaLA", "at": {}, "target": "sketch", "seed": 0, "rounds": 2, "run": place.name}
    listed = [begun, {**begun, "label": "not begun", "run": "nowhere"}]
    study = tmp_path / "table4-shapes"
    study.mkdir()
    about = {"study": "table4", "data": {"name": "shapes", "path": "shapes", "domains": ["sketch"]}, "runs": listed}
    (study / "study.json").write_text(json.dumps(about))
    assert command(["report", str(study)]) == 0
    text = (study / "report.html").read_text()
    assert "<h2>table4</h2>" in text and "1 of 1" in text
    last = trained.records.read("evaluation")[-1]["probe"]["encoder"]["0.1"]
    assert text.count(f"{100 * sum(last) / len(last):.1f}") >= 2  # in the study's table and in the list
    (study / "study.json").write_text('{"runs": [{}]}')
    assert command(["report", str(study)]) == 2
    assert "study.json is damaged" in capsys.readouterr().err


def test_many_runs_are_means_over_seeds_with_their_spread(tmp_path: Path) -> None:
    members = []
    for seed, target in ((seed, target) for seed in range(7) for target in ("a", "b")):
        run = tmp_path / f"{target}{seed}"
        run.mkdir()
        Records(run / "records.jsonl").append(
            {"kind": "round", "round": 1, "seconds": 1.0, "loss": seed, "clients": {}}
        )
        members.append(Entry("method", {}, target, seed, 1, run))
    write_study_page(members, tmp_path, tmp_path / "page.html")
    lines = charts(tmp_path / "page.html")["Training loss"]["data"]
    assert [line["name"] for line in lines] == ["a", "b"]
    assert lines[0]["y"] == [3] and lines[0]["error_y"]["array"] == pytest.approx([stdev(range(7))])


def test_without_plotly_one_line_says_what_to_install(
    trained: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    assert command(["report", str(trained.folder)]) == 2
    captured = capsys.readouterr()
    assert captured.err.strip() == "fedgala: a page needs plotly: pip install 'fedgala[report]'"
    assert "finished" in captured.out
