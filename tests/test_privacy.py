"""Differential privacy: the bound on one client's influence, the noise that hides it, and what it adds up to."""

import math
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

import fedgala
import oracles
from fedgala import api, privacy
from fedgala.config import RunConfig, ServerConfig
from fedgala.errors import CheckpointError, ConfigError
from fedgala.messages import Broadcast, ClientUpdate, ServerState
from fedgala.parameters import Layout
from fedgala.run import Run
from fedgala.server import server_step

Make = Callable[..., RunConfig]
SHAPES = [("a.weight", torch.zeros(5, 3)), ("a.bias", torch.zeros(5)), ("b.weight", torch.zeros(1500))]
LAYOUT = Layout.of(SHAPES)
STATISTICS = Layout.of([("n.running_mean", torch.zeros(4)), ("n.running_var", torch.zeros(4))])
KEY = bytes(range(32))
PRIVATE = {"privacy": {"clip": 0.5, "noise": 0.8}}


def vector(layout: Layout, seed: int) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return layout.flatten({s.name: torch.randn(s.shape, generator=chance) for s in layout.segments})


def sent(round: int = 1) -> Broadcast:
    return Broadcast(round, vector(LAYOUT, 90), vector(STATISTICS, 91).abs(), None)


def update(seed: int, scale: float = 1.0, name: str = "c") -> ClientUpdate:
    return ClientUpdate(name, scale * vector(LAYOUT, seed), vector(STATISTICS, seed + 50), 20 + seed, {"loss": 1.0})


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_what_a_client_sends_is_bounded_and_points_where_it_did(scale: float) -> None:
    before = update(1, scale)
    after = privacy.clipped(before, sent(), clip=2.0, statistics_clip=0.7)
    assert float(after.update.double().norm()) <= 2.0
    assert torch.allclose(after.update, torch.tensor(oracles.clip_all(before.update, 2.0)), rtol=2e-6, atol=0)
    moved = after.statistics - sent().statistics
    assert float(moved.norm()) <= 0.7 + 1e-5
    expected = torch.tensor(oracles.clip_all(before.statistics - sent().statistics, 0.7))
    assert torch.allclose(moved, expected, atol=1e-5)
    assert after.num_samples == 1 and set(after.metrics) == {"loss", "clip_factor"}
    assert after.metrics["clip_factor"] == pytest.approx(min(1.0, 2.0 / float(before.update.norm())), rel=1e-5)


def test_what_is_short_enough_stays_as_it_is_and_what_is_not_finite_is_left_to_the_server() -> None:
    small = replace(update(1, 1e-3), statistics=sent().statistics)
    after = privacy.clipped(small, sent(), 2.0, 0.7)
    assert torch.equal(after.update, small.update) and torch.equal(after.statistics, small.statistics)
    broken = replace(update(1), update=torch.full_like(update(1).update, torch.nan))
    assert not privacy.clipped(broken, sent(), 2.0, 0.7).update.isfinite().any()


def moved_by_one(first: list[ClientUpdate], second: ClientUpdate, server: ServerConfig) -> float:
    """How far the global update moves when the first client sends something else."""
    state = ServerState(1, LAYOUT.zeros(), STATISTICS.zeros(), None)
    sums = [
        server_step(state, updates, server, LAYOUT, STATISTICS)[0].weights for updates in (first, [second, *first[1:]])
    ]
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_no_client_moves_the_sum_further_than_its_sensitivity(clients: int, gamma: float) -> None:
    server = ServerConfig(gamma=gamma)
    bound = privacy.sensitivity(clients, gamma)
    for seed in range(20):
        scales = torch.rand(clients, generator=torch.Generator().manual_seed(seed)) ** 4 * 100  # tiny and long ones
        many = [
            privacy.clipped(update(seed * 9 + i, float(s), f"c{i}"), sent(), 1.0, 1.0) for i, s in enumerate(scales)
        ]
        for other in (replace(many[0], update=-many[0].update), replace(many[0], update=many[-1].update)):
            assert moved_by_one(many, other, server) <= bound + 1e-5


def test_the_sensitivities_are_reached() -> None:
    one = vector(LAYOUT, 1)
    many = [ClientUpdate(f"c{i}", one / one.norm(), STATISTICS.zeros(), 1, {}) for i in range(4)]
    opposite = replace(many[0], update=-many[0].update)
    fedavg = ServerConfig(rule="fedavg")
    assert moved_by_one(many, opposite, fedavg) == pytest.approx(privacy.sensitivity(4, 0.0), rel=1e-5)
    assert privacy.sensitivity(4, 0.0) == 0.5 and privacy.sensitivity(4, 1.0) == 2.0
    # one long update among tiny ones that oppose it: agreement gives it all the weight, so 2 / K would be a lie
    tiny = [replace(client, update=-1e-3 * client.update) for client in many[1:]]
    assert moved_by_one([many[0], *tiny], replace(many[0], update=STATISTICS.zeros().new_zeros(LAYOUT.length)),
                        ServerConfig(gamma=1.0)) > 0.9  # fmt: skip


