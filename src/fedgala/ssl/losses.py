"""Self-supervised losses as functions on tensors; only directions of projections count, never their lengths."""

import torch
from torch import Tensor
from torch.nn import functional as F


def nt_xent(projections: Tensor, temperature: float) -> Tensor:
    """NT-Xent, SimCLR's loss: each view must find its partner among all other views of the batch.

    Args:
        projections: (2B, D), where rows i and i + B are the two views of image i; any length, only directions count.
        temperature: divides the cosines.

    Returns:
        The mean over all 2B views of -log softmax at the partner, the view itself left out.
    """
    directions = F.normalize(projections.float(), dim=1)
    count = len(directions)
    index = torch.arange(count, device=directions.device)
    similarity = directions @ directions.T / temperature
    similarity = similarity.masked_fill(index[:, None] == index, float("-inf"))
    return F.cross_entropy(similarity, (index + count // 2) % count)


def nt_xent_between(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent where the two (B, D) halves come from different networks."""
    return nt_xent(torch.cat([first, second]), temperature)


def info_nce(queries: Tensor, keys: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """Each (B, D) query must find its own key beside the (M, D) negatives: -log softmax at the key, averaged."""
    query, key = F.normalize(queries.float(), dim=1), F.normalize(keys.float(), dim=1)
    right = (query * key).sum(1, keepdim=True)
    logits = torch.cat([right, query @ negatives.float().T], dim=1) / temperature
    return F.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long))


def adversarial_step(queries: Tensor, keys: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """(M, D) the gradient of `info_nce` by its negatives: what they climb along."""
    query, key = F.normalize(queries.float(), dim=1), F.normalize(keys.float(), dim=1)
    right = (query * key).sum(1, keepdim=True)
    chance = (torch.cat([right, query @ negatives.T], dim=1) / temperature).softmax(1)[:, 1:]
    return chance.T @ query / (temperature * len(query))


def domain_mixture(queries: Tensor, keys: Tensor, queues: Tensor, log_weights: Tensor, temperature: float) -> Tensor:
    """-log sum_d w_d p_d, averaged: p_d finds the key among the negatives of domain d only.

    Args:
        queries: (B, D), any length.
        keys: (B, D), any length.
        queues: (domains, M, D) negatives of unit length.
        log_weights: (B, domains) logarithms of the weights of an image's mixture.
        temperature: divides the cosines.
    """
    query, key = F.normalize(queries.float(), dim=1), F.normalize(keys.float(), dim=1)
    right = ((query * key).sum(1) / temperature)[:, None]  # (B, 1)
    wrong = (torch.einsum("bd,kmd->bkm", query, queues) / temperature).logsumexp(2)  # (B, domains)
    log_chance = right - torch.logaddexp(right, wrong)
    return -(log_weights + log_chance).logsumexp(1).mean()


def regression(predictions: Tensor, targets: Tensor) -> Tensor:
    """The mean squared distance of (B, D) rows at unit length: 2 - 2 cos."""
    return 2 + 2 * negative_cosine(predictions, targets)


def negative_cosine(predictions: Tensor, targets: Tensor) -> Tensor:
    """Minus the mean cosine of (B, D) rows."""
    return -F.cosine_similarity(predictions.float(), targets.float(), dim=1).mean()


def relation(first: Tensor, second: Tensor, others: Tensor, temperature: float, scale: float = 0.1) -> Tensor:
    """How far two views differ in their relations to (M, D) others (FedX).

    Each view's relations are softmax(cosines / `scale`); both should be the mean of the views' relations at
    `temperature`. The mean of the two Kullback-Leibler divergences from there.
    """
    other = F.normalize(others.float(), dim=1)
    cosines = [F.normalize(view.float(), dim=1) @ other.T for view in (first, second)]
    middle = torch.stack([(cosine / temperature).softmax(1) for cosine in cosines]).mean(0)
    parts = [F.kl_div((cosine / scale).log_softmax(1), middle, reduction="batchmean") for cosine in cosines]
    return (parts[0] + parts[1]) / 2


def model_contrast(projections: Tensor, globals: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """MOON's term: projections should be nearer to the global model's than to those of the client's own last model."""
    near = F.cosine_similarity(projections.float(), globals.float(), dim=1)
    far = F.cosine_similarity(projections.float(), previous.float(), dim=1)
    return F.softplus((far - near) / temperature).mean()
