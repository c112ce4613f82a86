import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oracles
from fedgala.aggregation import RULES, Evidence, Mixing, statistics_weights, weighted_sum
from fedgala.alignment import LOCAL_RULES, SIGNS, Reference, agreement_weights, gram, judge
from fedgala.config import ServerConfig
from fedgala.messages import ClientUpdate, ServerState
from fedgala.parameters import Layout
from fedgala.server import gather, server_step

SHAPES = {"a.weight": (4, 3, 3, 3), "a.bias": (4,), "n.weight": (4,), "n.bias": (4,), "z.weight": (1500, 2)}
LAYOUT = Layout.of((name, torch.zeros(shape)) for name, shape in SHAPES.items())


def random_tensors(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def align(
    gradients: dict[str, Tensor], reference: dict[str, Tensor], rule: str, threshold: float, unit: str, sign: str
) -> dict[str, Tensor | None]:
    vector = LAYOUT.flatten(gradients)
    judged = Reference.of(LAYOUT.flatten(reference), LAYOUT, unit)
    evidence = judge(vector, judged, LAYOUT, threshold, SIGNS[sign])
    keep = LOCAL_RULES[rule](vector, judged, evidence, LAYOUT, 0.3)
    return {name: view if keep[i] else None for i, (name, view) in enumerate(LAYOUT.views(vector).items())}


@pytest.mark.parametrize("rule", LOCAL_RULES)
@pytest.mark.parametrize("unit", ["tensor", "layer", "model"])
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("threshold", [-0.1, 0.0])
def test_local_rules_equal_their_naive_twin(rule: str, unit: str, sign: str, threshold: float) -> None:
    kept = set()
    for seed in range(8):
        gradients, reference = random_tensors(seed), random_tensors(seed + 100)
        if seed == 0:
            reference["a.bias"].zero_()
            gradients["n.weight"].zero_()
        expected = oracles.aligned(gradients, reference, rule, threshold, unit, sign, 0.3)
        for name, found in align(gradients, reference, rule, threshold, unit, sign).items():
            wanted = expected[name]
            assert (found is None) == (wanted is None)
            kept.add(found is None)
            if found is not None and wanted is not None:
                torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    assert rule != "discard" or kept == {True, False} or threshold < 0


def test_a_hand_computed_gradient() -> None:
    layout = Layout.of([("l.weight", torch.zeros(2)), ("l.bias", torch.zeros(1)), ("m.weight", torch.zeros(2))])
    gradient = layout.flatten(
        {"l.weight": torch.tensor([3.0, 4.0]), "l.bias": torch.tensor([0.0]), "m.weight": torch.tensor([1.0, 1.0])}
    )
    reference = layout.flatten(
        {"l.weight": torch.tensor([1.0, 0.0]), "l.bias": torch.tensor([0.0]), "m.weight": torch.tensor([-1.0, 0.0])}
    )
    judged = Reference.of(reference, layout, "layer")
    printed = judge(gradient, judged, layout, 0.0, SIGNS["printed"])
    assert printed.cosines.tolist() == pytest.approx([0.6, -(0.5**0.5)])
    assert printed.agrees.tolist() == [True, False]
    assert judge(gradient, judged, layout, 0.0, SIGNS["descent"]).agrees.tolist() == [False, True]
    assert judge(gradient, judged, layout, 0.6, SIGNS["printed"]).agrees.tolist() == [False, False]  # > tau, not >=
    LOCAL_RULES["project"](gradient, judged, printed, layout, 0.0)
    assert layout.views(gradient)["m.weight"].tolist() == [0.0, 1.0]
    assert layout.views(gradient)["l.weight"].tolist() == [3.0, 4.0]


@given(st.integers(0, 50), st.floats(1e-3, 1e3))
def test_judgement_does_not_depend_on_the_length_of_a_vector(seed: int, scale: float) -> None:
    gradients, reference = random_tensors(seed), random_tensors(seed + 1000)
    judged = Reference.of(LAYOUT.flatten(reference), LAYOUT, "layer")
    longer = Reference.of(LAYOUT.flatten(reference) * scale, LAYOUT, "layer")
    vector = LAYOUT.flatten(gradients)
    first, second = judge(vector, judged, LAYOUT, 0.0, 1.0), judge(vector * scale, longer, LAYOUT, 0.0, 1.0)
    torch.testing.assert_close(first.cosines, second.cosines, rtol=1e-4, atol=1e-6)


# Global alignment

updates = st.integers(1, 6).flatmap(
    lambda k: st.tuples(st.just(k), st.integers(0, 10_000), st.integers(0, 5), st.floats(0, 1))
)


@given(updates)
def test_agreement_weights_equal_the_iterated_definition(case: tuple[int, int, int, float]) -> None:
    k, seed, iterations, gamma = case
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(40, generator=generator)
    vectors = [common * (i % 2) + torch.randn(40, generator=generator) for i in range(k)]
    start = torch.rand(k, generator=generator, dtype=torch.float64) + 0.1
    start /= start.sum()
    stacked = torch.stack(vectors).double()
    found = agreement_weights(stacked @ stacked.T, start, iterations, gamma)
    assert found.tolist() == pytest.approx(oracles.agreement(vectors, start.tolist(), iterations, gamma), abs=1e-9)
    assert float(found.sum()) == pytest.approx(1)
    assert bool((found >= 0).all())


@pytest.mark.parametrize("unit", ["tensor", "layer", "model"])
def test_rule_agreement_weighs_each_unit_by_itself(unit: str) -> None:
    named = [random_tensors(seed) for seed in range(4)]
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    products = gram([LAYOUT.flatten(tensors) for tensors in named], LAYOUT)
    rows = RULES["agreement"].weigh(Evidence(products, shares), LAYOUT, Mixing(iterations=3, unit=unit))
    for row, name in zip(rows, SHAPES, strict=True):
        members = [n for n in SHAPES if oracles.unit_of(n, unit) == oracles.unit_of(name, unit)]
        vectors = [torch.cat([tensors[n].flatten() for n in members]) for tensors in named]
        assert row.tolist() == pytest.approx(oracles.agreement(vectors, shares.tolist(), 3, 1.0), abs=1e-5)


def test_gram_in_blocks_is_gram() -> None:
    vectors = [LAYOUT.flatten(random_tensors(seed)) for seed in range(3)]
    whole, blocks = gram(vectors, LAYOUT), gram(vectors, LAYOUT, columns=7)
    torch.testing.assert_close(whole, blocks, rtol=1e-10, atol=1e-10)
    direct = torch.stack(vectors).double()
    torch.testing.assert_close(whole.sum(0), direct @ direct.T, rtol=1e-10, atol=1e-10)


def weights_of(vectors: list[Tensor], start: list[float] | None = None, iterations: int = 3) -> list[float]:
    stacked = torch.stack(vectors).double()
    shares = torch.tensor(start or [1 / len(vectors)] * len(vectors), dtype=torch.float64)
    return agreement_weights(stacked @ stacked.T, shares, iterations).tolist()


def test_one_client_has_all_the_weight() -> None:
    assert weights_of([torch.tensor([1.0, 2.0])]) == [1.0]
    assert weights_of([torch.zeros(2)]) == [1.0]


def test_identical_clients_have_equal_weights_whatever_their_size() -> None:
    same = torch.tensor([1.0, -2.0, 3.0])
    assert weights_of([same, same, same], [0.7, 0.2, 0.1]) == pytest.approx([1 / 3] * 3)


def test_opposed_clients_that_cancel_have_equal_weights() -> None:
    up = torch.tensor([0.1, 0.7, -0.3])
    assert weights_of([up, -up]) == pytest.approx([0.5, 0.5])
    assert weights_of([up, up, -2 * up]) == pytest.approx([1 / 3] * 3)


def test_a_zero_update_counts_as_orthogonal() -> None:
    one = torch.tensor([1.0, 0.0])
    assert weights_of([one, torch.zeros(2)], iterations=1) == pytest.approx([2 / 3, 1 / 3])


def test_a_client_against_the_others_loses_weight() -> None:
    up = torch.tensor([1.0, 1.0])
    first, second, opposed = weights_of([up, up, -0.5 * up])
    assert first == pytest.approx(second) == pytest.approx(0.5)
    assert opposed == pytest.approx(0)


@given(st.permutations(range(4)), st.floats(1e-3, 1e3))
def test_weights_follow_the_clients_and_not_their_order_or_scale(order: list[int], scale: float) -> None:
    vectors = [LAYOUT.flatten(random_tensors(seed))[:200] for seed in range(4)]
    plain = weights_of(vectors)
    assert weights_of([vectors[i] for i in order]) == pytest.approx([plain[i] for i in order])
    assert weights_of([v * scale for v in vectors]) == pytest.approx(plain)


def test_weighted_sum_and_fedavg_by_hand() -> None:
    layout = Layout.of([("l.weight", torch.zeros(2)), ("m.weight", torch.zeros(1))])
    first = layout.flatten({"l.weight": torch.tensor([1.0, 2.0]), "m.weight": torch.tensor([3.0])})
    second = layout.flatten({"l.weight": torch.tensor([5.0, 6.0]), "m.weight": torch.tensor([7.0])})
    evidence = Evidence(gram([first, second], layout), torch.tensor([0.75, 0.25]))
    fedavg = RULES["fedavg"].weigh(evidence, layout, Mixing())
    assert [v.tolist() for v in layout.views(weighted_sum([first, second], fedavg, layout)).values()] == [[2, 3], [4]]
    rows = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert [v.tolist() for v in layout.views(weighted_sum([first, second], rows, layout)).values()] == [[1, 2], [5]]


def test_statistics_take_the_weights_of_their_layer() -> None:
    statistics = Layout.of([("n.running_mean", torch.zeros(4)), ("free.running_mean", torch.zeros(4))])
    weights = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8], [0.4, 0.6], [0.9, 0.1]])
    rows = statistics_weights(weights, LAYOUT, statistics)
    torch.testing.assert_close(rows, torch.tensor([[0.3, 0.7], [0.5, 0.5]]))


