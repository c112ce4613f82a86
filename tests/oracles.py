"""Naive twins of every formula: float64, loops, the paper's order.

Slow and plain on purpose; the tests compare with them.
"""

import colorsys
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

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


# Augmentation: a picture at a time, by Pillow itself or in float64

Picture = npt.NDArray[np.float64]  # (C, H, W) in [0, 1]
Box = Sequence[int]  # top, left, height, width


def torchvision_box(
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    areas: Sequence[float],
    ratios: Sequence[float],
    place: Sequence[float],
) -> tuple[int, int, int, int]:
    """RandomResizedCrop.get_params, given uniform numbers for each attempt's area and ratio and for the box's place."""
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for area_draw, ratio_draw in zip(areas, ratios, strict=True):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area_draw)
        aspect = math.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * ratio_draw)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return math.floor(place[0] * (height - h + 1)), math.floor(place[1] * (width - w + 1)), h, w
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def pillow_crop_resize(image: npt.NDArray[np.uint8], box: Box, flip: bool, crop: int) -> Picture:
    """Pillow's crop, resize and mirror of a picture (C, H, W)."""
    top, left, height, width = box
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    picture = picture.crop((left, top, left + width, top + height)).resize((crop, crop), Image.Resampling.BILINEAR)
    if flip:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return from_pillow(picture)


def from_pillow(picture: Image.Image) -> Picture:
    return np.atleast_3d(np.asarray(picture, dtype=np.float64)).transpose(2, 0, 1) / 255


def crop_resize(image: npt.NDArray[np.uint8], box: Box, flip: bool, crop: int) -> Picture:
    """What Pillow computes, without its rounding to whole levels."""
    top, left, height, width = box
    cut = image[:, top : top + height, left : left + width] / 255
    cut = _resize_last_axis(_resize_last_axis(cut, crop).swapaxes(1, 2), crop).swapaxes(1, 2)
    return cut[:, :, ::-1] if flip else cut


def _resize_last_axis(picture: Picture, count: int) -> Picture:
    length = picture.shape[-1]
    scale = length / count
    columns = []
    for out in range(count):
        centre = (out + 0.5) * scale
        weights = [max(0.0, 1 - abs(pixel + 0.5 - centre) / max(scale, 1.0)) for pixel in range(length)]
        columns.append(sum(w * picture[..., pixel] for pixel, w in enumerate(weights)) / sum(weights))
    return np.stack(columns, axis=-1)


def gray(picture: Picture) -> Picture:
    if len(picture) == 1:
        return picture
    luma: Picture = 0.299 * picture[0] + 0.587 * picture[1] + 0.114 * picture[2]
    return luma[None]


def blend(picture: Picture, other: Picture | float, factor: float) -> Picture:
    blended: Picture = np.clip(other + factor * (picture - other), 0, 1)
    return blended


def brightness(picture: Picture, factor: float) -> Picture:
    return blend(picture, 0.0, factor)


def contrast(picture: Picture, factor: float) -> Picture:
    return blend(picture, float(gray(picture).mean()), factor)


def saturation(picture: Picture, factor: float) -> Picture:
    return blend(picture, gray(picture), factor)


def hue(picture: Picture, turn: float) -> Picture:
    if len(picture) == 1:
        return picture
    out = np.empty_like(picture)
    for y in range(picture.shape[1]):
        for x in range(picture.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*picture[:, y, x])
            out[:, y, x] = colorsys.hsv_to_rgb((h + turn) % 1, s, v)
    return out


OPERATIONS = (brightness, contrast, saturation, hue)


def view(
    image: npt.NDArray[np.uint8],
    box: Box,
    flip: bool,
    factors: Sequence[float],
    order: Sequence[int],
    grayscale: bool,
    crop: int,
) -> Picture:
    """One view, (3, crop, crop)."""
    picture = crop_resize(image, box, flip, crop)
    for operation in order:
        picture = OPERATIONS[operation](picture, factors[operation])
    if grayscale:
        picture = gray(picture)
    return np.broadcast_to(picture, (3, crop, crop))


# Probes and monitors


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
                loss = F.cross_entropy(layer(features[batch].double()), labels[batch])
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


# The theory: a one-layer sigmoid encoder, sample by sample (Assumption 1 and the appendix)


def pair_gradient(weights: Tensor, first: Tensor, second: Tensor, target: float) -> Tensor:
    """The gradient of -y log(p) - (1 - y) log(1 - p), p = sigmoid(W x1 - W x2), by autograd."""
    leaf = weights.clone().requires_grad_()
    p = torch.sigmoid(leaf @ first - leaf @ second)
    loss = -target * torch.log(p) - (1 - target) * torch.log(1 - p)
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    return gradient


