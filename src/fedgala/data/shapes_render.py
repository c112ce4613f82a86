"""How the four domains of the `shapes` data set draw a thing: as a photograph, a painting, a cartoon, a sketch.

A thing arrives as parts, back to front, each a signed distance field (negative inside, the picture being 2 wide). The
renderers draw their colours, light and background without knowing what the thing is: only its outline tells its class.
"""

import colorsys
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[np.float32]
Rng = np.random.Generator

MAIN, SIDE, LIGHT, DARK = 1, 2, 3, 4  # what a part is made of; 0 is the background
FAR = 9.0  # further than any two points of a picture


class Part(NamedTuple):
    """One piece of a thing: what it is made of, and where."""

    tone: int
    distance: Field


@dataclass(frozen=True)
class Scene:
    """What is seen of the parts once those in front hide those behind; every field is (S, S)."""

    tone: npt.NDArray[np.intp]  # of the front part
    depth: Field  # signed distance to the rim of the front part
    edge: Field  # distance to the nearest visible line
    outline: Field  # signed distance to the whole thing

    @property
    def size(self) -> int:
        """Pixels along a side."""
        return len(self.tone)


def compose(parts: Sequence[Part]) -> Scene:
    """Stack `parts`, the last one in front."""
    outline = reduce(np.minimum, (part.distance for part in parts))
    depth, edge = np.full_like(outline, FAR), np.full_like(outline, FAR)
    tone = np.zeros(outline.shape, np.intp)
    for part in parts:
        inside = part.distance < 0
        tone[inside] = part.tone
        depth = np.where(inside, part.distance, depth)
        edge = np.minimum(np.where(inside, FAR, edge), np.abs(part.distance))
    return Scene(tone, depth, edge, outline)


# Fields: noise, blur, slopes ---------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _spline(size: int, cells: int) -> Field:
    """The (size, cells + 3) matrix that interpolates a row of knots by cubic B-splines."""
    position = (np.arange(size) + 0.5) / size * cells
    offset = np.abs(position[:, None] + 1 - np.arange(cells + 3)[None, :])
    near = 2 / 3 - offset**2 + offset**3 / 2
    return np.where(offset < 1, near, np.clip(2 - offset, 0, None) ** 3 / 6).astype(np.float32)


@lru_cache(maxsize=64)
def _gauss(size: int, sigma: float) -> Field:
    """The (size, size) matrix that blurs a column by `sigma`, in picture units."""
    place = np.linspace(-1, 1, size)
    weight = np.exp(-(((place[:, None] - place[None, :]) / sigma) ** 2) / 2)
    return (weight / weight.sum(1, keepdims=True)).astype(np.float32)


def blur(field: Field, sigma: float) -> Field:
    """`field` (..., S, S) seen out of focus."""
    kernel = _gauss(field.shape[-1], sigma)
    return kernel @ field @ kernel.T


def noise(rng: Rng, size: int, rows: int, columns: int = 0, channels: int = 0) -> Field:
    """Smooth noise with `rows` x `columns` (or square) hills, zero mean, about unit variance."""
    columns = columns or rows
    knots = rng.standard_normal((*(channels,) * bool(channels), rows + 3, columns + 3), dtype=np.float32)
    return 2 * (_spline(size, rows) @ knots @ _spline(size, columns).T)


def fractal(rng: Rng, size: int, rows: int, columns: int = 0, octaves: int = 3) -> Field:
    """Noise on several scales, each half as large and half as strong as the one before."""
    layers = (noise(rng, size, rows << k, (columns or rows) << k) / 2**k for k in range(octaves))
    return reduce(np.add, layers) * np.float32(0.75)


def slope(field: Field) -> tuple[Field, Field]:
    """The derivatives of `field` along x (right) and y (down), per picture unit."""
    right, down = np.zeros_like(field), np.zeros_like(field)
    scale = len(field) / 4
    np.subtract(field[:, 2:], field[:, :-2], out=right[:, 1:-1])
    np.subtract(field[2:], field[:-2], out=down[1:-1])
    return right * scale, down * scale


def moved(field: Field, right: float | Field, down: float | Field) -> Field:
    """`field` pushed aside by that much, the rim repeated."""
    size = len(field)
    place = np.arange(size)
    rows = np.clip(place[:, None] - np.rint(np.asarray(down) * size / 2).astype(np.intp), 0, size - 1)
    columns = np.clip(place[None, :] - np.rint(np.asarray(right) * size / 2).astype(np.intp), 0, size - 1)
    return field[rows, columns]


