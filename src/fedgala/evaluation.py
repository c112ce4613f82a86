"""What a global model is worth on domains it has not seen: probes where there are labels, monitors in any case.

Features come from whole pictures, resized to the size of a view. Both candidates are measured: the encoder's features
(what the paper's text freezes) and the projector's output (what its released code probes).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedgala import monitor, probe, seeds
from fedgala.client import Trainer
from fedgala.config import ProbeConfig
from fedgala.data import augment
from fedgala.data.domain import DomainData
from fedgala.errors import DataError
from fedgala.messages import ServerState
from fedgala.records import Record

CHUNK = 512  # images at a time through the encoder
MONITORED = 512  # images that the monitors look at
TRANSFER_PROBES = 3  # they differ in initial values and order only, so a few tell the spread


Features = Mapping[str, Tensor]  # (N, F) for each part of the model that is probed


@torch.no_grad()
def encode(encoder: nn.Module, data: DomainData, crop: int) -> Tensor:
    """(N, F) the encoder's features of whole pictures; the encoder should be in evaluation mode."""
    return torch.cat([encoder(pictures).float() for pictures in _pictures(data, crop)])


@torch.no_grad()
def extract(trainer: Trainer, data: DomainData) -> Features:
    """Both parts' features of whole pictures under the trainer's present weights, norms in evaluation mode."""
    return _features(trainer, _pictures(data, trainer.views.crop))


def evaluate(trainer: Trainer, sources: Sequence[DomainData], target: DomainData | None, state: ServerState) -> Record:
    """One record of kind `evaluation` for the global model of `state`."""
    trainer.load_(state.weights, state.statistics)
    config, seed = trainer.config.probe, trainer.config.seed
    record: Record = {"kind": "evaluation", "round": state.round}
    record["monitor"] = _monitor(trainer, [target] if target else sources, seed)
    if target is None or target.labels is None:
        return record
    features = extract(trainer, target)
    classes = 1 + max(int(d.labels.max()) for d in (target, *sources) if d.labels is not None)
    record["knn"] = float(monitor.knn_accuracy_leave_one_out(features["encoder"], target.labels, config.neighbours))
    try:
        record["probe"] = probe_features(features, target.labels, config, classes, seed)
    except DataError as error:
        raise DataError(f"no probe of {target.name}: {error}") from error
    if trainer.method.classifies:
        answers = features["projector"].argmax(1)
        record["accuracy"] = float((answers == target.labels).float().mean())
    labelled = [(extract(trainer, source), source.labels) for source in sources if source.labels is not None]
    if labelled:
        record["transfer"] = _transfer(labelled, (features, target.labels), config, classes, seed)
    return record


def probe_features(
    features: Features, labels: Tensor, config: ProbeConfig, classes: int, seed: int
) -> dict[str, dict[str, list[float]]]:
    """Accuracies, 0 to 1, of linear probes within one labelled domain: part, share of labels, splits."""
    return {
        name: {
            f"{ratio:g}": probe.accuracy(probe_tables(matrix, labels, ratio, config, classes, seed, name)).tolist()
            for ratio in config.ratios
        }
        for name, matrix in features.items()
    }


def probe_tables(
    matrix: Tensor, labels: Tensor, ratio: float, config: ProbeConfig, classes: int, seed: int, part: str
) -> Tensor:
    """(S, C, C) the answers of linear probes on one part's features, a table per split; rows are the true class."""
    cuts = [seeds.generator(seed, "split", f"{ratio:g}", s) for s in range(config.splits)]
    starts = [seeds.generator(seed, "probe", part, f"{ratio:g}", s) for s in range(config.splits)]
    splits = probe.make_splits(labels, ratio, cuts, stratified=config.stratified)
    recipe = probe.Recipe(config.epochs, config.learning_rate)
    return probe.linear_probe(matrix, labels, splits, starts, classes, recipe)


def _transfer(
    sources: Sequence[tuple[Features, Tensor]],
    target: tuple[Features, Tensor],
    config: ProbeConfig,
    classes: int,
    seed: int,
) -> dict[str, list[float]]:
    recipe = probe.Recipe(config.epochs, config.learning_rate)
    labels = torch.cat([labels for _, labels in sources])
    out: dict[str, list[float]] = {}
    for name, matrix in target[0].items():
        known = torch.cat([features[name] for features, _ in sources])
        starts = [seeds.generator(seed, "transfer", name, s) for s in range(TRANSFER_PROBES)]
        table = probe.transfer_probe((known, labels), (matrix, target[1]), starts, classes, recipe)
        out[name] = probe.accuracy(table).tolist()
    return out


@torch.no_grad()
def _monitor(trainer: Trainer, domains: Sequence[DomainData], seed: int) -> dict[str, float]:
    first, second = (
        _features(trainer, (_view(trainer, part, seed, number) for part in _sample(domains))) for number in (0, 1)
    )
    return {
        "alignment": float(monitor.alignment(first["encoder"], second["encoder"])),
        "uniformity": float(monitor.uniformity(first["encoder"])),
        "effective_rank": float(monitor.effective_rank(first["encoder"])),
    }


def _view(trainer: Trainer, data: DomainData, seed: int, number: int) -> Tensor:
    """The same random views in every round, so that a monitor's curve shows the model and not the draw."""
    chance = seeds.generator(seed, "monitor", data.name, number, device=trainer.device)
    views = augment.apply(data.pictures(), augment.draw(data.sizes, trainer.views, chance), trainer.views.crop)
    return views.contiguous(memory_format=torch.channels_last)


def _sample(domains: Sequence[DomainData]) -> list[DomainData]:
    """Evenly spread images of every domain, `MONITORED` in all."""
    share = max(2, MONITORED // len(domains))
    return [
        domain.take(torch.linspace(0, len(domain) - 1, min(share, len(domain)), device=domain.sizes.device).long())
        for domain in domains
    ]


def _features(trainer: Trainer, pictures: Iterable[Tensor]) -> Features:
    module = trainer.model.module.eval()
    encoder, projector = module.get_submodule("encoder"), module.get_submodule("projector")
    parts = []
    for images in pictures:
        encoded = encoder(images)
        parts.append((encoded.float(), projector(encoded).float()))
    module.train()
    return {
        name: torch.cat(part) for name, part in zip(("encoder", "projector"), zip(*parts, strict=True), strict=True)
    }


def _pictures(data: DomainData, crop: int) -> Iterator[Tensor]:
    for index in torch.split(torch.arange(len(data), device=data.sizes.device), CHUNK):
        yield augment.resize(data.pictures(index), data.sizes[index], crop).contiguous(
            memory_format=torch.channels_last
        )
