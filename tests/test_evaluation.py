"""Evaluation put together from its parts: what is measured, on what, and that it leaves the model alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from conftest import TINY, random_domain
from fedgala.client import Trainer
from fedgala.config import RunConfig, merge
from fedgala.data import augment
from fedgala.errors import DataError
from fedgala.evaluation import encode, evaluate, extract
from fedgala.messages import ServerState
from fedgala.report.tables import cell, table

CPU = torch.device("cpu")


def setup(**over: Any) -> tuple[Trainer, ServerState]:
    trainer = Trainer(RunConfig.from_dict(merge(TINY, over)), CPU)
    return trainer, ServerState(3, trainer.model.weights.clone(), trainer.model.statistics.clone(), None)


def test_features_do_not_depend_on_the_batch_and_leave_the_model_alone() -> None:
    trainer, state = setup()
    data = random_domain("x", 30)
    whole = extract(trainer, data)
    part = extract(trainer, data.take(torch.tensor([7])))
    for name in ("encoder", "projector"):
        torch.testing.assert_close(whole[name][7:8], part[name], rtol=1e-4, atol=1e-5)
    assert torch.equal(trainer.model.statistics, state.statistics) and trainer.model.module.training
    encoder = trainer.model.module.get_submodule("encoder").eval()
    torch.testing.assert_close(encode(encoder, data, 16), whole["encoder"], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        direct = encoder(augment.resize(data.images, data.sizes, 16))
    torch.testing.assert_close(direct, whole["encoder"], rtol=1e-4, atol=1e-5)


def test_a_target_that_cannot_be_probed_is_named() -> None:
    trainer, state = setup()
    target = replace(random_domain("x", 30), labels=torch.zeros(30, dtype=torch.int64))
    with pytest.raises(DataError, match="no probe of x: a probe needs images of at least 2 classes; these 30 are of 1"):
        evaluate(trainer, [random_domain("y", 30)], target, state)


def test_a_label_that_can_be_seen_is_found() -> None:
    trainer, state = setup(probe={"epochs": 100, "learning_rate": 0.05})
    seen, unseen = random_domain("seen", 60), random_domain("unseen", 60, seed=1)
    for domain in (seen, unseen):
        assert domain.labels is not None
        for label in (0, 1):  # one class is red, the other blue
            domain.images[domain.labels == label, 2 * label] = 255
            domain.images[domain.labels == label, 2 - 2 * label] = 0
    record = evaluate(trainer, [seen], unseen, state)
    assert record["round"] == 3 and record["knn"] == 1
    assert set(record["probe"]) == {"encoder", "projector"} and set(record["probe"]["encoder"]) == {"0.1", "0.3"}
    assert min(record["probe"]["encoder"]["0.3"]) > 0.9 and min(record["transfer"]["encoder"]) > 0.9


@pytest.mark.parametrize(("target", "sources"), [(False, True), (True, False)])
def test_what_has_no_labels_is_not_probed(target: bool, sources: bool) -> None:
    trainer, state = setup()
    record = evaluate(trainer, [random_domain("a", labelled=sources)], random_domain("b", labelled=target), state)
    assert ("probe" in record) == target and ("transfer" in record) == (target and sources)
    assert set(record["monitor"]) == {"alignment", "uniformity", "effective_rank"}


def test_an_evaluation_is_the_same_again() -> None:
    trainer, state = setup()
    domains = [random_domain("a"), random_domain("b", seed=1)]
    assert evaluate(trainer, domains[:1], domains[1], state) == evaluate(trainer, domains[:1], domains[1], state)


def test_cells_and_tables_by_hand() -> None:
    assert cell([0.5, 0.6, 0.7]) == "60.0 ± 10.0" and cell([0.123]) == "12.3" and cell([]) == ""
    assert table(["a", "bb"], [["long", "1"], ["x", ""]]) == "a     bb\n----  --\nlong   1\nx"
