"""The paper's numbers as transcribed, and the slips that computation finds in them."""

import pytest

from fedgala.data.catalog import CATALOG
from fedgala.presets import PRESETS
from fedgala.studies.catalogue import STUDIES
from fedgala.studies.paper import AVERAGE, Block, Printed, block, blocks, figure_texts
from fedgala.studies.plan import Ask, Place


def test_a_printed_cell_is_mean_and_spread() -> None:
    assert Printed("45.6(0.16)").mean == 45.6 and Printed("45.6(0.16)").spread == 0.16
    assert Printed("67.8").mean == 67.8 and Printed("67.8").spread is None


def test_all_tables_are_there_and_every_number_is_a_percentage() -> None:
    assert {it.table for it in blocks()} == {f"table{number}" for number in range(1, 8)}
    cells = [cell for it in blocks() for row in it.rows.values() for cell in row.values()]
    assert len(cells) == 2 * 6 * (5 + 4 + 5 + 5) + 6 * (5 + 4) + 6 * 5 + 4 * 5 + 4 + 4 * 5 + 5 * (5 + 4 + 5 + 5)
    assert all(0 < cell.mean < 100 for cell in cells)
    assert set(figure_texts()) == {name for name in STUDIES if name.startswith("figure")}


def test_domains_and_rows_have_the_names_that_studies_use() -> None:
    for it in blocks():
        domains = tuple(CATALOG[it.data].domains)
        assert {name for row in it.rows.values() for name in row} - {AVERAGE} <= set(domains)
        place = Place(it.data, it.data, domains)
        labels = [v.label for v in STUDIES[it.table].variants(Ask(place, PRESETS["paper"], {}, [0]).base)]
        assert set(it.rows) == set(labels), it.table


def wrong_averages(data: str) -> set[tuple[str, float, str]]:
    return {
        (it.table, it.ratio, slip.partition(": the printed")[0])
        for it in blocks()
        for slip in it.slips()
        if it.data == data and "printed average" in slip
    }


def test_four_averages_of_domainnet_in_table_1_are_not_those_of_their_cells() -> None:
    found = {entry for entry in wrong_averages("DomainNet-20") if entry[0] == "table1"}
    assert found == {("table1", 0.1, label) for label in ("FedEMA", "FedBYOL", "FedMoCo", "FedSimSiam")}


def test_averages_elsewhere_that_are_wrong() -> None:
    others = {data: wrong_averages(data) for data in ("PACS", "Office-Home", "TerraIncognita")}
    assert others["PACS"] == {("table6", 0.1, "RF: 0.01")}
    assert others["Office-Home"] == {("table1", 0.1, "FedSimSiam"), ("table1", 0.3, "FedEMA")}
    assert others["TerraIncognita"] == {("table1", 0.1, "FedMoCo"), ("table7", 0.1, "FedGaLA+FedProx (μ=0.01)")}
    assert ("table7", 0.1, "FedGaLA+L2 (λ=0.001)") in wrong_averages("DomainNet-20")


def test_fedmoco_and_fedsimsiam_are_exchanged_in_table_1() -> None:
    """What Table 3 prints as FedMoCo is FedSimSiam in Table 1, whose FedMoCo is its own FedSimSiam at 30 %."""
    here = block("table1", "PACS", 0.1)
    assert here
    twins = [slip for slip in here.slips() if "same numbers" in slip]
    assert twins == [
        "FedMoCo: the same numbers are printed as FedSimSiam in table1 at 30 % of the labels",
        "FedSimSiam: the same numbers are printed as FedMoCo in table3 at 10 % of the labels",
    ]


@pytest.mark.parametrize("average, slips", [("55.0", 0), ("55.1", 0), ("55.2", 1)])
def test_rounding_is_not_a_slip(average: str, slips: int) -> None:
    row = {"photo": Printed("50.0"), "sketch": Printed("60.0"), AVERAGE: Printed(average)}
    assert len(list(Block("table9", "PACS", 0.1, {"X": row}).slips())) == slips
