"""Every table and figure, really run: on a few pictures of `shapes`, one domain, one round."""

from pathlib import Path

import pytest

from fedgala.presets import CPU
from fedgala.studies.carry import Means, plan_named, run_study, show, study_folder
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.outcome import read_study
from fedgala.studies.plan import Ask, locate
from fedgala.studies.watch import Watcher

pytestmark = pytest.mark.slow

FLAGS = {
    "views": {"crop": 16},
    "model": {"projector_hidden": 16, "projector_output": 8, "predictor_hidden": 16},
    "federation": {"rounds": 1, "batch_size": 32},
    "ssl": {"queue": 32},
    "probe": {"epochs": 3, "splits": 2},
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder, so that studies share their runs."""
    return tmp_path_factory.mktemp("studies")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_on_shapes(name: str, out: Path) -> None:
    ask = Ask(locate("shapes"), CPU, FLAGS, [0], ("photo",), str(out))
    lines: list[str] = []
    summary = run_study(name, ask, plan_named(name, ask), Means(2, "cpu"), Watcher(lines.append))
    assert not summary.failed and not summary.left, lines
    outcome = read_study(study_folder(name, ask))
    assert outcome.finished == len({entry.folder for entry in outcome.entries})
    exhibit = show(outcome)
    assert all(cell for table in exhibit.tables for row in table.rows for cell in row), exhibit.tables[0].text()
    assert (study_folder(name, ask) / "figure.png").exists() == name.startswith("figure")