def test_noise_is_gaussian_and_a_function_of_its_secret() -> None:
    drawn = privacy.gaussian(200_000, KEY)
    assert drawn.dtype == torch.float64 and torch.equal(drawn, privacy.gaussian(200_000, KEY))
    ordered = drawn.sort().values
    expected = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    furthest = float((torch.special.ndtr(ordered) - expected).abs().max())  # Kolmogorov and Smirnov's distance
    assert furthest < 1.95 / math.sqrt(200_000)  # p = 0.001
    others = [privacy.gaussian(200_000, bytes([*KEY[:-1], last])) for last in (0, 32)]
    for other in others:
        assert abs(float(torch.corrcoef(torch.stack([drawn, other]))[0, 1])) < 0.01
    assert privacy.gaussian(0, KEY).shape == (0,)


def hidden(after: ServerState, key: bytes = KEY, deviations: tuple[float, float] = (0.5, 0.1)) -> ServerState:
    before = ServerState(3, vector(LAYOUT, 1), vector(STATISTICS, 2).abs() + 1, None)
    return privacy.noised(before, after, (LAYOUT, STATISTICS), deviations, key)


def after_round(shift: float = 0.0) -> ServerState:
    return ServerState(4, vector(LAYOUT, 3) + shift, vector(STATISTICS, 4).abs() + 2, vector(LAYOUT, 5))


def test_noise_has_its_length_leaves_the_padding_and_becomes_the_reference() -> None:
    after, state = after_round(), hidden(after_round())
    noise = state.weights - after.weights
    inside = torch.cat([LAYOUT.view(noise, segment).flatten() for segment in LAYOUT.segments])
    assert float(inside.std()) == pytest.approx(0.5, rel=0.1) and float(noise.norm()) == pytest.approx(
        float(inside.norm()), rel=1e-6
    )
    assert torch.equal(state.reference, state.weights - vector(LAYOUT, 1))  # type: ignore[arg-type]
    moved = state.statistics - after.statistics
    assert 0.02 < float(STATISTICS.view(moved, STATISTICS.segments[0]).std()) < 0.3


def test_the_same_round_gets_the_same_noise_and_another_sum_another() -> None:
    first = hidden(after_round()).weights - after_round().weights
    assert torch.equal(first, hidden(after_round()).weights - after_round().weights)
    for other in (hidden(after_round(), KEY[::-1]).weights - after_round().weights,
                  hidden(after_round(1e-3)).weights - after_round(1e-3).weights):  # fmt: skip
        real = torch.cat([LAYOUT.view(first, s).flatten() for s in LAYOUT.segments])
        that = torch.cat([LAYOUT.view(other, s).flatten() for s in LAYOUT.segments])
        assert abs(float(torch.corrcoef(torch.stack([real, that]))[0, 1])) < 0.1


def test_variances_stay_positive_under_any_noise() -> None:
    found = hidden(after_round(), deviations=(0.0, 100.0))
    mean, variance = (STATISTICS.view(found.statistics, segment) for segment in STATISTICS.segments)
    assert float(mean.abs().max()) > 10 and float(variance.min()) >= 0.5


@pytest.mark.parametrize(("noise", "rounds"), [(0.5, 1), (1.0, 1), (1.0, 10), (4.0, 3), (20.0, 100)])
def test_epsilon_is_that_of_the_integral_and_below_renyis(noise: float, rounds: int) -> None:
    for delta in (1e-3, 1e-5):
        epsilon = privacy.epsilon_of(noise, rounds, delta)
        assert oracles.gaussian_delta(noise, privacy.RELEASES * rounds, epsilon) == pytest.approx(delta, rel=2e-2)
        bound = oracles.renyi_epsilon(noise, privacy.RELEASES * rounds, delta)
        assert 0.7 * bound < epsilon <= bound + 1e-9


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_stays_a_number() -> None:
    by_round = [privacy.epsilon_of(1.0, rounds, 1e-5) for rounds in (1, 2, 10, 1000)]
    assert by_round == sorted(by_round) and by_round[0] < by_round[-1]
    assert privacy.epsilon_of(2.0, 10, 1e-5) < privacy.epsilon_of(1.0, 10, 1e-5)
    assert 1e8 < privacy.epsilon_of(1e-3, 100, 1e-5) < 2e8  # about mu^2 / 2
    assert privacy.epsilon_of(1e6, 1, 1e-5) < 1e-5


def private(tiny: Make, name: str, **over: Any) -> RunConfig:
    return replace(tiny(**{**PRIVATE, "federation": {"rounds": 3}} | over), name=name)


