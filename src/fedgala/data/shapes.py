"""`shapes`: eight kinds of drawn things in four styles, made in seconds from a seed; the data set that needs no download.

Laid out as PACS is: photo, art painting, cartoon, sketch. A class is what a thing is made of and how its parts sit
together; colour, background, position, size, angle and light are drawn apart from it, so that none of them gives it away.
"""

import hashlib
import math
from collections.abc import Callable
from functools import reduce

import numpy as np
import torch

from fedgala.data.domain import Dataset, DomainData
from fedgala.data.shapes_render import DARK, LIGHT, MAIN, RENDERERS, SIDE, Field, Part, Rng, compose, grid, noise
from fedgala.errors import ConfigError

OVERSAMPLE = 2  # drawn this much larger and averaged

Point = tuple[float, float]

# Distances: negative inside, exact near the rim; x to the right, y up, a thing reaching about 1 from the origin ---


def disc(x: Field, y: Field, cx: float, cy: float, radius: float) -> Field:
    """A circle."""
    return np.sqrt((x - cx) ** 2 + (y - cy) ** 2) - radius


def oval(x: Field, y: Field, cx: float, cy: float, a: float, b: float, turn: float = 0.0) -> Field:
    """An ellipse with half axes `a` and `b`, the first turned by `turn`."""
    c, s = math.cos(turn), math.sin(turn)
    u, v = (c * (x - cx) + s * (y - cy)) / a, (c * (y - cy) - s * (x - cx)) / b
    radius = np.sqrt(u * u + v * v)
    return radius * (radius - 1) / (np.sqrt((u / a) ** 2 + (v / b) ** 2) + 1e-6)


def line(x: Field, y: Field, start: Point, end: Point, width: float) -> Field:
    """A stick with round ends and half thickness `width`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    u, v = x - start[0], y - start[1]
    t = np.clip((u * dx + v * dy) / (dx * dx + dy * dy), 0, 1)
    return np.sqrt((u - t * dx) ** 2 + (v - t * dy) ** 2) - width


def overlap(a: Field, b: Field, soft: float = 1e-3) -> Field:
    """What is in both, corners rounded over `soft`."""
    blend = np.maximum(soft - np.abs(a - b), 0)
    return np.maximum(a, b) + blend * blend * (0.25 / soft)


def merge(a: Field, b: Field, soft: float = 1e-3) -> Field:
    """What is in either, notches filled over `soft`."""
    return -overlap(-a, -b, soft)


def polygon(x: Field, y: Field, *corners: Point, soft: float = 0.03) -> Field:
    """A convex polygon, corners counter-clockwise."""
    sides = []
    for (px, py), (qx, qy) in zip(corners, corners[1:] + corners[:1], strict=True):
        length = math.hypot(qx - px, qy - py)
        nx, ny = (qy - py) / length, (px - qx) / length
        sides.append(nx * x + ny * y - (nx * px + ny * py))
    return reduce(lambda a, b: overlap(a, b, soft), sides)


# Things ------------------------------------------------------------------------------------------------------------


def butterfly(x: Field, y: Field, rng: Rng) -> list[Part]:
    """Two pairs of wings, one side perhaps folded, on a thin body with feelers."""
    u = np.where(x > 0, x, -x / rng.uniform(0.65, 1))
    lift, reach = rng.uniform(0.5, 0.95), rng.uniform(0.5, 0.6)
    upper = oval(u, y, 0.06 + reach * math.cos(lift), reach * math.sin(lift), reach, rng.uniform(0.28, 0.36), lift)
    drop, reach = rng.uniform(0.6, 1.1), rng.uniform(0.36, 0.46)
    lower = oval(u, y, 0.04 + reach * math.cos(drop), -reach * math.sin(drop), reach, rng.uniform(0.22, 0.3), -drop)
    border = rng.uniform(0.07, 0.13)
    eye = disc(u, y, 0.62 * math.cos(lift), 0.62 * math.sin(lift), rng.uniform(0.06, 0.13))
    feeler = line(u, y, (0.03, 0.4), (rng.uniform(0.15, 0.3), rng.uniform(0.7, 0.9)), 0.022)
    body = line(x, y, (0, 0.4), (0, -rng.uniform(0.35, 0.6)), rng.uniform(0.06, 0.09))
    wings = [Part(MAIN, lower), Part(SIDE, lower + border), Part(MAIN, upper)]
    if rng.random() < 0.6:
        wings.append(Part(SIDE, upper + border))
    return [*wings, Part(LIGHT, eye), Part(DARK, feeler), Part(DARK, body)]


def cat(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A head with two pointed ears, eyes, nose and whiskers."""
    u = np.abs(x)
    wide, tall = rng.uniform(0.72, 0.88), rng.uniform(0.6, 0.74)
    tip, base = rng.uniform(0.5, 0.72), rng.uniform(0.75, 0.95)
    ear = polygon(u, y, (0.12, 0.25), (0.74, 0.1), (tip, base), soft=0.08)
    head = oval(x, y, 0, -0.12, wide, tall)
    eye = oval(u, y, rng.uniform(0.26, 0.36), 0.02, rng.uniform(0.1, 0.16), rng.uniform(0.1, 0.19))
    pupil = oval(u, y, rng.uniform(0.28, 0.33), 0.02, rng.uniform(0.04, 0.07), 0.11)
    nose = polygon(x, y, (0, -0.32), (0.1, -0.2), (-0.1, -0.2), soft=0.05)
    muzzle = oval(u, y, 0.13, -0.38, 0.2, 0.15)
    slant = rng.uniform(-0.15, 0.15)
    whiskers = [line(u, y, (0.32, -0.34 - 0.1 * k), (0.95, -0.34 - 0.2 * k + slant), 0.018) for k in (0, 1)]
    parts = [Part(MAIN, ear), Part(SIDE, ear + 0.1), Part(MAIN, head)]
    if rng.random() < 0.6:
        parts.append(Part(LIGHT, muzzle))
    return [*parts, Part(LIGHT, eye), Part(DARK, pupil), Part(DARK, nose), *(Part(DARK, w) for w in whiskers)]


