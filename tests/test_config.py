from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fedgala.cli.flags import configuration, parse
from fedgala.config import DataConfig, LocalConfig, RunConfig, merge
from fedgala.errors import ConfigError
from fedgala.presets import PRESETS
from fedgala.settings import leaves
from fedgala.toml import read_toml, to_toml


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"federation": {"rouns": 3}}, "unknown setting federation.rouns: did you mean rounds?"),
        ({"federatoin": {}}, "unknown setting federatoin: did you mean federation?"),
        ({"federation": 3}, "federation = 3: expected a section"),
        ({"federation": {"rounds": 0}}, "federation.rounds = 0: must be at least 1"),
        ({"federation": {"rounds": 2.5}}, "federation.rounds = 2.5: expected a whole number"),
        ({"federation": {"rounds": True}}, "federation.rounds = True: expected a whole number"),
        ({"federation": {"rounds": None}}, "federation.rounds needs a value"),
        ({"federation": {"participation": 1.5}}, "federation.participation = 1.5: must be above 0 and at most 1"),
        ({"optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate = nan: must be above 0"),
        ({"local": {"rule": "discrad"}}, "local.rule = 'discrad': did you mean discard?"),
        ({"local": {"sign": "x"}}, "local.sign = 'x': allowed: descent, printed"),
        ({"local": {"rule": "project", "threshold": 0.5}}, "rule project needs at most 0"),
        ({"views": {"scale": [0.5, 0.1]}}, "views.scale = .*must not exceed"),
        ({"views": {"scale": [0.5]}}, "expected 2 values"),
        ({"views": {"scale": 0.5}}, "expected a list"),
        ({"probe": {"ratios": [0.1, 2.0]}}, "probe.ratios = 2.0: must be above 0 and at most 0.95"),
        ({"data": {"size": 5}}, "data.size = 5: must be at least 8, or 0"),
        ({"data": {"path": ""}}, "data.path is empty: name a folder"),
        ({"name": "a/b"}, "name = 'a/b': a name, not a path"),
        ({"probe": {"ratios": []}}, "probe.ratios = .*: name at least one"),
        ({"optimizer": {"weight_decay": float("inf")}}, "optimizer.weight_decay = inf: must be at least 0"),
        ({"data": {"strict": "yes"}}, "data.strict = 'yes': expected true or false"),
        ({"optimizer": {"learning_rate": 10**400}}, "optimizer.learning_rate: a number of 1329 bits is too large"),
        ({"name": "a\0b"}, r"name = 'a\\x00b': only text that UTF-8 can hold"),
        ({"data": {"path": "caf\udce9"}}, r"data.path = 'caf\\udce9': only text that UTF-8 can hold"),
    ],
)
def test_a_mistake_names_field_value_and_what_is_allowed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        RunConfig.from_dict(settings)
    assert "\n" not in str(error.value)


def test_direct_construction_is_checked_too_and_frozen() -> None:
    with pytest.raises(ConfigError, match="local.threshold = 2"):
        LocalConfig(threshold=2)
    with pytest.raises(ConfigError, match="local = .*: expected a LocalConfig"):
        RunConfig(local={"threshold": 0.1})  # type: ignore[arg-type]
    assert DataConfig(path=Path("a/b/")).path == DataConfig(path="a//b").path == "a/b"  # type: ignore[arg-type]
    assert LocalConfig(threshold=0).threshold == 0.0 and isinstance(LocalConfig(threshold=0).threshold, float)
    with pytest.raises(AttributeError):
        LocalConfig().rule = "none"  # type: ignore[misc]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_survive_toml(preset: str, tmp_path: Path) -> None:
    config = RunConfig.from_dict(PRESETS[preset])
    (tmp_path / "c.toml").write_text(to_toml(config), encoding="utf-8")
    assert RunConfig.from_dict(read_toml(tmp_path / "c.toml")) == config


@hypothesis_settings(deadline=None)  # a busy machine is no defect
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_path_survives_toml(path: str) -> None:
    import tomllib

    config = RunConfig.from_dict({"data": {"path": path}})
    assert RunConfig.from_dict(tomllib.loads(to_toml(config))) == config


def test_the_hash_is_of_what_makes_results() -> None:
    base = RunConfig()
    same = {"name": "x", "out": "y", "engine": {"device": "cpu", "threads": 3}}
    assert RunConfig.from_dict(same).hash == base.hash
    seen = {base.hash}
    for path, _, item in leaves(RunConfig):
        if item.metadata["identity"] and isinstance(item.default, float):
            value: Any = item.default * 0.5 + 0.01
            for name in reversed(path):
                value = {name: value}
            other = {"local": {"rule": "discard"}, "server": {"rule": "fedavg"}, "privacy": {"clip": 1.0}}
            seen.add(RunConfig.from_dict(merge(other, value)).hash)
    assert len(seen) > 15


def test_every_setting_has_help_and_the_defaults_are_valid() -> None:
    for path, _, item in leaves(RunConfig):
        assert item.metadata["help"], path


def test_layers_of_settings_go_preset_file_flags(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[federation]\nrounds = 5\nepochs = 2.0\n[local]\nunit = 'tensor'\n")
    config = configuration(
        "paper", None, file, {"federation_rounds": "9", "views_scale": "0.2,0.9", "data_limit": "none"}
    )
    assert (config.local.sign, config.local.unit) == ("printed", "tensor")
    assert (config.federation.rounds, config.federation.epochs) == (9, 2.0)
    assert config.views.scale == (0.2, 0.9) and config.data.limit is None
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize(("text", "kind"), [("x", int), ("1.5", int), ("maybe", bool), ("a,b", tuple[float, ...])])
def test_flags_refuse_what_they_can_not_read(text: str, kind: Any) -> None:
    with pytest.raises(ConfigError, match="section.field = .*expected"):
        parse(text, kind, "section.field")


def test_a_section_and_a_value_do_not_hide_each_other(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("data = 'photos'\n")
    with pytest.raises(ConfigError, match=r"data is given as 'photos' and as \{'limit': 5\}"):
        configuration(None, None, file, {"data_limit": "5"})
    file.write_text("[federation.rounds]\nx = 1\n")
    with pytest.raises(ConfigError, match=r"rounds is given as 12 and as \{'x': 1\}"):
        configuration("cpu", None, file, {})


@pytest.mark.parametrize("content", ["rounds = ", "[federation\n", "\x00", "seed = " + "9" * 5000, "x = " + "[" * 9999])
def test_a_file_that_is_not_toml_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(content)
    with pytest.raises(ConfigError, match="c.toml is not TOML"):
        read_toml(tmp_path / "c.toml")
    with pytest.raises(ConfigError, match=r"missing.toml: No such file"):
        read_toml(tmp_path / "missing.toml")