def with_key(config: RunConfig) -> RunConfig:
    config.folder.mkdir(parents=True)
    (config.folder / "noise.key").write_text(KEY.hex())
    return config


def encoder(run: Run) -> dict[str, Tensor]:
    return safetensors.torch.load_file(run.encoder_path)


def same(first: Run, second: Run) -> bool:
    return all(torch.equal(tensor, encoder(second)[name]) for name, tensor in encoder(first).items())


def test_a_private_run_says_what_it_has_spent_and_keeps_no_secret(tiny: Make) -> None:
    config, said = private(tiny, "a", server={"rule": "fedavg"}), []

    class Watch(fedgala.Observer):
        def note(self, line: str) -> None:
            said.append(line)

        def record(self, record: dict[str, Any]) -> None:
            if record["round"] == 1 and record["kind"] == "round":
                key = config.folder / "noise.key"
                assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(bytes.fromhex(key.read_text())) == 32

    run = api.train(config, Watch())
    spent = [record["privacy"] for record in run.records.read("round")]
    assert [it["epsilon"] for it in spent] == [privacy.epsilon_of(0.8, n, 1e-5) for n in (1, 2, 3)]
    assert spent[0]["deviations"] == pytest.approx([0.8 * 0.5 * 2 / 2, 0.8 * 1.0 * 2 / 2])
    assert not (run.folder / "noise.key").exists()
    assert any(line.startswith("privacy: noise of length") and "epsilon" in line for line in said)
    clients = run.records.read("round")[0]["clients"].values()
    assert all(it["samples"] == 1 and it["weight"] == 0.5 and it["clip_factor"] < 1 for it in clients)
    assert all(bool(tensor.isfinite().all()) for tensor in encoder(run).values())


def test_with_one_secret_an_interrupted_run_ends_with_the_same_bits_and_count_and_with_another_it_does_not(
    tiny: Make,
) -> None:
    config = private(tiny, "whole", federation={"rounds": 4, "participation": 0.5})
    whole = api.train(with_key(config))

    class Stop(fedgala.Observer):
        def record(self, record: dict[str, Any]) -> None:
            if record["kind"] == "round" and record["round"] == 3:
                raise KeyboardInterrupt

    broken = with_key(replace(config, name="broken"))
    with pytest.raises(KeyboardInterrupt):
        api.train(broken, Stop())
    again = api.train(broken)
    assert same(whole, again)
    spent = [[record["privacy"] for record in run.records.read("round")] for run in (whole, again)]
    assert spent[0] == spent[1]
    assert not same(whole, api.train(replace(config, name="another")))
    most = max(sum(name in record["clients"] for record in whole.records.read("round")) for name in ("bright", "dark"))
    assert most < 4 and spent[0][-1]["epsilon"] == privacy.epsilon_of(0.8, most, 1e-5)


def test_clipping_alone_bounds_and_adds_nothing(tiny: Make) -> None:
    config = replace(tiny(privacy={"clip": 0.5}, federation={"rounds": 1}), name="a")
    (record,) = api.train(config).records.read("round")
    assert "privacy" not in record and record["clients"]["dark"]["clip_factor"] < 1
    assert not config.folder.joinpath("noise.key").exists()


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"privacy": {"noise": 1.0}}, "privacy.noise = 1: needs privacy.clip"),
        ({**PRIVATE, "server": {"unit": "layer"}}, "server.unit = 'layer' with privacy.clip: how far one"),
        ({**PRIVATE, "server": {"rule": "ldawa"}}, "server.rule = 'ldawa', server.unit = 'model' with privacy.clip"),
        ({"privacy": {"clip": -1.0}}, "privacy.clip = -1.0: must be at least 0"),
        ({"privacy": {"delta": 0.0}}, "privacy.delta = 0.0: must be above 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(over: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig.from_dict(over)
    RunConfig.from_dict({**PRIVATE, "server": {"unit": "layer", "rule": "fedavg"}})


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32, "00" * 31])
def test_a_damaged_secret_is_no_secret(tiny: Make, text: str) -> None:
    config = private(tiny, "a")
    with_key(config)
    (config.folder / "noise.key").write_text(text)
    with pytest.raises(CheckpointError, match=r"noise.key does not hold 64 hex digits"):
        api.train(config)


def test_the_page_shows_the_accountants_numbers() -> None:
    page = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text()
    header, _, *rows = page.split("Epsilon at delta 10⁻⁵")[1].split("\n\n")[1].splitlines()
    rounds = [int(cell.split()[0]) for cell in header.split("|")[2:-1]]
    assert rounds == [1, 10, 50, 100] and len(rows) == 3
    for row in rows:
        noise, *shown = (float(cell) for cell in row.split("|")[1:-1])
        assert shown == [float(f"{privacy.epsilon_of(noise, count, 1e-5):.2g}") for count in rounds]