def pair_jacobian(weights: Tensor, linear: Tensor, shift: Tensor) -> Tensor:
    """dg+/dx at x = 0, entry by entry, by autograd through the gradient."""
    x = torch.zeros_like(weights, requires_grad=True)
    gradient = pair_gradient(weights, x, linear @ x + shift, 1.0)
    return torch.stack([torch.autograd.grad(entry, x, retain_graph=True)[0] for entry in gradient])


def lemma_2(first: Tensor, second: Tensor, covariance: Sequence[float]) -> list[list[float]]:
    """The sum over features of sigma_f dg_i(m)/dx_f dg_j(n)/dx_f."""
    size = range(len(first))
    return [
        [sum(covariance[f] * float(first[m, f]) * float(second[n, f]) for f in range(len(covariance))) for n in size]
        for m in size
    ]


def gaussian_information(correlation: Sequence[float]) -> float:
    """Mutual information from determinants: 1/2 log(|S_i| |S_j| / |S|)."""
    size = len(correlation)
    joint = torch.eye(2 * size, dtype=torch.float64)
    for f, rho in enumerate(correlation):
        joint[f, size + f] = joint[size + f, f] = rho
    return -0.5 * math.log(float(torch.linalg.det(joint)))


def gradient_covariance(
    gradients: Sequence[Callable[[Tensor], Tensor]],
    correlation: Sequence[float],
    nodes: int,
    deviation: float = 1.0,
) -> list[list[float]]:
    """Cov(g_i(x_i), g_j(x_j)) by Gauss-Hermite quadrature over all features of both domains."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    size = len(correlation)
    both, first, second = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    for index in np.ndindex(*[nodes] * (2 * size)):
        z, chance = [points[i] for i in index], math.prod(weights[i] / math.sqrt(2 * math.pi) for i in index)
        x = [deviation * z[f] for f in range(size)]
        y = [deviation * (r * z[f] + math.sqrt(1 - r * r) * z[size + f]) for f, r in enumerate(correlation)]
        g, h = (
            gradient(torch.tensor(v, dtype=torch.float64)).numpy()
            for gradient, v in zip(gradients, (x, y), strict=True)
        )
        both, first, second = both + chance * np.outer(g, h), first + chance * g, second + chance * h
    rows: list[list[float]] = (both - np.outer(first, second)).tolist()
    return rows


def set_covariance(first: Tensor, second: Tensor) -> list[list[float]]:
    """The covariance of two sets (K, F) of paired vectors, one product at a time."""
    count, size = first.shape
    means = [[sum(float(v[f]) for v in vectors) / count for f in range(size)] for vectors in (first, second)]
    return [
        [
            sum((float(a[m]) - means[0][m]) * (float(b[n]) - means[1][n]) for a, b in zip(first, second, strict=True))
            / (count - 1)
            for n in range(size)
        ]
        for m in range(size)
    ]


def sigmoid_coefficients(count: int) -> list[float]:
    """The Taylor coefficients of sigmoid at 0 for x, x^3, ..., by differentiating again and again."""
    x = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value, coefficients = torch.sigmoid(x), []
    for order in range(1, 2 * count):
        (value,) = torch.autograd.grad(value, x, create_graph=True)
        coefficients.append(float(value.detach()) / math.factorial(order))
    return coefficients[::2]


# Studies


def sign_flip_test(steps: Sequence[int]) -> Fraction:
    """The share of all sign patterns whose sum is at least as far from 0, one pattern after the other."""
    patterns = list(itertools.product((1, -1), repeat=len(steps)))
    observed = abs(sum(steps))
    extreme = sum(abs(sum(s * step for s, step in zip(signs, steps, strict=True))) >= observed for signs in patterns)
    return Fraction(extreme, len(patterns))


def information_from_samples(one: Tensor, other: Tensor) -> float:
    """1/2 log(|S_i| |S_j| / |S|) with sample covariances."""
    joint = np.cov(np.concatenate([one.double().numpy(), other.double().numpy()], axis=1).T)
    size = one.shape[1]
    parts = [np.linalg.det(joint[:size, :size]), np.linalg.det(joint[size:, size:])]
    return 0.5 * math.log(parts[0] * parts[1] / np.linalg.det(joint))


# Self-supervised methods and federated rules ---------------------------------------------------------------------


def _cos(a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    return float((a * b).sum() / (a * a).sum().sqrt() / (b * b).sum().sqrt())


def info_nce(queries: Tensor, keys: Tensor, negatives: Tensor, temperature: float) -> float:
    """MoCo's loss, one query at a time."""
    total = 0.0
    for query, key in zip(queries, keys, strict=True):
        right = math.exp(_cos(query, key) / temperature)
        unit = query.double() / query.double().norm()
        wrong = sum(math.exp(float((unit * negative.double()).sum()) / temperature) for negative in negatives)
        total -= math.log(right / (right + wrong))
    return total / len(queries)


