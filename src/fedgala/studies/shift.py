"""Figure 2a on a trained run: do gradients of two domains covary more where the domains share more information?

A covariance, and mutual information, of two domains need a law of which picture of the one goes with which of the
other. Independent draws give 0 for both whatever the domains (``docs/theory.md``). Here pictures correspond by class,
the only tie that the benchmarks offer: a class is drawn, then a picture of it in each domain, and the corresponding
pictures get the same random crop and colours, as Assumption 1 wants. Labels serve the measurement only.

Measured at the global model after the last round, for all pairs of domains, the unseen one included:

- covariance: the trace of Cov(g_i, g_j) over corresponding batches, and as a correlation;
- information: between features of corresponding pictures, -1/2 sum log(1 - rho^2) over their canonical correlations,
  which is Lemma 1 for features that are not independent;
- the cosine of the *mean* gradients, which is what alignment looks at, and not what the theorem speaks of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Generator, Tensor

from fedgala import checkpoint, seeds
from fedgala.api import choose_device
from fedgala.client import Trainer
from fedgala.data.domain import DomainData, place
from fedgala.data.source import open_dataset
from fedgala.errors import DataError
from fedgala.evaluation import encode
from fedgala.observe import Observer
from fedgala.records import Record
from fedgala.run import Run

KIND = "shift"
BATCHES = 48  # corresponding batches behind a covariance
PAIRS = 4096  # corresponding pictures behind an information
DIRECTIONS = 16  # of the features, those of most variance; the estimate's bias is about DIRECTIONS^2 / (2 PAIRS) nats


@dataclass(frozen=True)
class Covariances:
    """Of K domains' gradients over corresponding batches."""

    trace: Tensor  # (K, K) of Cov(g_i, g_j)
    error: Tensor  # (K, K) its standard error
    cosine: Tensor  # (K, K) of the mean gradients


def covariances(means: Tensor, products: Tensor, with_means: Tensor) -> Covariances:
    """From inner products of n batches' gradients, so that no two batches need be in memory at once.

    Args:
        means: (K, K) inner products of the mean gradients.
        products: (n, K, K) of the gradients of each batch.
        with_means: (n, K, K) of each batch's gradient, first, with each mean, second.
    """
    count = len(products)
    centred = products - with_means - with_means.transpose(1, 2) + means  # <g_i - mean_i, g_j - mean_j>
    norms = means.diagonal().sqrt()
    return Covariances(
        centred.sum(0) / (count - 1),
        centred.std(0) / count**0.5 * count / (count - 1),
        means / (norms[:, None] * norms),
    )


def information(one: Tensor, other: Tensor, directions: int) -> float:
    """Nats between corresponding rows of two (N, F) matrices, were they jointly normal, in their main directions."""
    first, second = _whitened(one, directions), _whitened(other, directions)
    correlations: Tensor = torch.linalg.svdvals(first.T @ second / (len(one) - 1)).clamp(max=1 - 1e-7)
    return float(-0.5 * torch.log1p(-(correlations**2)).sum())


def _whitened(features: Tensor, directions: int) -> Tensor:
    """(N, D) uncorrelated columns of variance 1 that span the directions of most variance."""
    centred = features.double() - features.double().mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    rank = min(directions, int((sizes > 1e-6 * sizes[0]).sum()))
    columns: Tensor = left[:, :rank] * (len(features) - 1) ** 0.5
    return columns


def corresponding(domains: Sequence[DomainData], count: int, generator: Generator) -> list[Tensor]:
    """For each domain the indices of `count` pictures: row r has the same class in all of them."""
    labels = [domain.labels.cpu() for domain in domains if domain.labels is not None]
    common = sorted(set.intersection(*(set(of.tolist()) for of in labels)))
    if len(labels) < len(domains) or not common:
        raise DataError("pictures correspond by class: this needs labels in all domains, and a class that all have")
    drawn = torch.tensor(common)[torch.randint(len(common), (count,), generator=generator)]
    chosen = []
    for of in labels:
        index = torch.zeros(count, dtype=torch.int64)
        for label in common:
            pool, rows = (of == label).nonzero().squeeze(1), (drawn == label).nonzero().squeeze(1)
            index[rows] = pool[torch.randint(len(pool), (len(rows),), generator=generator)]
        chosen.append(index)
    return chosen


def measure_shift(run: Run, batches: int = BATCHES, pairs: int = PAIRS) -> Record:
    """One record of kind `shift`: a row for each pair of domains.

    Raises:
        DataError: a domain without labels.
        CheckpointError: the run's checkpoint is not there.
    """
    config = run.config
    device = choose_device(config.engine.device)
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    dataset = open_dataset(config.data, Observer())
    domains, _ = place(dataset.domains, device, 1 << 40)
    trainer = Trainer(config, device, classes=len(dataset.classes))
    known = {"run": config.hash, "data": dataset.fingerprint}
    state = checkpoint.load(run.checkpoint_path, trainer.model.layouts, known).state
    trainer.load_(state.weights, state.statistics)
    features = _features(trainer, domains)
    index = corresponding(domains, pairs, seeds.generator(config.seed, "correspond"))
    found = _gradients(trainer, domains, batches)
    rows = []
    for i, j in combinations(range(len(domains)), 2):
        scale = float((found.trace[i, i] * found.trace[j, j]).sqrt())
        rows.append(
            {
                "pair": [domains[i].name, domains[j].name],
                "information": information(features[i][index[i]], features[j][index[j]], DIRECTIONS),
                "covariance": float(found.trace[i, j]),
                "covariance_error": float(found.error[i, j]),
                "correlation": float(found.trace[i, j]) / scale,
                "correlation_error": float(found.error[i, j]) / scale,
                "cosine_of_means": float(found.cosine[i, j]),
            }
        )
    return {"kind": KIND, "round": state.round, "batches": batches, "pairs": pairs, "domains": rows}


def _features(trainer: Trainer, domains: Sequence[DomainData]) -> list[Tensor]:
    encoder = trainer.model.module.get_submodule("encoder").eval()
    features = [encode(encoder, domain, trainer.views.crop).cpu() for domain in domains]
    trainer.model.module.train()
    return features


def _gradients(trainer: Trainer, domains: Sequence[DomainData], batches: int) -> Covariances:
    """Two passes over the same batches: the means first, then every batch beside them."""
    size, means = trainer.config.federation.batch_size, [trainer.layout.zeros() for _ in domains]
    for number in range(batches):
        for mean, gradient in zip(means, _batch(trainer, domains, size, number), strict=True):
            mean.add_(gradient, alpha=1 / batches)
    products, with_means = [], []
    for number in range(batches):
        gradients = torch.stack(_batch(trainer, domains, size, number))
        products.append((gradients @ gradients.T).double().cpu())
        with_means.append((gradients @ torch.stack(means).T).double().cpu())
    together = torch.stack(means)
    return covariances((together @ together.T).double().cpu(), torch.stack(products), torch.stack(with_means))


def _batch(trainer: Trainer, domains: Sequence[DomainData], size: int, number: int) -> list[Tensor]:
    """A gradient for each domain, on corresponding pictures in corresponding views, at the same weights."""
    seed = trainer.config.seed
    chosen = corresponding(domains, size, seeds.generator(seed, "corresponding batch", number))
    gradients = []
    for domain, index in zip(domains, chosen, strict=True):
        chance = seeds.generator(seed, "corresponding views", number, device=trainer.device)
        trainer.differentiate_(trainer.make_batch(domain, index.to(trainer.device), chance))
        gradients.append(trainer.model.gradients[: trainer.layout.length].clone())
    return gradients