@pytest.mark.parametrize("seed", range(4))
def test_ldawa_weighs_layers_by_their_angle_to_the_last_global_ones(seed: int) -> None:
    last, clients = random_tensors(seed), [random_tensors(10 * seed + 1 + i) for i in range(3)]
    clients = [{name: last[name] + 0.8 * client[name] for name in client} for client in clients]
    updates = [LAYOUT.flatten({name: client[name] - last[name] for name in client}) for client in clients]
    state = ServerState(3, LAYOUT.flatten(last), torch.zeros(0), None)
    sent = [ClientUpdate(f"c{i}", u, torch.zeros(0), 10 * (i + 1), {}) for i, u in enumerate(updates)]
    rows = RULES["ldawa"].weigh(gather(state, sent, RULES["ldawa"], LAYOUT), LAYOUT, Mixing())
    for row, name in zip(rows, SHAPES, strict=True):
        members = [n for n in SHAPES if oracles.unit_of(n, "layer") == oracles.unit_of(name, "layer")]
        layers = [torch.cat([client[n].flatten() for n in members]) for client in clients]
        expected = oracles.ldawa(layers, torch.cat([last[n].flatten() for n in members]), [1 / 6, 2 / 6, 3 / 6])
        assert row.tolist() == pytest.approx(expected, abs=1e-4)