@lru_cache(maxsize=8)
def grid(size: int) -> tuple[Field, Field]:
    """The x (right) and y (down) of each pixel, in [-1, 1]."""
    place = ((np.arange(size) + 0.5) * 2 / size - 1).astype(np.float32)
    return np.broadcast_to(place, (size, size)), np.broadcast_to(place[:, None], (size, size))


def ramp(field: Field, low: float, high: float) -> Field:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((field - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


# Colour ------------------------------------------------------------------------------------------------------------


_WHEEL, _HUES = np.linspace(0, 1, 9), (0.0, 0.06, 0.11, 0.155, 0.32, 0.5, 0.6, 0.76, 1.0)


def hsv(hue: float, saturation: float, value: float) -> Field:
    """A colour as (3, 1, 1)."""
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value), np.float32)[:, None, None]


def pigment(hue: float, saturation: float, value: float) -> Field:
    """A colour as (3, 1, 1) by the painter's wheel, where yellow and orange get the room that green has in HSV."""
    return hsv(float(np.interp(hue % 1, _WHEEL, _HUES)), saturation, value)


def mix(first: Field, second: Field, amount: Field | float) -> Field:
    """From `first` (amount 0) to `second` (amount 1)."""
    return first + (second - first) * amount


def palette(rng: Rng, saturation: tuple[float, float], value: tuple[float, float]) -> Field:
    """Colours (3, 5) of the tones: any two hues, a pale one and a dark one; the body may be the pale one."""
    hue = rng.random()
    other = hue + rng.choice([0.12, -0.12, 0.33, 0.5, -0.33]) + rng.normal(0, 0.03)
    main = pigment(hue, rng.uniform(*saturation), rng.uniform(*value))
    side = pigment(other, rng.uniform(*saturation), rng.uniform(*value))
    pale = pigment(rng.random(), rng.uniform(0.02, 0.25), rng.uniform(0.85, 1))
    dark = pigment(hue, rng.uniform(0.2, 0.6), rng.uniform(0.08, 0.25))
    if rng.random() < 0.3:
        main, pale = pale, main
    return np.concatenate([main, main, side, pale, dark], 1)[:, :, 0]


def light_from(rng: Rng) -> tuple[float, float]:
    """Where the light comes from: a unit vector to the upper left or right."""
    angle = rng.uniform(0.15, 0.85) * math.pi
    return math.cos(angle), -math.sin(angle)


def shading(scene: Scene, light: tuple[float, float], relief: float) -> tuple[Field, Field]:
    """Diffuse and specular light, in [0, 1], on the thing inflated like a cushion by `relief`."""
    radius = max(0.05, -float(scene.outline.min()))
    height = np.zeros_like(scene.depth)
    for distance, reach in ((scene.outline, radius), (scene.depth, 0.35 * radius)):
        sunk = np.clip(1 + distance / reach, 0, 1)
        height += relief * reach * np.sqrt(1 - sunk * sunk)
    right, down = slope(blur(height, 0.02))
    toward = (0.6 - 0.8 * (right * light[0] + down * light[1])) / np.sqrt(1 + right * right + down * down)
    gloss = np.square(np.square(np.square(np.clip(toward, 0, 1))))
    return np.clip(0.35 + 0.65 * toward, 0, 1), np.square(gloss)


# Photo -------------------------------------------------------------------------------------------------------------


def _landscape(rng: Rng, size: int) -> Field:
    """Sky with clouds over a field, grass, sand or water."""
    _, y = grid(size)
    horizon = rng.uniform(-0.3, 0.5) + 0.06 * noise(rng, size, 1, rng.integers(2, 6))
    top, low = hsv(rng.uniform(0.52, 0.62), rng.uniform(0.2, 0.6), rng.uniform(0.6, 0.95)), hsv(rng.random(), 0.1, 0.95)
    sky = mix(top, low, np.clip((y + 1) / 1.4, 0, 1))
    sky = mix(sky, np.float32(0.95), 0.7 * ramp(fractal(rng, size, 4, 2), 0.1, 1.5))
    soil = hsv(rng.uniform(0.08, 0.36), rng.uniform(0.15, 0.6), rng.uniform(0.45, 0.75))
    blades = fractal(rng, size, 10, rng.integers(3, 16))
    ground = mix(low * 0.9, soil * (1 + 0.28 * blades), np.clip(0.55 + (y - horizon), 0, 1))
    return np.where(y < horizon, sky, ground)


