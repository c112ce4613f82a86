"""`shapes`: eight kinds of things in the four styles of PACS, drawn from a seed in seconds; nothing to download.

A class is the parts of a thing and how they sit together. Colour, background, light, position, size and angle are drawn
without regard to it, so that none of them tells it.
"""

import hashlib
import math
from collections.abc import Callable
from functools import reduce

import numpy as np
import numpy.typing as npt
import torch

from fedgala.data.domain import Dataset, DomainData
from fedgala.data.shapes_render import DARK, MAIN, PALE, RENDERERS, SIDE, Field, Part, Rng, compose, grid, noise
from fedgala.errors import ConfigError

Point = tuple[float, float]

# Distances are negative inside and exact near the rim; x points right, y up; a thing reaches about 1 from the origin.


def disc(x: Field, y: Field, cx: float, cy: float, radius: float) -> Field:
    """A circle."""
    return np.asarray(np.sqrt((x - cx) ** 2 + (y - cy) ** 2) - radius)


def oval(x: Field, y: Field, cx: float, cy: float, a: float, b: float, turn: float = 0.0) -> Field:
    """An ellipse with half axes `a` and `b`, the first turned by `turn`."""
    cos, sin = math.cos(turn), math.sin(turn)
    u, v = (cos * (x - cx) + sin * (y - cy)) / a, (cos * (y - cy) - sin * (x - cx)) / b
    radius = np.sqrt(u * u + v * v)
    return np.asarray(radius * (radius - 1) / (np.sqrt((u / a) ** 2 + (v / b) ** 2) + 1e-6))


def stick(x: Field, y: Field, start: Point, end: Point, width: float) -> Field:
    """A line with round ends, half as thick as `width`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    u, v = x - start[0], y - start[1]
    along = np.clip((u * dx + v * dy) / (dx * dx + dy * dy), 0, 1)
    return np.asarray(np.sqrt((u - along * dx) ** 2 + (v - along * dy) ** 2) - width / 2)


def both(a: Field, b: Field, soft: float = 1e-3) -> Field:
    """Where `a` and `b` overlap, corners rounded over `soft`."""
    blend = np.maximum(soft - np.abs(a - b), 0)
    return np.asarray(np.maximum(a, b) + blend * blend * (0.25 / soft))


def either(a: Field, b: Field, soft: float = 1e-3) -> Field:
    """`a` and `b` together, notches filled over `soft`."""
    return -both(-a, -b, soft)


def polygon(x: Field, y: Field, *corners: Point, soft: float = 0.03) -> Field:
    """A convex polygon with rounded corners, named counter-clockwise."""
    sides = []
    for (px, py), (qx, qy) in zip(corners, corners[1:] + corners[:1], strict=True):
        length = math.hypot(qx - px, qy - py)
        nx, ny = (qy - py) / length, (px - qx) / length
        sides.append(nx * x + ny * y - (nx * px + ny * py))
    return reduce(lambda a, b: both(a, b, soft), sides)


def block(x: Field, y: Field, low: float, high: float, foot: float, head: float, soft: float = 0.03) -> Field:
    """An upright trapezium about x = 0, half as wide as `foot` at `low` and `head` at `high`."""
    return polygon(x, y, (-foot, low), (foot, low), (head, high), (-head, high), soft=soft)


def butterfly(x: Field, y: Field, rng: Rng) -> list[Part]:
    """Two pairs of wings, one side perhaps folded, on a thin body with feelers."""
    u = np.where(x > 0, x, -x / rng.uniform(0.65, 1))
    lift, reach = rng.uniform(0.5, 0.95), rng.uniform(0.5, 0.6)
    upper = oval(u, y, 0.06 + reach * math.cos(lift), reach * math.sin(lift), reach, rng.uniform(0.28, 0.36), lift)
    drop, reach = rng.uniform(0.6, 1.1), rng.uniform(0.36, 0.46)
    lower = oval(u, y, 0.04 + reach * math.cos(drop), -reach * math.sin(drop), reach, rng.uniform(0.22, 0.3), -drop)
    border = rng.uniform(0.07, 0.13)
    parts = [(MAIN, lower), (SIDE, lower + border), (MAIN, upper)]
    if rng.random() < 0.6:
        parts.append((SIDE, upper + border))
    eye = disc(u, y, 0.62 * math.cos(lift), 0.62 * math.sin(lift), rng.uniform(0.06, 0.13))
    feeler = stick(u, y, (0.03, 0.4), (rng.uniform(0.15, 0.3), rng.uniform(0.7, 0.9)), 0.045)
    body = stick(x, y, (0, 0.4), (0, -rng.uniform(0.35, 0.6)), rng.uniform(0.12, 0.18))
    return [*parts, (PALE, eye), (DARK, feeler), (DARK, body)]


def cat(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A head with two pointed ears, eyes, nose and whiskers."""
    u, slant = np.abs(x), rng.uniform(-0.15, 0.15)
    ear = polygon(u, y, (0.12, 0.25), (0.74, 0.1), (rng.uniform(0.5, 0.72), rng.uniform(0.75, 0.95)), soft=0.08)
    head = oval(x, y, 0, -0.12, rng.uniform(0.72, 0.88), rng.uniform(0.6, 0.74))
    parts = [(MAIN, ear), (SIDE, ear + 0.1), (MAIN, head)]
    if rng.random() < 0.6:
        parts.append((PALE, oval(u, y, 0.13, -0.38, 0.2, 0.15)))
    eye = oval(u, y, rng.uniform(0.26, 0.36), 0.02, rng.uniform(0.1, 0.16), rng.uniform(0.1, 0.19))
    pupil = oval(u, y, rng.uniform(0.28, 0.33), 0.02, rng.uniform(0.04, 0.07), 0.11)
    nose = polygon(x, y, (0, -0.32), (0.1, -0.2), (-0.1, -0.2), soft=0.05)
    whiskers = [stick(u, y, (0.32, -0.34 - 0.1 * k), (0.95, -0.34 - 0.2 * k + slant), 0.036) for k in (0, 1)]
    return [*parts, (PALE, eye), (DARK, pupil), (DARK, nose), *((DARK, whisker) for whisker in whiskers)]


