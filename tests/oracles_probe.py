"""Naive twins of the probe and the monitors: one split, one pair, one image at a time, in float64."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def linear_probe(
    features: Tensor,
    labels: Tensor,
    train: Tensor,
    seed: int,
    num_classes: int,
    epochs: int,
    learning_rate: float,
    batch_size: int,
) -> nn.Linear:
    """One probe as anybody would write it; its draws are those of the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(features.shape[1], num_classes).double()
        optimizer = torch.optim.Adam(layer.parameters(), lr=learning_rate)
        for _ in range(epochs):
            for batch in train[torch.randperm(len(train))].split(batch_size):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                loss = functional.cross_entropy(layer(features[batch].double()), labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return layer


def confusion(layer: nn.Linear, features: Tensor, labels: Tensor, test: Tensor) -> list[list[int]]:
    counts = [[0] * layer.out_features for _ in range(layer.out_features)]
    for image in test.tolist():
        answer = int(layer(features[image].double()).argmax())
        counts[int(labels[image])][answer] += 1
    return counts


def _unit(row: Tensor) -> Tensor:
    length = math.sqrt(sum(float(value) ** 2 for value in row))
    return row.double() if length == 0 else row.double() / length


def alignment(first: Tensor, second: Tensor) -> float:
    distances = [float(((_unit(a) - _unit(b)) ** 2).sum()) for a, b in zip(first, second, strict=True)]
    return sum(distances) / len(distances)


def uniformity(features: Tensor) -> float:
    rows = [_unit(row) for row in features]
    potentials = [
        math.exp(-2 * float(((a - b) ** 2).sum())) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j
    ]
    return math.log(sum(potentials) / len(potentials))


def effective_rank(features: Tensor) -> float:
    centred = features.double() - features.double().mean(0)
    values = [float(value) for value in torch.linalg.svdvals(centred)]
    values = [value for value in values if value > 1e-7 * float(features.double().norm())]
    shares = [value / sum(values) for value in values]
    return math.exp(-sum(share * math.log(share) for share in shares)) if shares else 0.0


def knn_predictions(
    bank: Tensor, classes: Tensor, queries: Tensor, k: int, temperature: float, leave_one_out: bool = False
) -> list[int]:
    """Neighbours sorted by cosine; the first k vote, and those that tie with the k-th (to 2^-20)."""
    answers = []
    for q, query in enumerate(queries):
        cosines = [
            (round(float(_unit(query) @ _unit(row)) * 2**20) / 2**20, int(label))
            for i, (row, label) in enumerate(zip(bank, classes, strict=True))
            if not (leave_one_out and i == q)
        ]
        cosines.sort(key=lambda pair: -pair[0])
        last = cosines[min(k, len(cosines)) - 1][0]
        votes = dict.fromkeys(range(int(classes.max()) + 1), 0.0)
        for cosine, label in cosines:
            if cosine >= last:
                votes[label] += math.exp((cosine - cosines[0][0]) / temperature)
        answers.append(max(votes, key=lambda label: votes[label]))
    return answers