def _tabletop(rng: Rng, size: int) -> Field:
    """A wall behind a wooden board."""
    x, y = grid(size)
    wall = pigment(rng.random(), rng.uniform(0.05, 0.4), rng.uniform(0.35, 0.85))
    lamp = np.exp(-((x - rng.uniform(-1, 1)) ** 2) - (y + 0.8) ** 2)
    wall = wall * (0.6 + 0.5 * lamp + 0.05 * fractal(rng, size, 10, rng.integers(4, 20)))
    wood = hsv(rng.uniform(0.03, 0.12), rng.uniform(0.3, 0.65), rng.uniform(0.35, 0.75))
    grain = np.sin(rng.uniform(14, 30) * (y + 0.12 * noise(rng, size, 3, 1))) + fractal(rng, size, 24, 3)
    return np.where(y < rng.uniform(-0.1, 0.7), wall, wood * (0.95 + 0.12 * grain))


def _bokeh(rng: Rng, size: int) -> Field:
    """Leaves and lights far out of focus."""
    x, y = grid(size)
    hue = rng.choice([0.1, 0.25, 0.3, 0.6]) + rng.normal(0, 0.03)
    first, second = (hsv(hue + rng.normal(0, 0.04), rng.uniform(0.15, 0.6), v) for v in rng.uniform(0.25, 0.75, 2))
    image = mix(first, second, ramp(noise(rng, size, 3), -1, 1))
    for _ in range(rng.integers(5, 11)):
        radius, (left, top) = rng.uniform(0.08, 0.3), rng.uniform(-1, 1, 2)
        disc = np.float32(radius) - np.sqrt((x - np.float32(left)) ** 2 + (y - np.float32(top)) ** 2)
        glow = hsv(hue + rng.normal(0, 0.1), rng.uniform(0.1, 0.5), rng.uniform(0.7, 1))
        image = mix(image, glow, rng.uniform(0.15, 0.55) * ramp(disc, 0, 0.05))
    return image


def _ground(rng: Rng, size: int) -> Field:
    """Stone, sand, leaves or cloth seen from above: relief lit from one side."""
    cells = int(rng.integers(3, 9))
    rough = fractal(rng, size, cells, int(cells * rng.uniform(0.5, 2)) + 1, octaves=4)
    right, down = slope(rough)
    hue = rng.choice([0.07, 0.1, 0.14, 0.25, 0.58])
    first, second = (hsv(hue + rng.normal(0, 0.03), rng.uniform(0.08, 0.5), v) for v in rng.uniform(0.4, 0.9, 2))
    return mix(first, second, ramp(rough, -1, 1)) * (1 + 0.02 * (right + down) * float(rng.choice([-1, 1])))


BACKDROPS = (_landscape, _tabletop, _bokeh, _ground)


def photo(scene: Scene, rng: Rng) -> Field:
    """A lit, textured solid thing with a shadow before a natural background, through a camera."""
    size, light = scene.size, light_from(rng)
    x, y = grid(size)
    image = BACKDROPS[rng.integers(len(BACKDROPS))](rng, size)
    image = blur(image, rng.uniform(0.012, 0.04).__round__(2))
    reach = rng.uniform(0.08, 0.25)
    shadow = ramp(moved(scene.outline, -light[0] * reach, -light[1] * reach), 0.12, -0.06)
    image = image * (1 - rng.uniform(0.4, 0.75) * shadow)
    diffuse, gloss = shading(scene, light, rng.uniform(0.6, 1.2))
    skin = 1 + rng.uniform(0.05, 0.2) * fractal(rng, size, rng.integers(3, 14), rng.integers(3, 14))
    body = palette(rng, (0.25, 0.8), (0.5, 0.95))[:, scene.tone] * skin * (0.15 + 1.05 * diffuse)
    body += rng.uniform(0, 0.4) * gloss
    body *= 0.7 + 0.3 * ramp(scene.edge, 0, 0.05)
    image = np.where(scene.outline < 0, body, image)
    image = image * (hsv(rng.random(), 0.12, 1) * rng.uniform(0.95, 1.2)) * (1 - 0.12 * (x * x + y * y))
    return image + rng.uniform(0.01, 0.04) * rng.standard_normal((size, size), dtype=np.float32)