def fish(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A lens of a body with a forked tail, fins, an eye and perhaps bands."""
    half, length, u = rng.uniform(0.32, 0.52), rng.uniform(0.62, 0.74), x - 0.25
    radius = (length * length + half * half) / (2 * half)
    body = both(disc(u, y, 0, half - radius, radius), disc(u, y, 0, radius - half, radius), 0.1)
    spread, back = rng.uniform(0.35, 0.55), rng.uniform(-0.1, 0.3)
    tail = polygon(x, np.abs(y), (-0.25, 0), (-0.85, spread), (-1, spread), (rng.uniform(-0.75, -0.6), 0), soft=0.05)
    top = polygon(x, y, (0.5, half * 0.5), (back, half + rng.uniform(0.18, 0.32)), (-0.2, half * 0.6), soft=0.08)
    low = polygon(x, y, (-0.1, -half * 0.6), (back - 0.2, -half - 0.2), (0.3, -half * 0.7), soft=0.06)
    parts = [(SIDE, tail), (SIDE, top), (SIDE, low), (MAIN, body)]
    for k in range(rng.integers(0, 4)):
        band = np.abs(u - 0.18 + 0.28 * k + 0.15 * y * y) - rng.uniform(0.03, 0.08)
        parts.append((PALE, both(body, band)))
    fin = oval(x, y, 0.12, -0.06, 0.16, 0.08, rng.uniform(-0.6, 0.6))
    eye = disc(x, y, 0.62, 0.07, rng.uniform(0.07, 0.11))
    return [*parts, (SIDE, fin), (PALE, eye), (DARK, eye + 0.045)]


def house(x: Field, y: Field, rng: Rng) -> list[Part]:
    """Walls under a pointed or a flat-topped roof, with a door, windows and perhaps a chimney."""
    wide, eaves, ridge = rng.uniform(0.55, 0.8), rng.uniform(0, 0.25), rng.uniform(0.65, 0.95)
    crest = float(rng.choice([0.02, 0.35])) * wide
    parts = [(MAIN, block(x, y, -0.8, eaves + 0.1, wide, wide))]
    if rng.random() < 0.6:
        parts.insert(0, (SIDE, block(x - float(rng.choice([-0.55, 0.55])) * wide, y, eaves, ridge + 0.02, 0.1, 0.1)))
    parts.append((SIDE, block(x, y, eaves, ridge, wide + rng.uniform(0.06, 0.2), crest)))
    door = rng.uniform(-0.5, 0.5) * wide
    parts.append((DARK, block(x - door, y, -0.8, rng.uniform(-0.35, -0.2), 0.13, 0.13)))
    windows = [at for at in (door - 0.42, door + 0.42) if abs(at) < wide - 0.12]
    parts += [(PALE, block(x - at, y, -0.4, -0.12, 0.12, 0.12)) for at in windows]
    if rng.random() < 0.5:
        parts.append((PALE, disc(x, y, 0, eaves + 0.22, 0.1)))
    return parts


def mug(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A cup seen from a little above, with one handle and perhaps a band or a spot."""
    wide, tall, tilt = rng.uniform(0.45, 0.62), rng.uniform(0.55, 0.8), rng.uniform(0.1, 0.2)
    rim = oval(x, y, 0, tall, wide, tilt)
    cup = either(block(x, y, -tall, tall, wide * rng.uniform(0.75, 1.05), wide, soft=0.12), rim)
    grip = rng.uniform(0.3, 0.42)
    handle = oval(x, y, wide * 0.95, rng.uniform(-0.1, 0.1), grip, grip * rng.uniform(0.9, 1.3))
    parts = [(MAIN, np.abs(handle) - 0.075), (MAIN, cup)]
    if rng.random() < 0.5:
        curve = y + 0.3 * tilt * (1 - (x / wide) ** 2)
        parts.append((SIDE, both(cup, np.abs(curve - rng.uniform(-0.3, 0.2)) - rng.uniform(0.06, 0.2))))
    if rng.random() < 0.4:
        parts.append((PALE, disc(x, y, 0, -0.1, rng.uniform(0.12, 0.22))))
    return [*parts, (PALE, rim + 0.01), (DARK, oval(x, y, 0, tall - 0.01, wide - 0.1, tilt - 0.05))]


def mushroom(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A domed cap, perhaps with spots, on a stem, perhaps with a collar."""
    wide, tall, brim = rng.uniform(0.7, 0.9), rng.uniform(0.5, 0.95), rng.uniform(-0.1, 0.1)
    thick = rng.uniform(0.16, 0.26)
    dome = both(oval(x, y, 0, brim, wide, tall), brim - 0.02 - y - 0.12 * x * x, 0.12)
    parts = [(SIDE, oval(x, y, 0, brim, wide * 0.85, rng.uniform(0.08, 0.2)))]
    parts.append((PALE, block(x, y, -0.85, brim, thick * rng.uniform(1, 1.7), thick, soft=0.12)))
    if rng.random() < 0.4:
        parts.append((PALE, oval(x, y, 0, -0.3, thick * 1.6, 0.07)))
    parts.append((MAIN, dome))
    for k in range(rng.integers(0, 6)):
        turn, far = 1.3 * k + rng.uniform(0, 1), rng.uniform(0.3, 0.55)
        spot = oval(x, y, wide * far * math.cos(turn), brim + tall * (0.4 + far * 0.6 * math.sin(turn)), 0.13, 0.1)
        parts.append((PALE, both(spot, dome)))
    return parts


def sailboat(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A hull, a mast, one or two sails and perhaps a flag."""
    wide, deck, top = rng.uniform(0.7, 0.95), rng.uniform(-0.55, -0.4), rng.uniform(0.75, 0.95)
    low, u = deck + rng.uniform(0.08, 0.16), x - rng.uniform(-0.15, 0.15)
    sail = polygon(u, y, (0.05, low), (rng.uniform(0.5, 0.75), low), (0.05, top - 0.05), soft=0.05)
    parts = [
        (DARK, stick(u, y, (0, deck), (0, top), 0.06)),
        (PALE, sail - 0.05 * np.clip(np.sin((y - low) * 2.4), 0, 1)),
    ]
    if rng.random() < 0.7:
        tack = -rng.uniform(0.4, 0.65)
        parts.append((MAIN, polygon(u, y, (tack, low), (-0.05, low), (-0.05, top - 0.25), soft=0.05)))
    if rng.random() < 0.5:
        parts.append((SIDE, polygon(u, y, (0, top - 0.02), (0.25, top + 0.06), (0, top + 0.14))))
    hull = block(x, y, -0.85, deck, wide * rng.uniform(0.5, 0.8), wide, soft=0.12)
    parts.append((SIDE, hull))
    if rng.random() < 0.5:
        parts.append((MAIN, both(hull, np.abs(y - deck + 0.12) - 0.05)))
    return parts


def tree(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A trunk under heaps of leaves, perhaps with fruit, or under the tiers of a fir."""
    thick, base = rng.uniform(0.09, 0.16), rng.uniform(-0.35, -0.15)
    parts = [(SIDE, block(x, y, -0.95, base + 0.3, thick * 1.4, thick * 0.8))]
    if rng.random() < 0.4:
        tiers, wide = int(rng.integers(2, 5)), rng.uniform(0.55, 0.75)
        for k in range(tiers):
            low, half = base + k * 0.95 / tiers, wide * (1 - 0.7 * k / tiers)
            parts.append((MAIN, polygon(x, y, (-half, low), (half, low), (0, low + 1.3 / tiers + 0.1), soft=0.06)))
        return parts
    wide, tall, count = rng.uniform(0.2, 0.42), rng.uniform(0.25, 0.4), int(rng.integers(5, 9))
    turns = (rng.uniform(0, 6.3) + np.arange(count) * (2 * math.pi / count)).tolist()
    spots = [(wide * math.cos(turn), 0.32 + tall * math.sin(turn)) for turn in turns]
    heaps = [disc(x, y, 0, 0.32, 0.3), *(disc(x, y, *spot, rng.uniform(0.22, 0.36)) for spot in spots)]
    parts.append((MAIN, reduce(lambda a, b: either(a, b, 0.04), heaps)))
    return parts + [(PALE, disc(x, y, *spot, 0.08)) for spot in spots[: rng.integers(0, 6)]]


SHAPES: dict[str, Callable[[Field, Field, Rng], list[Part]]] = {
    "butterfly": butterfly,
    "cat": cat,
    "fish": fish,
    "house": house,
    "mug": mug,
    "mushroom": mushroom,
    "sailboat": sailboat,
    "tree": tree,
}
CLASSES: tuple[str, ...] = tuple(SHAPES)
DOMAINS: tuple[str, ...] = tuple(RENDERERS)


def _pose(rng: Rng, size: int) -> tuple[Field, Field, float]:
    """Where on the thing each pixel lies, wobbling as if drawn by hand, and how large the thing is."""
    x, y = grid(size)
    scale, angle, shear = rng.uniform(0.7, 0.92), rng.uniform(-0.22, 0.22), rng.uniform(-0.15, 0.15)
    cx, cy = (rng.uniform(-1, 1, 2) * (1.02 - scale)).tolist()
    wobble = 0.02 * noise(rng, size, 3, channels=(2,))
    u, v = (x - cx) / scale + wobble[0], (cy - y) / scale + wobble[1]
    u, v = math.cos(angle) * u + math.sin(angle) * v, math.cos(angle) * v - math.sin(angle) * u
    stretch, flip = rng.uniform(0.87, 1.15), float(rng.choice([-1, 1]))
    return (u + shear * v) * stretch * flip, v / stretch, scale


def _draw(domain: int, label: int, index: int, size: int, seed: int) -> npt.NDArray[np.uint8]:
    """One picture (3, size, size), from its own generator: it does not depend on how many others there are."""
    rng = np.random.default_rng((seed, domain, label, index))
    x, y, scale = _pose(rng, 2 * size)  # twice as fine, then averaged, for smooth lines
    parts = [(tone, distance * scale) for tone, distance in SHAPES[CLASSES[label]](x, y, rng)]
    image = RENDERERS[DOMAINS[domain]](compose(parts), rng)
    image = np.clip(image, 0, 1) * (255 / 4)
    image = image[:, ::2] + image[:, 1::2]
    return np.asarray(image[:, :, ::2] + image[:, :, 1::2] + 0.5).astype(np.uint8)


def make_shapes(images_per_class: int = 80, size: int = 64, seed: int = 0) -> Dataset:
    """The data set: in every domain the first picture of each class, then the second of each, and so on."""
    for name, value, least in (("images_per_class", images_per_class, 1), ("size", size, 16), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"shapes: {name} is {value}, and must be {least} or more")
    labels = np.tile(np.arange(len(CLASSES)), images_per_class)
    sizes = torch.full((len(labels), 2), size, dtype=torch.int32)
    digest = hashlib.blake2b(repr((DOMAINS, CLASSES)).encode() + labels.tobytes(), digest_size=16)
    domains = []
    for place, name in enumerate(DOMAINS):
        images = np.stack([_draw(place, int(label), n // len(CLASSES), size, seed) for n, label in enumerate(labels)])
        digest.update(images.tobytes())
        domains.append(DomainData(name, torch.from_numpy(images), sizes, torch.from_numpy(labels.copy())))
    return Dataset("shapes", tuple(domains), CLASSES, digest.hexdigest())
