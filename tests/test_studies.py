"""Studies: every one plans its runs and shows its table and picture, on made-up records, in moments."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedgala.config import RunConfig, merge
from fedgala.errors import ConfigError, DataError
from fedgala.methods import METHODS
from fedgala.presets import PRESETS
from fedgala.report.tables import Table, as_csv
from fedgala.studies.carry import show
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.compare import sign_flip_test
from fedgala.studies.costs import _cost, costs_table, run_steps
from fedgala.studies.exhibit import FORMATS, save_exhibit
from fedgala.studies.outcome import Outcome, find_studies, read_study, write_manifest
from fedgala.studies.pages import filled
from fedgala.studies.plan import SHAPES, Ask, Place, Planned, locate, overruled
from fedgala.studies.study import plan

PACS = Place("PACS", "PACS", SHAPES)
ROOT = Path(__file__).parents[1]


def ask(out: Path, seeds: Sequence[int] = (0, 1), place: Place = PACS, **flags: Any) -> Ask:
    return Ask(place, PRESETS["paper"], flags, seeds, out=str(out))


def accuracy_of(item: Planned) -> float:
    """A made-up accuracy that tells apart what should be told apart."""
    targets = sorted(SHAPES)
    aligned = item.config.local.rule != "none"
    return 0.4 + 0.1 * targets.index(item.target) + 0.01 * item.seed + 0.02 * aligned


def pretend(planned: Sequence[Planned], rounds: int | None = None) -> None:
    """Records as runs would leave them: accuracies that can be foretold."""
    for item in planned:
        rows: list[dict[str, Any]] = []
        total = item.config.federation.rounds
        for number in sorted({0, max(1, total // 2), total if rounds is None else rounds}):
            values = [accuracy_of(item) * (0.5 + 0.5 * number / total) + step for step in (-0.01, 0.01)]
            probe = {part: {f"{r:g}": values for r in item.config.probe.ratios} for part in ("encoder", "projector")}
            rows.append({"kind": "evaluation", "round": number, "probe": probe})
            rows.append({"kind": "round", "round": max(1, number), "conflict": 0.6, "loss": 1.0})
        pairs = [["art_painting", "photo"], ["cartoon", "photo"], ["photo", "sketch"]]
        keys = ("covariance", "covariance_error", "correlation", "correlation_error", "cosine_of_means")
        shift = [{"pair": pair, "information": 0.1 * i} | dict.fromkeys(keys, 0.5 * i) for i, pair in enumerate(pairs)]
        rows.append({"kind": "shift", "round": total, "domains": shift})
        item.config.folder.mkdir(parents=True, exist_ok=True)
        (item.config.folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def outcome_of(name: str, asked: Ask, planned: Sequence[Planned]) -> Outcome:
    folder = Path(asked.out) / f"{name}-{asked.place.name}"
    write_manifest(folder, name, asked.place, planned)
    return read_study(folder)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_plans_its_runs_and_shows_them(name: str, tmp_path: Path) -> None:
    asked = ask(tmp_path)
    planned = plan(STUDIES[name], asked)
    pretend(planned)
    exhibit = show(outcome_of(name, asked, planned))
    labels = {item.variant.label for item in planned}
    assert labels and {item.seed for item in planned} == {0, 1}
    assert exhibit.tables[0].rows and exhibit.facts
    if name.startswith(("table", "demo")):
        assert labels <= {row[0] for row in exhibit.tables[0].rows}
    written = save_exhibit(exhibit, tmp_path)
    assert [path.suffix for path in written] == [".txt", ".md", ".tex", ".csv"] + [".png"] * name.startswith("figure")
    assert all(path.stat().st_size > 100 for path in written)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_without_runs_is_an_empty_table(name: str, tmp_path: Path) -> None:
    asked = ask(tmp_path)
    exhibit = show(outcome_of(name, asked, plan(STUDIES[name], asked)))
    numbers = [fact.get("mean") for fact in exhibit.facts]
    assert not any(isinstance(number, float) for number in numbers)
    assert exhibit.tables[0].text()
    save_exhibit(exhibit, tmp_path)


def test_a_table_has_ours_the_printed_and_the_difference(tmp_path: Path) -> None:
    asked = ask(tmp_path, seeds=(0, 1, 2))
    planned = plan(STUDIES["table4"], asked)
    pretend(planned)
    (table,) = show(outcome_of("table4", asked, planned)).tables
    assert list(table.header) == ["", *SHAPES, "average"]
    assert list(table.rows[0]) == ["FedGaLA", "63.0 ± 1.0", "43.0 ± 1.0", "53.0 ± 1.0", "73.0 ± 1.0", "58.0 ± 1.0"]
    assert list(table.rows[1]) == ["  printed", "64.7(1.9)", "44.2(1.2)", "60.5(2.2)", "70.5(1.3)", "60.0"]
    assert list(table.rows[2]) == ["  difference", "-1.7", "-1.2", "-7.5", "+2.5", "-2.0"]
    assert table.rows[9][:2] == ["w/o GA & LA", "61.0 ± 1.0"]
    assert "FedGaLA minus w/o GA & LA: +2.00 points over 12 pairs" in table.notes[0] and "p = 0.00049" in table.notes[0]
    assert "after the last round" in table.caption and "over 3 seeds" in table.caption


def test_a_missing_run_is_an_empty_cell_and_numbers_of_runs_are_said(tmp_path: Path) -> None:
    asked = ask(tmp_path)
    planned = plan(STUDIES["table4"], asked)
    pretend([item for item in planned if item.target != "sketch" and (item.target, item.seed) != ("photo", 1)])
    pretend([item for item in planned if item.target == "sketch"], rounds=99)  # not finished
    exhibit = show(outcome_of("table4", asked, planned))
    assert list(exhibit.tables[0].rows[0]) == ["FedGaLA", "62.0 (1)", "42.5 ± 0.7", "52.5 ± 0.7", "", ""]
    fact = next(it for it in exhibit.facts if (it["variant"], it["target"]) == ("FedGaLA", "sketch"))
    assert fact["runs"] == 0 and fact["mean"] == "" and fact["printed"] == 70.5


def test_other_data_has_nothing_printed(tmp_path: Path) -> None:
    asked = ask(tmp_path, place=Place("shapes", "shapes", SHAPES))
    planned = plan(STUDIES["table1"], asked)
    pretend(planned)
    for table in show(outcome_of("table1", asked, planned)).tables:
        assert "64.7" not in table.text() and "the paper prints nothing" in table.caption


def test_what_the_paper_says_against_itself_is_below_its_table(tmp_path: Path) -> None:
    place = Place("DomainNet", "DomainNet-20", ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"))
    asked = ask(tmp_path, place=place)
    planned = plan(STUDIES["table1"], asked)
    assert {item.target for item in planned} == {"clipart", "infograph", "quickdraw"}
    assert {item.config.data.sources for item in planned} == {("painting", "real", "sketch")}
    text = show(outcome_of("table1", asked, planned)).tables[0].text()
    assert text.count("The paper disagrees with itself.") == 4


def test_studies_share_their_runs(tmp_path: Path) -> None:
    asked = ask(tmp_path, seeds=[0])
    runs = {name: {item.config.folder for item in plan(STUDIES[name], asked)} for name in STUDIES}
    photo = {item.config.folder for item in plan(STUDIES["figure3b"], asked)}
    for name in ("table1", "table3", "table4", "table6", "table7", "figure2a", "figure2c", "figure2d", "figure3a"):
        assert photo <= runs[name], name
    assert runs["figure3d"] <= runs["table5"]
    assert len(runs["table4"] & runs["table1"]) == 8  # FedGaLA, and FedSimCLR, which is neither alignment


def test_settings_go_from_preset_over_flags_and_method_to_the_study(tmp_path: Path) -> None:
    asked = ask(tmp_path, local={"rule": "project", "sign": "descent"}, federation={"rounds": 10})
    planned = {item.variant.label: item.config for item in plan(STUDIES["table4"], asked) if item.target == "photo"}
    assert planned["FedGaLA"].local.rule == "project" and planned["FedGaLA"].local.sign == "descent"
    assert planned["w/o LA"].local.rule == planned["w/o GA & LA"].local.rule == "none"
    assert planned["w/o GA"].server.rule == planned["w/o GA & LA"].server.rule == "fedavg"
    assert all(config.federation.rounds == 10 for config in planned.values())
    told = overruled(asked, plan(STUDIES["table4"], asked))
    assert told == {"local.rule": {"w/o LA", "w/o GA & LA"}}


def test_communication_frequency_keeps_the_local_epochs(tmp_path: Path) -> None:
    planned = plan(STUDIES["table5"], ask(tmp_path, seeds=[0]))
    assert [(c.federation.epochs, c.federation.rounds) for c in (item.config for item in planned)] == [
        (1, 900), (5, 180), (7, 129), (9, 100)
    ]  # fmt: skip
    assert {item.target for item in planned} == {"photo"} and planned[0].config.probe.every == 100


def test_every_method_of_a_study_exists(tmp_path: Path) -> None:
    base = ask(tmp_path).base
    wanted = {variant.method for study in STUDIES.values() for variant in study.variants(base)}
    assert wanted <= set(METHODS)


def test_mistakes_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--targets phot: no such domain in PACS; did you mean photo\?"):
        plan(STUDIES["table4"], Ask(PACS, {}, {}, [0], ("phot",)))
    with pytest.raises(ConfigError, match="holds no study"):
        read_study(tmp_path)
    (tmp_path / "only" / "cat").mkdir(parents=True)
    with pytest.raises(DataError):
        locate(str(tmp_path))
    assert list(find_studies(tmp_path, "table4")) == []


@pytest.mark.parametrize("differences", [[0.5], [1.0, 1.0, 1.0], [0.3, -0.2, 0.9, 0.0], [0.1] * 5 + [-0.7, 0.2]])
def test_sign_flip_test_agrees_with_all_patterns(differences: list[float]) -> None:
    from oracles import sign_flip_test as naive

    assert sign_flip_test(differences) == pytest.approx(float(naive([round(1000 * d) for d in differences])), abs=1e-12)


def test_sign_flip_test_on_random_differences_and_by_symmetry() -> None:
    import random

    from oracles import sign_flip_test as naive

    chance = random.Random(0)
    for _ in range(20):
        steps = [chance.randint(-3000, 3000) for _ in range(chance.randint(1, 10))]
        found = sign_flip_test([step / 1000 for step in steps])
        assert found == pytest.approx(float(naive(steps)), abs=1e-12)
        assert found == pytest.approx(sign_flip_test([-step / 1000 for step in steps]))
    assert sign_flip_test([]) is None and sign_flip_test([0.0, 0.0]) == 1.0
    assert sign_flip_test([1.0] * 12) == pytest.approx(2 / 2**12)


def test_tables_in_all_forms() -> None:
    table = Table("50 % & more", ["", "a_b"], [["x|y", "1.0 ± 0.1"]], ["a note"])
    assert table.text().splitlines()[2:] == ["           a_b", "---  ---------", "x|y  1.0 ± 0.1", "", "a note"]
    assert table.markdown().splitlines()[2] == "| x\\|y | 1.0 ± 0.1 |" and table.markdown().endswith("a note")
    assert r"x|y & 1.0 $\pm$ 0.1 \\" in table.latex() and r"\caption{50 \% \& more}" in table.latex()
    assert list(csv.DictReader(io.StringIO(as_csv([{"a": 1}, {"b": "x,y"}])))) == [
        {"a": "1", "b": ""}, {"a": "", "b": "x,y"}
    ]  # fmt: skip


def test_costs_are_steps_times_the_time_of_a_step(tmp_path: Path) -> None:
    config = plan(STUDIES["figure3b"], ask(tmp_path, seeds=[0]))[0].config
    counts = [2048, 2344, 3929]  # of art_painting, cartoon, sketch
    steps = 100 * sum(7 * (count // 128) for count in counts)
    assert run_steps("PACS", config) == steps
    assert _cost("PACS", [config]) == (f"{steps / 1000:,.0f}", f"{steps * 4.47 / 60_000:,.0f}")
    pooled = RunConfig.from_dict(merge(config.to_dict(), {"partition": {"clients": 1}}))
    assert run_steps("PACS", pooled) == 100 * 7 * (sum(counts) // 128)
    other = RunConfig.from_dict(merge(config.to_dict(), {"federation": {"batch_size": 64}}))
    assert _cost("PACS", [other])[1] == "0 and 1 runs of other batches" and _cost("DomainNet-20", [config]) == ("", "")
    assert "| figure3b | PACS | 3 | 0 | 0 | 0 |" in costs_table()


def test_marks_of_a_page_are_filled_from_records(tmp_path: Path) -> None:
    asked = ask(tmp_path / "results" / "pacs")
    planned = plan(STUDIES["table4"], asked)
    pretend(planned)
    outcome_of("table4", asked, planned)
    end = "<!-- results: end -->"
    page = f"before\n<!-- results: table4 -->\nold\n{end}\nafter\n<!-- results: table6 -->\n{end}"
    text = filled(page, tmp_path / "results")
    assert (
        "| FedGaLA | 62.5 ± 0.7 |" in text
        and "old" not in text
        and "| FedGaLA (ours) |  |  |  |  |  |" in text
        and "\nafter\n" in text
    )
    assert filled(text, tmp_path / "results") == text
    with pytest.raises(ConfigError, match="no mark <!-- results: tabel4 -->"):
        filled(page.replace("table4", "tabel4"), tmp_path)


@pytest.mark.parametrize("page", ["README.md", "docs/reproduce.md"])
def test_pages_say_what_the_committed_records_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "<!-- results: " in text
    again = f"numbers differ from results/: run `fedgala study page {page}`"
    assert filled(text, ROOT / "results") == text, again


def test_formats_are_rendered(tmp_path: Path) -> None:
    asked = ask(tmp_path)
    planned = plan(STUDIES["table1"], asked)
    pretend(planned)
    exhibit = show(outcome_of("table1", asked, planned))
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"][1](exhibit))))
    assert {row["labels"] for row in rows} == {"0.1", "0.3"} and {row["selection"] for row in rows} == {"last round"}
    assert FORMATS["latex"][1](exhibit).count(r"\toprule") == 2