# Painting ----------------------------------------------------------------------------------------------------------


def _strokes(image: Field, angle: Field, where: npt.NDArray[np.bool_], rng: Rng, density: float, width: float) -> Field:
    """`image` painted over with strokes centred anywhere in `where` that follow `angle`; all fields are (S, S)."""
    size = image.shape[-1]
    pixels = np.flatnonzero(where)
    centre = rng.choice(pixels, int(density * len(pixels) / (width * size) ** 2))
    row, column = np.divmod(centre, size)
    # A stroke is a bent strip of points, in pixels: u along it, v across it.
    along = np.linspace(-1, 1, int(2.1 * width * size) + 3, dtype=np.float32)
    across = np.linspace(-1, 1, int(0.65 * width * size) + 3, dtype=np.float32)
    u = (along * (1 - 0.15 * across[:, None] ** 2)).ravel() * np.float32(1.7 * width * size / 2)
    v = across.repeat(len(along)) * np.float32(width * size / 4)
    turn, bend = rng.normal(0, [[0.15], [0.015]], (2, len(centre))).astype(np.float32)
    turn += angle[row, column]
    v = v + bend[:, None] * (u * u)
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    right = np.clip((column[:, None] + u * cos - v * sin).astype(np.int32), 0, size - 1)
    down = np.clip((row[:, None] + u * sin + v * cos).astype(np.int32), 0, size - 1)
    owner = np.full(size * size, -1, np.int32)
    owner[(down * size + right).ravel()] = np.arange(right.size, dtype=np.int32)  # the later of two strokes stays
    stroke, point = np.divmod(owner, len(u))
    tint = rng.normal(0, 0.035, (3, len(centre))) + rng.normal(0, 0.04, len(centre))
    paint = (image[:, row, column] + tint).astype(np.float32)
    bristles = 1 + 0.05 * rng.standard_normal(len(across), dtype=np.float32) + 0.08 * across
    painted = paint[:, stroke] * bristles.repeat(len(along))[point]
    return np.where(owner >= 0, painted, image.reshape(3, -1)).reshape(image.shape)


def art_painting(scene: Scene, rng: Rng) -> Field:
    """Brush strokes that follow the rims of things and, away from them, the wind; canvas; the colours of some school."""
    size, light = scene.size, light_from(rng)
    x, y = grid(size)
    hue, vivid = rng.random(), rng.uniform(0.3, 0.85)
    ends = [pigment(hue + rng.normal(0, 0.1), vivid * rng.uniform(0.4, 1), rng.uniform(0.3, 0.95)) for _ in range(3)]
    air = mix(mix(ends[0], ends[1], ramp(y, -1, 1)), ends[2], ramp(noise(rng, size, 3), 0, 0.8))
    diffuse, _ = shading(scene, light, 0.8)
    body = palette(rng, (vivid * 0.7, vivid), (0.45, 0.95))[:, scene.tone] * (0.25 + 0.95 * diffuse)
    inside = scene.outline < 0
    right, down = slope(blur(np.where(inside, scene.depth, scene.outline), 0.03))
    wind = rng.uniform(0, math.pi) + 0.7 * noise(rng, size, 2)
    angle = np.where(scene.outline < rng.uniform(0.05, 0.5), np.arctan2(right, -down), wind)
    broad = rng.uniform(0.09, 0.14)
    image = _strokes(air * (1 - 0.35 * ramp(scene.outline, 0.12, 0)), angle, scene.outline > -0.1, rng, 2.5, broad)
    image = np.where(inside, body, image)
    image = _strokes(image, angle, scene.outline < -0.01, rng, 3, broad * 0.65)
    image = np.where(inside, mix(image, body, 0.5), image)
    image = _strokes(image, angle, inside & (scene.edge < 0.05), rng, 1.5, 0.045)
    weave = np.sin(x * size * 0.8) * np.sin(y * size * 0.8)
    warmth = hsv(rng.choice([0.1, 0.13, 0.6]), rng.uniform(0, 0.25), 1)
    return image * warmth * (1 + 0.04 * weave)


# Cartoon -----------------------------------------------------------------------------------------------------------


def _hills(rng: Rng, size: int) -> Field:
    x, y = grid(size)
    return y - rng.uniform(0, 0.5) - 0.12 * np.sin(rng.uniform(2, 5) * x + rng.uniform(0, 6))


