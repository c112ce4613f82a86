"""Naive twins of every formula: float64, loops, the paper's order.

Slow and plain on purpose; the tests compare with them.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

# Self-supervised losses


def nt_xent(projections: Tensor, temperature: float) -> float:
    """SimCLR's equation 1, pair by pair."""
    z = projections.double()
    half, total = len(z) // 2, 0.0
    for i in range(len(z)):
        partner = (i + half) % len(z)
        scores = {j: math.exp(cosine(z[i], z[j]) / temperature) for j in range(len(z)) if j != i}
        total -= math.log(scores[partner] / sum(scores.values()))
    return total / len(z)


# Local alignment (Algorithm 1, lines 16-22)


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two tensors; 0 where one of them is zero."""
    a, b = a.double().flatten(), b.double().flatten()
    norms = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return float(a @ b) / norms if norms else 0.0


def unit_of(name: str, unit: str) -> str:
    """The unit that a tensor belongs to."""
    return {"tensor": name, "layer": name.rpartition(".")[0], "model": ""}[unit]


def aligned(
    gradients: dict[str, Tensor],
    reference: dict[str, Tensor],
    rule: str,
    threshold: float,
    unit: str,
    sign: str,
    factor: float,
) -> dict[str, Tensor | None]:
    """What is left of each tensor's gradient; None is `grad = None`."""
    out: dict[str, Tensor | None] = {}
    for name, gradient in gradients.items():
        members = [n for n in gradients if unit_of(n, unit) == unit_of(name, unit)]
        g = torch.cat([gradients[n].double().flatten() for n in members])
        r = torch.cat([reference[n].double().flatten() for n in members])
        defined = bool(g.any()) and bool(r.any())
        similarity = cosine(g, r) if sign == "printed" else cosine(-g, r)
        if not defined or similarity > threshold:
            out[name] = gradient.double()
        elif rule == "discard":
            out[name] = None
        elif rule == "reweight":
            out[name] = gradient.double() * factor
        elif similarity < 0:
            out[name] = gradient.double() - float(g @ r) / float(r @ r) * reference[name].double()
        else:
            out[name] = gradient.double()
    return out


# Global alignment (Algorithm 1, lines 5-11)


def agreement(updates: Sequence[Tensor], start: Sequence[float], iterations: int, gamma: float) -> list[float]:
    """The iterated definition: aggregate, compare, weigh, normalise, again."""
    vectors = [u.double().flatten() for u in updates]
    weights = list(start)
    for _ in range(iterations):
        direction = sum((w * u for w, u in zip(weights, vectors, strict=True)), torch.zeros_like(vectors[0]))
        raw = [(cosine(u, direction) + 1) / 2 for u in vectors]
        weights = [w / sum(raw) for w in raw]
    return [(1 - gamma) * s + gamma * w for s, w in zip(start, weights, strict=True)]


# Optimizers: torch's own, with `grad = None` on what is discarded


def optimize(
    weights: dict[str, Tensor],
    steps: Iterable[dict[str, Tensor | None]],
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> dict[str, Tensor]:
    """The weights after `steps` of gradients."""
    parameters = {name: nn.Parameter(tensor.double().clone()) for name, tensor in weights.items()}
    optimizer = make(list(parameters.values()))
    for gradients in steps:
        for name, parameter in parameters.items():
            gradient = gradients[name]
            parameter.grad = None if gradient is None else gradient.double().clone()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def cosine_schedule(peak: float, round: int, rounds: int) -> float:
    """Half a cosine from the peak, as `torch.optim.lr_scheduler.CosineAnnealingLR` steps it once a round."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, rounds)
    for _ in range(round - 1):
        optimizer.step()
        scheduler.step()
    return float(optimizer.param_groups[0]["lr"])