def fish(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A lens of a body with a forked tail, fins, an eye and perhaps bands."""
    half, bulge = rng.uniform(0.32, 0.52), rng.uniform(0.62, 0.74)
    radius = (bulge * bulge + half * half) / (2 * half)
    u = x - 0.25
    body = overlap(disc(u, y, 0, half - radius, radius), disc(u, y, 0, radius - half, radius), 0.1)
    fork, spread = rng.uniform(-0.75, -0.6), rng.uniform(0.35, 0.55)
    lobe = polygon(x, np.abs(y), (-0.25, 0.0), (-0.85, spread), (-1, spread), (fork, 0), soft=0.05)
    back = rng.uniform(-0.1, 0.3)
    top = polygon(x, y, (0.5, half * 0.5), (back, half + rng.uniform(0.18, 0.32)), (-0.2, half * 0.6), soft=0.08)
    low = polygon(x, y, (-0.1, -half * 0.6), (back - 0.2, -half - 0.2), (0.3, -half * 0.7), soft=0.06)
    parts = [Part(SIDE, lobe), Part(SIDE, top), Part(SIDE, low), Part(MAIN, body)]
    for k in range(rng.integers(0, 4)):
        band = np.abs(u - 0.18 + 0.28 * k + 0.15 * y * y) - rng.uniform(0.03, 0.08)
        parts.append(Part(LIGHT, overlap(body, band)))
    fin = oval(x, y, 0.12, -0.06, 0.16, 0.08, rng.uniform(-0.6, 0.6))
    eye = disc(x, y, 0.62, 0.07, rng.uniform(0.07, 0.11))
    return [*parts, Part(SIDE, fin), Part(LIGHT, eye), Part(DARK, eye + 0.045)]


def house(x: Field, y: Field, rng: Rng) -> list[Part]:
    """Walls under a pointed or flat-topped roof, with a door, windows and perhaps a chimney."""
    wide, eaves, ridge = rng.uniform(0.55, 0.8), rng.uniform(0.0, 0.25), rng.uniform(0.65, 0.95)
    crest, lip = float(rng.choice([0.02, 0.35])) * wide, wide + rng.uniform(0.06, 0.2)
    walls = polygon(x, y, (-wide, -0.8), (wide, -0.8), (wide, eaves + 0.1), (-wide, eaves + 0.1))
    roof = polygon(x, y, (-lip, eaves), (lip, eaves), (crest, ridge), (-crest, ridge))
    parts = [Part(MAIN, walls)]
    if rng.random() < 0.6:
        left = float(rng.choice([-1, 1])) * wide * 0.55
        stack = polygon(
            x, y, (left - 0.1, eaves), (left + 0.1, eaves), (left + 0.1, ridge + 0.02), (left - 0.1, ridge + 0.02)
        )
        parts.insert(0, Part(SIDE, stack))
    at, high = rng.uniform(-0.5, 0.5) * wide, rng.uniform(-0.35, -0.2)
    door = polygon(x, y, (at - 0.13, -0.8), (at + 0.13, -0.8), (at + 0.13, high), (at - 0.13, high))
    parts += [Part(SIDE, roof), Part(DARK, door)]
    for side in (-1, 1):
        place = at + side * 0.42
        if abs(place) < wide - 0.12:
            pane = polygon(
                x, y, (place - 0.12, -0.4), (place + 0.12, -0.4), (place + 0.12, -0.12), (place - 0.12, -0.12)
            )
            parts += [Part(LIGHT, pane)]
    if rng.random() < 0.5:
        parts.append(Part(LIGHT, disc(x, y, 0, eaves + 0.22, 0.1)))
    return parts


def mug(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A cup seen from a little above, one handle, perhaps a band or a spot."""
    wide, foot, tall = rng.uniform(0.45, 0.62), rng.uniform(0.75, 1.05), rng.uniform(0.55, 0.8)
    tilt = rng.uniform(0.1, 0.2)
    sides = polygon(x, y, (-wide * foot, -tall), (wide * foot, -tall), (wide, tall), (-wide, tall), soft=0.12)
    cup = merge(sides, oval(x, y, 0, tall, wide, tilt))
    grip = rng.uniform(0.3, 0.42)
    handle = np.abs(oval(x, y, wide * 0.95, rng.uniform(-0.1, 0.1), grip, grip * rng.uniform(0.9, 1.3))) - 0.075
    rim = oval(x, y, 0, tall, wide - 0.01, tilt)
    drink = oval(x, y, 0, tall - 0.01, wide - 0.1, tilt - 0.05)
    parts = [Part(MAIN, handle), Part(MAIN, cup)]
    if rng.random() < 0.5:
        curve = y + 0.3 * tilt * (1 - (x / wide) ** 2)
        parts.append(Part(SIDE, overlap(cup, np.abs(curve - rng.uniform(-0.3, 0.2)) - rng.uniform(0.06, 0.2))))
    if rng.random() < 0.4:
        parts.append(Part(LIGHT, disc(x, y, 0, -0.1, rng.uniform(0.12, 0.22))))
    return [*parts, Part(LIGHT, rim), Part(DARK, drink)]


def mushroom(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A domed cap with spots on a stem, perhaps with a collar."""
    wide, tall, brim = rng.uniform(0.7, 0.9), rng.uniform(0.5, 0.95), rng.uniform(-0.1, 0.1)
    thick, foot = rng.uniform(0.16, 0.26), rng.uniform(1.0, 1.7)
    stem = polygon(x, y, (-thick * foot, -0.85), (thick * foot, -0.85), (thick, brim), (-thick, brim), soft=0.12)
    dome = overlap(oval(x, y, 0, brim, wide, tall), brim - 0.02 - y - 0.12 * x * x, 0.12)
    gills = oval(x, y, 0, brim, wide * 0.85, rng.uniform(0.08, 0.2))
    parts = [Part(SIDE, gills), Part(LIGHT, stem), Part(MAIN, dome)]
    if rng.random() < 0.4:
        parts.insert(2, Part(LIGHT, oval(x, y, 0, -0.3, thick * 1.6, 0.07)))
    for k in range(rng.integers(0, 6)):
        turn, far = 1.3 * k + rng.uniform(0, 1), rng.uniform(0.3, 0.55)
        spot = oval(x, y, wide * far * math.cos(turn), brim + tall * (0.4 + far * 0.6 * math.sin(turn)), 0.13, 0.1)
        parts.append(Part(LIGHT, overlap(spot, dome)))
    return parts


def sailboat(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A hull, a mast, one or two filled sails and perhaps a flag."""
    wide, deck = rng.uniform(0.7, 0.95), rng.uniform(-0.55, -0.4)
    keel = wide * rng.uniform(0.5, 0.8)
    hull = polygon(x, y, (-keel, -0.85), (keel * 0.8, -0.85), (wide, deck), (-wide, deck), soft=0.12)
    top, stand = rng.uniform(0.75, 0.95), rng.uniform(-0.15, 0.15)
    mast = line(x, y, (stand, deck), (stand, top), 0.03)
    low = deck + rng.uniform(0.08, 0.16)
    clew = stand + rng.uniform(0.5, 0.75)
    sail = polygon(x, y, (stand + 0.05, low), (clew, low), (stand + 0.05, top - 0.05), soft=0.05)
    sail = sail - 0.05 * np.clip(np.sin((y - low) * 2.4), 0, 1)
    parts = [Part(DARK, mast), Part(LIGHT, sail)]
    if rng.random() < 0.7:
        tack = stand - rng.uniform(0.4, 0.65)
        parts.append(Part(MAIN, polygon(x, y, (tack, low), (stand - 0.05, low), (stand - 0.05, top - 0.25), soft=0.05)))
    if rng.random() < 0.5:
        parts.append(Part(SIDE, polygon(x, y, (stand, top - 0.02), (stand + 0.25, top + 0.06), (stand, top + 0.14))))
    parts.append(Part(SIDE, hull))
    if rng.random() < 0.5:
        parts.append(Part(MAIN, overlap(hull, np.abs(y - deck + 0.12) - 0.05)))
    return parts


def tree(x: Field, y: Field, rng: Rng) -> list[Part]:
    """A trunk under a crown: heaps of leaves, one oval, or the tiers of a fir."""
    thick, base = rng.uniform(0.09, 0.16), rng.uniform(-0.35, -0.15)
    trunk = polygon(
        x, y, (-thick * 1.4, -0.95), (thick * 1.4, -0.95), (thick * 0.8, base + 0.3), (-thick * 0.8, base + 0.3)
    )
    parts = [Part(SIDE, trunk)]
    if rng.random() < 0.4:
        tiers, wide = int(rng.integers(2, 5)), rng.uniform(0.55, 0.75)
        for k in range(tiers):
            low, half = base + k * 0.95 / tiers, wide * (1 - 0.7 * k / tiers)
            parts.append(Part(MAIN, polygon(x, y, (-half, low), (half, low), (0, low + 1.3 / tiers + 0.1), soft=0.06)))
        return parts
    wide, tall, heaps = rng.uniform(0.2, 0.42), rng.uniform(0.25, 0.4), int(rng.integers(5, 9))
    turns = rng.uniform(0, 6.3) + np.arange(heaps) * 2 * math.pi / heaps
    spots = [(wide * math.cos(turn), 0.32 + tall * math.sin(turn)) for turn in turns.tolist()]
    heap = [disc(x, y, *spot, rng.uniform(0.22, 0.36)) for spot in spots]
    parts.append(Part(MAIN, reduce(lambda a, b: merge(a, b, 0.04), [disc(x, y, 0, 0.32, 0.3), *heap])))
    parts += [Part(LIGHT, disc(x, y, *spot, 0.08)) for spot in spots[: rng.integers(0, 6)]]
    return parts


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


def pose(rng: Rng, size: int) -> tuple[Field, Field, float]:
    """Where each pixel lies on the thing, and how large the thing is; a hand's wobble included."""
    x, y = grid(size)
    scale, angle = rng.uniform(0.6, 0.85), rng.uniform(-0.3, 0.3)
    cx, cy = (rng.uniform(-1, 1, 2) * (1 - scale)).tolist()
    wobble = 0.02 * noise(rng, size, 3, channels=2)
    u, v = (x - cx) / scale + wobble[0], (cy - y) / scale + wobble[1]
    c, s, shear = math.cos(angle), math.sin(angle), rng.uniform(-0.15, 0.15)
    u, v = c * u + s * v, c * v - s * u
    stretch = rng.uniform(0.87, 1.15) * (1 if rng.random() < 0.5 else -1)
    return (u + shear * v) * stretch, v / abs(stretch), scale


def draw(domain: str, kind: str, index: int, size: int, seed: int) -> np.ndarray:
    """One picture, uint8 (3, size, size), which depends on these arguments only."""
    rng = np.random.default_rng((seed, DOMAINS.index(domain), CLASSES.index(kind), index))
    x, y, scale = pose(rng, size * OVERSAMPLE)
    parts = [Part(tone, distance * scale) for tone, distance in SHAPES[kind](x, y, rng)]
    image = RENDERERS[domain](compose(parts), rng)
    assert all(p.distance.dtype==np.float32 for p in parts),kind
    assert image.dtype==np.float32,domain
    image = np.clip(image, 0, 1) * (255 / 4)
    image = image[:, ::2] + image[:, 1::2]
    return (image[:, :, ::2] + image[:, :, 1::2] + 0.5).astype(np.uint8)


def make_shapes(images_per_class: int = 80, size: int = 64, seed: int = 0) -> Dataset:
    """..."""
    labels = np.tile(np.arange(len(CLASSES)), images_per_class)
    sizes = torch.full((len(labels), 2), size, dtype=torch.int32)
    digest = hashlib.blake2b(" ".join(DOMAINS + CLASSES).encode(), digest_size=16)
    domains = []
    for name in DOMAINS:
        images = np.stack([draw(name, CLASSES[label], n // len(CLASSES), size, seed) for n, label in enumerate(labels)])
        digest.update(images.tobytes() + labels.tobytes())
        domains.append(DomainData(name, torch.from_numpy(images), sizes, torch.from_numpy(labels)))
    return Dataset("shapes", tuple(domains), CLASSES, digest.hexdigest())
