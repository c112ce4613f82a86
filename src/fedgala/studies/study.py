"""A study is a function from a base configuration to variants; equal configurations are one run, whoever asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedgala.config import RunConfig
from fedgala.errors import ConfigError
from fedgala.settings import near
from fedgala.studies.exhibit import Exhibit
from fedgala.studies.outcome import Outcome
from fedgala.studies.plan import Ask, Planned, Variant, configure


@dataclass(frozen=True)
class Study:
    """One table or figure of the paper."""

    title: str
    variants: Callable[[RunConfig], Sequence[Variant]]
    show: Callable[[Outcome], Exhibit]
    data: tuple[str, ...] = ("PACS",)  # that the paper shows it for
    one_target: bool = False  # the paper shows it for the first domain only
    measures: tuple[str, ...] = ()  # what else each run is asked for, see `measures`


def plan(study: Study, ask: Ask) -> list[Planned]:
    """All runs of a study; seeds outermost, so that what there is at any time is as many whole tables as possible."""
    targets = ask.targets or (ask.place.targets[:1] if study.one_target else ask.place.targets)
    for target in targets:
        if target not in ask.place.domains:
            raise ConfigError(
                f"--targets {target}: no such domain in {ask.place.name}; {near(target, ask.place.domains)}"
            )
    variants = study.variants(ask.base)
    return [
        Planned(variant, target, seed, configure(ask, variant, target, seed))
        for seed in ask.seeds
        for target in targets
        for variant in variants
    ]