def domain_mixture(queries: Tensor, keys: Tensor, queues: Tensor, weights: Tensor, temperature: float) -> float:
    """DARLING's loss, one query and one domain at a time."""
    total = 0.0
    for query, key, row in zip(queries, keys, weights, strict=True):
        chance = sum(
            float(weight) * math.exp(-info_nce(query[None], key[None], queue, temperature))
            for weight, queue in zip(row, queues, strict=True)
        )
        total -= math.log(chance)
    return total / len(queries)


def regression(predictions: Tensor, targets: Tensor) -> float:
    """BYOL's loss: squared distances of rows at unit length."""
    pairs = zip(predictions.double(), targets.double(), strict=True)
    return sum(float(((p / p.norm() - t / t.norm()) ** 2).sum()) for p, t in pairs) / len(predictions)


def relation(first: Tensor, second: Tensor, others: Tensor, temperature: float, scale: float = 0.1) -> float:
    """FedX's divergence, one image at a time."""

    def softmax(values: list[float]) -> list[float]:
        powers = [math.exp(value) for value in values]
        return [power / sum(powers) for power in powers]

    total = 0.0
    for one, two in zip(first, second, strict=True):
        cosines = [[_cos(view, other) for other in others] for view in (one, two)]
        sharp = [softmax([c / temperature for c in row]) for row in cosines]
        middle = [(a + b) / 2 for a, b in zip(*sharp, strict=True)]
        for row in cosines:
            found = softmax([c / scale for c in row])
            total += sum(m * (math.log(m) - math.log(f)) for m, f in zip(middle, found, strict=True)) / 2
    return total / len(first)


def model_contrast(projections: Tensor, globals: Tensor, previous: Tensor, temperature: float) -> float:
    """MOON's term as it is printed."""
    total = 0.0
    for z, near, far in zip(projections, globals, previous, strict=True):
        a, b = math.exp(_cos(z, near) / temperature), math.exp(_cos(z, far) / temperature)
        total -= math.log(a / (a + b))
    return total / len(projections)


def fedema(
    sent: dict[str, Tensor], own: dict[str, Tensor], scale: float | None, share: float
) -> tuple[dict[str, Tensor], float]:
    """FedEMA's mixture and its lambda."""
    squares = [((own[name] - sent[name]).double() ** 2).sum() for name in sent if name.startswith("encoder.")]
    distance = math.sqrt(float(sum(squares)))
    scale = share / distance if scale is None else scale
    mu = min(scale * distance, 1.0)
    return {name: mu * own[name].double() + (1 - mu) * sent[name].double() for name in sent}, scale


def divergence(update: dict[str, Tensor]) -> float:
    """FedU's: the mean length over the encoder's convolutions."""
    lengths = [float(t.double().norm()) for n, t in update.items() if n.startswith("encoder.") and t.dim() == 4]
    return sum(lengths) / len(lengths)


def ldawa(weights: Sequence[Tensor], last: Tensor, shares: Sequence[float]) -> list[float]:
    """L-DAWA's weights for one layer: cosines between clients' and last global layer, times shares."""
    raw = [max(_cos(weight, last), 0.0) * share for weight, share in zip(weights, shares, strict=True)]
    return [value / sum(raw) for value in raw]


def feddgga(before: Sequence[float], gaps: Sequence[float], pace: float) -> list[float]:
    """FedDG-GA's weights."""
    largest = max(abs(gap) for gap in gaps)
    moved = [min(max(a + pace * gap / largest, 0.0), 1.0) for a, gap in zip(before, gaps, strict=True)]
    return [value / sum(moved) for value in moved]


# Differential privacy


def clip_all(update: Tensor, bound: float) -> list[float]:
    """A vector brought back to length `bound`, number by number."""
    length = math.sqrt(sum(float(x) ** 2 for x in update))
    return [float(x) * min(1.0, bound / length) if length else 0.0 for x in update]


def gaussian_delta(noise: float, releases: int, epsilon: float, steps: int = 40001) -> float:
    """Integral of max(0, p - exp(epsilon) q) over the outputs of `releases` Gaussian mechanisms of unit sensitivity.

    By rotation the outputs of n mechanisms differ along one direction only, by sqrt(n); the rest cancels.
    """
    apart = math.sqrt(releases)
    reach = 12 * noise + apart
    width = 2 * reach / (steps - 1)
    total = 0.0
    for step in range(steps):
        x = -reach + step * width
        p = math.exp(-((x - apart) ** 2) / (2 * noise**2))
        q = math.exp(-(x**2) / (2 * noise**2))
        total += max(0.0, p - math.exp(epsilon) * q) * width
    return total / (noise * math.sqrt(2 * math.pi))


def renyi_epsilon(noise: float, releases: int, delta: float) -> float:
    """The moments accountant's bound (Mironov 2017): never below the exact value."""
    orders = [1 + step / 20 for step in range(1, 4000)]
    return min(releases * a / (2 * noise**2) + math.log(1 / delta) / (a - 1) for a in orders)
