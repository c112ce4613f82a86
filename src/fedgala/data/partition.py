"""Who holds what: from domains to clients.

The paper gives each client one domain. With more clients than domains, each domain is shared by as many clients as its
size earns, evenly (`iid`) or with skewed classes (`dirichlet`: each class is dealt out in proportions drawn from a
symmetric Dirichlet distribution; the smaller alpha, the more a client holds of few classes). With fewer clients than
domains, a client holds several whole domains.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedgala.data.domain import DomainData
from fedgala.errors import ConfigError, DataError

Deal = Callable[[DomainData, int, float, torch.Generator], Tensor]


def partition(
    domains: Sequence[DomainData], clients: int | None, rule: str, alpha: float, generator: torch.Generator
) -> tuple[DomainData, ...]:
    """The pictures of each client; `clients` None is one for each domain.

    A client is named after its domain, with a number where it shares it: ``photo-02``.

    Raises:
        ConfigError: more clients than pictures.
        DataError: `dirichlet` without labels.
    """
    if clients is None or clients == len(domains):
        return tuple(domains)
    if clients < len(domains):
        return tuple(_together(domains[first::clients]) for first in range(clients))
    if clients > sum(map(len, domains)):
        raise ConfigError(f"partition.clients = {clients}: there are {sum(map(len, domains))} pictures to share out")
    return tuple(
        client
        for domain, count in zip(domains, _apportion([len(domain) for domain in domains], clients), strict=True)
        for client in _shared(domain, count, DEALS[rule](domain, count, alpha, generator))
    )


def evenly(domain: DomainData, count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """(N,) the client of each picture: equal shares, at random."""
    return torch.randperm(len(domain), generator=generator) % count


def skewed(domain: DomainData, count: int, alpha: float, generator: torch.Generator) -> Tensor:
    """(N,) the client of each picture: every class in proportions from Dirichlet(alpha); nobody goes empty."""
    if domain.labels is None:
        raise DataError(f"partition.rule = 'dirichlet' deals out classes, and {domain.name} has no labels; use iid")
    chance = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))  # torch has no public Dirichlet
    owner = torch.empty(len(domain), dtype=torch.int64)
    labels = domain.labels.cpu()
    for label in labels.unique().tolist():  # type: ignore[no-untyped-call]
        members = (labels == label).nonzero().squeeze(1)
        members = members[torch.randperm(len(members), generator=generator)]
        ends = np.round(chance.dirichlet(np.full(count, alpha)).cumsum() * len(members)).astype(int)
        for client, part in enumerate(torch.tensor_split(members, ends[:-1].tolist())):
            owner[part] = client
    return _nobody_empty(owner, count)


DEALS: dict[str, Deal] = {"iid": evenly, "dirichlet": skewed}


def _nobody_empty(owner: Tensor, count: int) -> Tensor:
    """Clients without pictures take one from the largest."""
    sizes = owner.bincount(minlength=count)
    for client in (sizes == 0).nonzero().flatten().tolist():
        largest = int(sizes.argmax())
        owner[(owner == largest).nonzero()[0]] = client
        sizes[largest] -= 1
        sizes[client] += 1
    return owner


def _apportion(sizes: Sequence[int], clients: int) -> list[int]:
    """How many clients share each domain: one each, and the next to whoever has the most pictures per client."""
    counts = [1] * len(sizes)
    for _ in range(clients - len(sizes)):
        fullest = max(range(len(sizes)), key=lambda i: (sizes[i] / counts[i], -i))
        counts[fullest] += 1
    return counts


def _shared(domain: DomainData, count: int, owner: Tensor) -> list[DomainData]:
    if count == 1:
        return [domain]
    digits = len(str(count - 1))
    places = torch.split(torch.argsort(owner, stable=True), owner.bincount(minlength=count).tolist())
    return [domain.take(index, f"{domain.name}-{number:0{digits}}") for number, index in enumerate(places)]


def _together(domains: Sequence[DomainData]) -> DomainData:
    """One client's domains as one; those that share their images go on sharing them."""
    labelled = all(domain.labels is not None for domain in domains)
    shared = all(domain.images is domains[0].images for domain in domains)
    parts = [torch.arange(len(domain)) if domain.rows is None else domain.rows for domain in domains]
    return DomainData(
        "+".join(domain.name for domain in domains),
        domains[0].images if shared else torch.cat([domain.pictures() for domain in domains]),
        torch.cat([domain.sizes for domain in domains]),
        torch.cat([domain.labels for domain in domains if domain.labels is not None]) if labelled else None,
        torch.cat(parts) if shared else None,
        torch.cat([torch.full((len(domain),), number) for number, domain in enumerate(domains)]),
    )