def _rays(rng: Rng, size: int) -> Field:
    x, y = grid(size)
    left, top = rng.uniform(-0.6, 0.6, 2).astype(np.float32)
    return np.sin(np.arctan2(y - top, x - left) * float(rng.integers(5, 11)))


def _dots(rng: Rng, size: int) -> Field:
    x, y = grid(size)
    turn, rate = rng.uniform(0, math.pi), rng.uniform(7, 14)
    u, v = math.cos(turn) * x - math.sin(turn) * y, math.sin(turn) * x + math.cos(turn) * y
    return np.sin(rate * u) * np.sin(rate * v) - rng.uniform(0.3, 0.6)


def _stripes(rng: Rng, size: int) -> Field:
    x, y = grid(size)
    turn = rng.uniform(0, math.pi)
    return np.sin(rng.uniform(5, 12) * (math.cos(turn) * x + math.sin(turn) * y))


def _plain(rng: Rng, size: int) -> Field:
    return np.full((size, size), -1, np.float32)


PATTERNS = (_hills, _rays, _dots, _stripes, _plain)


def cartoon(scene: Scene, rng: Rng) -> Field:
    """Flat loud colours, one step of shade, a dark outline, a simple pattern behind."""
    size, light = scene.size, light_from(rng)
    hue, pale = rng.random(), rng.uniform(0.2, 0.6)
    back = pigment(hue, pale, rng.uniform(0.9, 1))
    front = pigment(hue + rng.choice([0, 0, 0.08, -0.08, 0.5]), pale + rng.uniform(-0.15, 0.2), rng.uniform(0.85, 1))
    pattern = PATTERNS[rng.integers(len(PATTERNS))](rng, size)
    body = palette(rng, (0.65, 0.95), (0.8, 1))[:, scene.tone]
    reach = rng.uniform(0.08, 0.18)
    shade = ramp(moved(scene.outline, light[0] * reach, light[1] * reach), -0.01, 0.01)
    glint = ramp(np.abs(scene.outline + 0.075), 0.03, 0.015) * (
        moved(scene.outline, -light[0] * 0.11, -light[1] * 0.11) > 0
    )
    body = mix(body * (1 - 0.3 * shade), np.float32(1), 0.6 * glint * (scene.tone != DARK))
    image = mix(mix(back, front, ramp(pattern, -0.05, 0.05)), body, ramp(scene.outline, 0.01, -0.01))
    width = rng.uniform(0.015, 0.03)
    return mix(image, pigment(hue + 0.5, 0.5, rng.uniform(0, 0.2)), ramp(scene.edge, width + 0.01, width - 0.01))


# Sketch ------------------------------------------------------------------------------------------------------------


def sketch(scene: Scene, rng: Rng) -> Field:
    """Pencil on white: lines drawn more than once by an unsteady hand, perhaps hatching, no fill."""
    size, light = scene.size, light_from(rng)
    x, y = grid(size)
    ink = np.zeros((size, size), np.float32)
    weight = rng.uniform(0.012, 0.024)
    for _ in range(rng.integers(1, 4)):
        shake = rng.uniform(0.004, 0.016)
        line = moved(scene.edge, shake * noise(rng, size, 5), shake * noise(rng, size, 5))
        pressure = np.clip(0.8 + 0.35 * noise(rng, size, 5), 0.1, 1.3)
        ink = np.maximum(ink, pressure * ramp(line, weight * 1.4, weight * 0.4))
    shade = (moved(scene.outline, light[0] * 0.2, light[1] * 0.2) > 0) & (scene.outline < 0)
    for _ in range(rng.integers(0, 3)):
        turn, rate = rng.uniform(0, math.pi), rng.uniform(50, 75)
        wave = np.sin(rate * (math.cos(turn) * x + math.sin(turn) * y) + 0.6 * noise(rng, size, 4))
        ink = np.where(
            shade, np.maximum(ink, ramp(wave, 0.2, 0.9) * np.clip(0.5 + 0.25 * noise(rng, size, 4), 0, 1)), ink
        )
    ink = np.where(scene.tone == DARK, np.maximum(ink, 0.55 + 0.2 * np.sin(60 * (x + y))), ink)
    return np.broadcast_to(0.995 * (1 - np.clip(ink, 0, 0.95)), (3, size, size))


RENDERERS: dict[str, Callable[[Scene, Rng], Field]] = {
    "art_painting": art_painting,
    "cartoon": cartoon,
    "photo": photo,
    "sketch": sketch,
}