def test_feddgga_gives_weight_to_whom_the_global_model_serves_worst() -> None:
    updates = [LAYOUT.flatten(random_tensors(i)) for i in range(3)]
    state = ServerState(3, LAYOUT.zeros(), torch.zeros(0), None, {"c0": 0.5, "c1": 0.3, "c2": 0.2})
    gaps = [0.4, -0.8, 0.1]
    sent = [ClientUpdate(f"c{i}", u, torch.zeros(0), 5, {"gap": gaps[i]}) for i, u in enumerate(updates)]
    rule = RULES["feddgga"]
    rows = rule.weigh(gather(state, sent, rule, LAYOUT), LAYOUT, Mixing(pace=0.2))
    expected = oracles.feddgga([0.5, 0.3, 0.2], gaps, 0.2)
    assert all(row.tolist() == pytest.approx(expected, abs=1e-6) for row in rows)
    first = [ClientUpdate(f"c{i}", u, torch.zeros(0), 5 + i, {}) for i, u in enumerate(updates)]
    rows = rule.weigh(
        gather(ServerState(0, LAYOUT.zeros(), torch.zeros(0), None), first, rule, LAYOUT), LAYOUT, Mixing()
    )
    assert rows[0].tolist() == pytest.approx([1 / 3] * 3)


def test_feddgga_remembers_its_weights_and_paces_down() -> None:
    layout, none = Layout.of([("l.weight", torch.zeros(2))]), Layout.of([], torch.device("cpu"))
    state = ServerState(4, layout.zeros(), torch.zeros(0), None, {"a": 0.5, "b": 0.5})
    sent = [ClientUpdate(n, layout.zeros() + 1, torch.zeros(0), 5, {"gap": g}) for n, g in (("a", 1.0), ("b", -1.0))]
    new, _ = server_step(state, sent, ServerConfig(rule="feddgga", pace=0.2), layout, none, progress=0.5)
    assert new.shares == {"a": pytest.approx(0.6), "b": pytest.approx(0.4)}
