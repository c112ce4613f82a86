"""The paper, as functions on tensors: local alignment on a client, global alignment on the server.

*Local* (Algorithm 1, lines 16-22): a gradient is judged, unit by unit, by its cosine with `reference`, the last global
update theta_t - theta_(t-1); a unit agrees when the cosine exceeds the threshold tau. What happens to a unit that does
not agree is a rule: `discard` (the paper), `reweight` (its Table 6) or `project`.

*Global* (lines 5-11): each client's weight is (cos(its update, the common direction) + 1) / 2, iterated. The direction
is a weighted sum of the updates, so every cosine follows from their Gram matrix and the iterations are K x K.

The reference points downhill and a gradient uphill. Sign `printed` takes Algorithm 1 literally, cos(gradient,
reference); sign `descent` takes the text's intention, cos(-gradient, reference).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala.parameters import BLOCK, Layout

SIGNS = {"printed": 1.0, "descent": -1.0}


@dataclass(frozen=True)
class Reference:
    """The last global update, with what local alignment needs of it computed once a round."""

    vector: Tensor  # (length,)
    unit_of_segment: Tensor  # (segments,)
    squared_norms: Tensor  # (units,)

    @classmethod
    def of(cls, vector: Tensor, layout: Layout, unit: str) -> "Reference":
        """The reference for `vector`, judged per `unit` (one of `parameters.UNITS`)."""
        index, count = layout.units(unit)
        return cls(vector, index, _per_unit(layout.sums(vector * vector), index, count))


@dataclass(frozen=True)
class Evidence:
    """How a gradient stands to the reference, per unit."""

    cosines: Tensor  # (units,) with the sign applied; 0 where undefined
    agrees: Tensor  # (units,) bool: cosine > tau, or no direction to compare (a zero gradient or reference)
    dots: Tensor  # (units,) <gradient, reference>, without the sign


def _per_unit(per_segment: Tensor, unit_of_segment: Tensor, count: int) -> Tensor:
    return per_segment.new_zeros(count).index_add_(0, unit_of_segment, per_segment)


def judge(gradient: Tensor, reference: Reference, layout: Layout, threshold: float, sign: float) -> Evidence:
    """Compare `gradient` with the reference: two products, one sum per segment, no host synchronisation."""
    count = len(reference.squared_norms)
    dots = _per_unit(layout.sums(gradient * reference.vector), reference.unit_of_segment, count)
    squared = _per_unit(layout.sums(gradient * gradient), reference.unit_of_segment, count)
    norms = squared.sqrt() * reference.squared_norms.sqrt()
    undefined = norms == 0
    cosines = torch.where(undefined, 0.0, sign * dots / torch.where(undefined, 1.0, norms))
    return Evidence(cosines, (cosines > threshold) | undefined, dots)


LocalRule = Callable[[Tensor, Reference, Evidence, Layout, float], Tensor]


def discard(gradient: Tensor, reference: Reference, evidence: Evidence, layout: Layout, factor: float) -> Tensor:
    """Units that do not agree are not updated at all: neither weights nor optimizer state move."""
    return evidence.agrees[reference.unit_of_segment]


def reweight_(gradient: Tensor, reference: Reference, evidence: Evidence, layout: Layout, factor: float) -> Tensor:
    """The gradient of units that do not agree is multiplied by `factor` (the paper's RF)."""
    scale = torch.where(evidence.agrees, 1.0, factor)[reference.unit_of_segment]
    gradient.view(-1, BLOCK).mul_(layout.spread(scale))
    return torch.ones_like(reference.unit_of_segment, dtype=torch.bool)


def project_(gradient: Tensor, reference: Reference, evidence: Evidence, layout: Layout, factor: float) -> Tensor:
    """Units that do not agree lose the component along the reference that conflicts, and keep the rest."""
    conflict = ~evidence.agrees & (evidence.cosines < 0)
    length = torch.where(conflict, -evidence.dots / reference.squared_norms, 0.0)[reference.unit_of_segment]
    gradient.view(-1, BLOCK).addcmul_(reference.vector.view(-1, BLOCK), layout.spread(length))
    return torch.ones_like(reference.unit_of_segment, dtype=torch.bool)


LOCAL_RULES: dict[str, LocalRule] = {"discard": discard, "reweight": reweight_, "project": project_}
"""Each changes the gradient in place, or not, and returns (segments,) bool: which tensors the optimizer moves."""


def gram(updates: Sequence[Tensor], layout: Layout, columns: int = 1 << 20) -> Tensor:
    """(segments, K, K) the inner products of the K updates over each segment, float64.

    The updates are read `columns` numbers at a time, so memory never holds a second copy of them. In float64, for the
    length of a direction in which updates all but cancel is a small difference of large products.
    """
    products = torch.zeros(len(layout.segments), len(updates), len(updates), dtype=torch.float64, device=layout.device)
    for index, segment in enumerate(layout.segments):
        stop = segment.offset + segment.numel
        for start in range(segment.offset, stop, columns):
            rows = torch.stack([update[start : min(start + columns, stop)] for update in updates]).double()
            products[index] += rows @ rows.T
    return products


def agreement_weights(gram: Tensor, start: Tensor, iterations: int, gamma: float = 1.0) -> Tensor:
    """Client weights by agreement with the common direction; each row sums to 1.

    Args:
        gram: (..., K, K) inner products of the clients' updates, one matrix per unit.
        start: (K,) FedAvg's weights, which give the first common direction.
        iterations: how often direction and weights are recomputed from one another; 0 leaves FedAvg's weights.
        gamma: share of the agreement weights in the mixture with FedAvg's.

    A cosine with or of a zero update is 0, and so is every cosine with a direction in which opposed updates cancel.
    """
    begin = start.to(gram.dtype).expand(gram.shape[:-1])
    squared = gram.diagonal(dim1=-2, dim2=-1)
    weights = begin
    for _ in range(iterations):
        dots = (gram @ weights[..., None]).squeeze(-1)  # <u_i, direction>
        length = (weights * dots).sum(-1, keepdim=True).clamp(min=0)  # |direction|^2
        # below the updates' own rounding (float32) a cancelled direction is noise, not a direction
        noise = torch.finfo(torch.float32).eps ** 2 * (weights * squared.sqrt()).sum(-1, keepdim=True) ** 2
        norms = torch.where(length > noise, squared * length, 0.0).sqrt()
        cosines = torch.where(norms > 0, dots / torch.where(norms > 0, norms, 1.0), 0.0).clamp(-1, 1)
        weights = (cosines + 1) / 2
        weights = weights / weights.sum(-1, keepdim=True)
    return (1 - gamma) * begin + gamma * weights
