"""How the four domains of the `shapes` data set draw a thing: as a photograph, a painting, a cartoon, a sketch.

A thing arrives as parts, back to front, each a signed distance field (negative inside; the picture is 2 wide).
The renderers draw colours, light and background without knowing what the thing is: only its form tells its class.
"""

import colorsys
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Field = npt.NDArray[Any]  # float32 (S, S), or (3, S, S) for a picture
Rng = np.random.Generator
Integer = int | np.integer[Any]
Part = tuple[int, Field]  # the tone of a piece of a thing, and how far each pixel is from its rim

MAIN, SIDE, PALE, DARK = 1, 2, 3, 4  # the tones; 0 is the background
FAR = 9.0  # further than any two points of a picture
_WHEEL, _HUES = np.linspace(0, 1, 9), (0.0, 0.06, 0.11, 0.155, 0.32, 0.5, 0.6, 0.76, 1.0)


class Scene(NamedTuple):
    """What is seen of the parts where those in front hide those behind; every field is (S, S)."""

    tone: npt.NDArray[np.intp]  # of the front part
    depth: Field  # signed distance to the rim of the front part
    edge: Field  # distance to the nearest visible line
    outline: Field  # signed distance to the whole thing


def compose(parts: Sequence[Part]) -> Scene:
    """Stack `parts`, the last one in front."""
    outline = reduce(np.minimum, (distance for _, distance in parts))
    depth, edge = np.full_like(outline, FAR), np.full_like(outline, FAR)
    tones = np.zeros(outline.shape, np.intp)
    for tone, distance in parts:
        inside = distance < 0
        tones[inside] = tone
        depth = np.where(inside, distance, depth)
        edge = np.minimum(np.where(inside, FAR, edge), np.abs(distance))
    return Scene(tones, depth, edge, outline)


@lru_cache(maxsize=256)
def _spline(size: int, cells: Integer) -> Field:
    """The (cells + 3, size) matrix that draws a smooth row through knots: cubic B-splines."""
    offset = np.abs((np.arange(size) + 0.5) / size * cells + 1 - np.arange(cells + 3)[:, None])
    near = 2 / 3 - offset**2 + offset**3 / 2
    return np.where(offset < 1, near, np.clip(2 - offset, 0, None) ** 3 / 6).astype(np.float32)


@lru_cache(maxsize=8)
def grid(size: int) -> tuple[Field, Field]:
    """The x (right) and y (down) of each pixel, in [-1, 1]."""
    place = ((np.arange(size) + 0.5) * 2 / size - 1).astype(np.float32)
    return np.broadcast_to(place, (size, size)), np.broadcast_to(place[:, None], (size, size))


def noise(rng: Rng, size: int, *hills: Integer, octaves: int = 1, channels: tuple[int, ...] = ()) -> Field:
    """Smooth noise (*channels, S, S) of mean 0 and deviation 1 with so many hills (down, across), halved by octaves."""
    total = np.zeros((*channels, size, size), np.float32)
    for k in range(octaves):
        down, across = _spline(size, hills[0] << k), _spline(size, hills[-1] << k)
        knots = rng.standard_normal((*channels, len(down), len(across)), np.float32) * 2.0 ** (1 - k)
        # Not `@`: the last bits of a matrix product depend on how many threads BLAS has.
        total += np.einsum("...rj,jc->...rc", np.einsum("ir,...ij->...rj", down, knots), across)
    return total


def blur(field: Field, sigma: float) -> Field:
    """`field` (..., S, S) seen out of focus."""
    size = field.shape[-1]
    reach = int(1.2 * sigma * size) + 1
    weights = np.exp(-((np.arange(-reach, reach + 1) / (sigma * size / 2)) ** 2) / 2)
    for _ in range(2):
        padded = np.concatenate([field[..., :1].repeat(reach, -1), field, field[..., -1:].repeat(reach, -1)], -1)
        taps = (weight * padded[..., k : k + size] for k, weight in enumerate((weights / weights.sum()).tolist()))
        field = reduce(np.add, taps).swapaxes(-1, -2)
    return field


def moved(field: Field, shift: Field) -> Field:
    """`field` pushed by `shift` (right, down), one for all pixels or one each; what comes in repeats the border."""
    size, place = len(field), np.arange(len(field))
    right, down = np.rint(shift * (size / 2)).astype(np.intp)
    return np.asarray(field[np.clip(place[:, None] - down, 0, size - 1), np.clip(place - right, 0, size - 1)])


def ramp(field: Field, start: float, end: float) -> Field:
    """0 up to `start`, 1 from `end` on, smooth between."""
    t = np.clip((field - start) / (end - start), 0, 1)
    return np.asarray(t * t * (3 - 2 * t))


def mix(first: Field, second: Field | float, amount: Field | float) -> Field:
    """From `first` (amount 0) to `second` (amount 1)."""
    return first + (second - first) * amount


def pigment(hue: float, saturation: float, value: float) -> Field:
    """A colour (3, 1, 1) by the painter's wheel, where yellow and orange have the room that HSV gives to green."""
    rgb = colorsys.hsv_to_rgb(float(np.interp(hue % 1, _WHEEL, _HUES)), saturation, value)
    return np.array(rgb, np.float32)[:, None, None]


def palette(rng: Rng, saturation: tuple[float, float], value: tuple[float, float]) -> Field:
    """Colours (3, 5) of the tones: any two hues, a pale one and a dark one; the body may be the pale one."""
    hue = rng.random()
    other = hue + rng.choice([0.12, -0.12, 0.33, 0.5, -0.33]) + rng.normal(0, 0.03)
    main, side = (pigment(h, rng.uniform(*saturation), rng.uniform(*value)) for h in (hue, other))
    pale = pigment(rng.random(), rng.uniform(0.02, 0.25), rng.uniform(0.85, 1))
    dark = pigment(hue, rng.uniform(0.2, 0.6), rng.uniform(0.08, 0.25))
    if rng.random() < 0.3:
        main, pale = pale, main
    return np.concatenate([main, main, side, pale, dark], 1)[:, :, 0]


def sun(rng: Rng) -> Field:
    """Where the light comes from: a unit vector (right, down) to somewhere above."""
    right = rng.uniform(-0.9, 0.9)
    return np.array([right, -math.sqrt(1 - right * right)], np.float32)


def shading(scene: Scene, light: Field, relief: float) -> tuple[Field, Field]:
    """Diffuse and specular light, in [0, 1], on the thing inflated like a cushion by `relief`."""
    radius = max(0.05, -float(scene.outline.min()))
    height = np.zeros_like(scene.depth)
    for distance, reach in ((scene.outline, radius), (scene.depth, 0.35 * radius)):
        sunk = np.clip(1 + distance / reach, 0, 1)
        height += relief * reach * np.sqrt(1 - sunk * sunk)
    down, right = np.gradient(blur(height, 0.02), 2 / len(height))
    toward = (0.6 - 0.8 * (right * light[0] + down * light[1])) / np.sqrt(1 + right * right + down * down)
    gloss = np.square(np.square(np.square(np.clip(toward, 0, 1))))
    return np.clip(0.35 + 0.65 * toward, 0, 1), np.square(gloss)


def _landscape(rng: Rng, size: int) -> Field:
    """Clouds over hills of grass, sand or heath."""
    _, y = grid(size)
    horizon = rng.uniform(-0.3, 0.5) + 0.06 * noise(rng, size, 1, rng.integers(2, 6))
    high = pigment(rng.uniform(0.65, 0.77), rng.uniform(0.2, 0.6), rng.uniform(0.6, 0.95))
    haze = pigment(rng.random(), 0.1, 0.95)
    sky = mix(
        mix(high, haze, np.clip((y + 1) / 1.4, 0, 1)), 0.95, 0.7 * ramp(noise(rng, size, 4, 2, octaves=3), 0.1, 2)
    )
    soil = pigment(rng.uniform(0.17, 0.53), rng.uniform(0.15, 0.6), rng.uniform(0.45, 0.75))
    soil = soil * (1 + 0.2 * noise(rng, size, 10, rng.integers(3, 16), octaves=3))
    return np.where(y < horizon, sky, mix(haze * 0.9, soil, np.clip(0.55 + (y - horizon), 0, 1)))


def _tabletop(rng: Rng, size: int) -> Field:
    """A wall behind a wooden board."""
    x, y = grid(size)
    wall = pigment(rng.random(), rng.uniform(0.05, 0.4), rng.uniform(0.35, 0.85))
    lamp = np.exp(-((x - rng.uniform(-1, 1)) ** 2) - (y + 0.8) ** 2)
    wall = wall * (0.6 + 0.5 * lamp + 0.04 * noise(rng, size, 10, rng.integers(4, 20), octaves=3))
    wood = pigment(rng.uniform(0.06, 0.28), rng.uniform(0.3, 0.65), rng.uniform(0.35, 0.75))
    grain = np.sin(rng.uniform(14, 30) * (y + 0.12 * noise(rng, size, 3, 1))) + noise(rng, size, 24, 3, octaves=2)
    return np.where(y < rng.uniform(-0.1, 0.7), wall, wood * (0.95 + 0.1 * grain))


def _bokeh(rng: Rng, size: int) -> Field:
    """Leaves and lights far out of focus."""
    x, y = grid(size)
    hue = rng.choice([0.22, 0.45, 0.49, 0.75]) + rng.normal(0, 0.03)
    near, far = (pigment(hue + rng.normal(0, 0.04), rng.uniform(0.15, 0.6), v) for v in rng.uniform(0.25, 0.75, 2))
    image = mix(near, far, ramp(noise(rng, size, 3), -1, 1))
    for left, top, radius in rng.uniform([-1, -1, 0.08], [1, 1, 0.3], (rng.integers(5, 11), 3)).astype(np.float32):
        glow = pigment(hue + rng.normal(0, 0.1), rng.uniform(0.1, 0.5), rng.uniform(0.7, 1))
        image = mix(image, glow, rng.uniform(0.15, 0.55) * ramp(np.hypot(x - left, y - top), radius, radius - 0.05))
    return image


def _ground(rng: Rng, size: int) -> Field:
    """Stone, sand, moss or cloth seen from above: relief lit from one side."""
    relief = 0.75 * noise(rng, size, rng.integers(3, 9), rng.integers(3, 12), octaves=4)
    hue = rng.choice([0.15, 0.22, 0.33, 0.45, 0.72])
    low, high = (pigment(hue + rng.normal(0, 0.03), rng.uniform(0.08, 0.5), v) for v in rng.uniform(0.4, 0.9, 2))
    lit = np.subtract(*np.gradient(relief, 2 / size)) * float(rng.choice([-0.02, 0.02]))
    return np.asarray(mix(low, high, ramp(relief, -1, 1)) * (1 + lit))


BACKDROPS = (_landscape, _tabletop, _bokeh, _ground)


def photo(scene: Scene, rng: Rng) -> Field:
    """A lit solid thing with skin and shadow before a natural background out of focus, through a grainy camera."""
    size, light = len(scene.tone), sun(rng)
    x, y = grid(size)
    image = BACKDROPS[rng.integers(len(BACKDROPS))](rng, size // 2)
    image = blur(image, rng.uniform(0.015, 0.045)).repeat(2, 1).repeat(2, 2)
    shadow = ramp(moved(scene.outline, -rng.uniform(0.08, 0.25) * light), 0.12, -0.06)
    diffuse, gloss = shading(scene, light, rng.uniform(0.6, 1.2))
    skin = 1 + rng.uniform(0.04, 0.15) * noise(rng, size, *rng.integers(3, 14, 2), octaves=3)
    body = palette(rng, (0.25, 0.8), (0.5, 0.95)).take(scene.tone, 1) * skin * (0.15 + 1.05 * diffuse)
    body = (body + rng.uniform(0, 0.4) * gloss) * (0.7 + 0.3 * ramp(scene.edge, 0, 0.05))
    image = np.where(scene.outline < 0, body, image * (1 - rng.uniform(0.4, 0.75) * shadow))
    exposure = pigment(rng.random(), 0.12, rng.uniform(1.1, 1.4)) * (1 - 0.1 * (x * x + y * y))
    return np.asarray(image * exposure + rng.uniform(0.01, 0.035) * rng.standard_normal((size, size), np.float32))


def _strokes(image: Field, angle: Field, where: npt.NDArray[np.bool_], rng: Rng, density: float, width: float) -> Field:
    """`image` with brush strokes on it, centred anywhere in `where`, that follow `angle` and take up its colours."""
    size, brush = image.shape[-1], np.float32(width * image.shape[-1] / 2)
    pixels = np.flatnonzero(where)
    row, column = np.divmod(rng.choice(pixels, 1 + int(density / 4 * len(pixels) / brush**2)), size)
    count = len(row)
    # A stroke is a bent strip of points, in pixels: u along it, v across it.
    along = np.linspace(-1, 1, int(4.2 * brush) + 3, dtype=np.float32)
    across = np.linspace(-1, 1, int(1.3 * brush) + 3, dtype=np.float32)
    u = (along * (1 - 0.15 * across[:, None] ** 2)).ravel() * 1.7
    turn, bend = rng.normal(0, [[0.15], [0.12]], (2, count)).astype(np.float32)
    v = 0.5 * across.repeat(len(along)) + bend[:, None] * u * u
    turn = (turn + angle[row, column])[:, None]
    cos, sin = brush * np.cos(turn), brush * np.sin(turn)
    right = np.clip((u * cos - v * sin).astype(np.int32) + column.astype(np.int32)[:, None], 0, size - 1)
    down = np.clip((u * sin + v * cos).astype(np.int32) + row.astype(np.int32)[:, None], 0, size - 1)
    owner = np.full(size * size, -1, np.int32)
    owner[(down * size + right).ravel()] = np.arange(right.size, dtype=np.int32)  # the later of two strokes stays
    stroke, point = np.divmod(owner, len(u))
    tint = rng.normal(0, 0.035, (3, count)) + rng.normal(0, 0.04, count)
    bristles = 1 + 0.05 * rng.standard_normal(len(across), dtype=np.float32) + 0.08 * across
    paint = (image[:, row, column] + tint.astype(np.float32)).take(stroke, 1) * bristles.repeat(len(along))[point]
    return np.where(owner >= 0, paint, image.reshape(3, -1)).reshape(image.shape)


def art_painting(scene: Scene, rng: Rng) -> Field:
    """Oil on canvas: strokes follow the rims of things and, away from them, the wind; a few related hues behind."""
    size, light, inside = len(scene.tone), sun(rng), scene.outline < 0
    x, y = grid(size)
    hue, vivid, broad = rng.random(), rng.uniform(0.3, 0.85), rng.uniform(0.09, 0.14)
    airs = [pigment(hue + rng.normal(0, 0.1), vivid * rng.uniform(0.4, 1), rng.uniform(0.4, 0.95)) for _ in range(3)]
    air = mix(mix(airs[0], airs[1], ramp(y, -1, 1)), airs[2], ramp(noise(rng, size, 3), 0, 0.8))
    body = palette(rng, (vivid * 0.7, vivid), (0.45, 0.95)).take(scene.tone, 1) * (0.25 + shading(scene, light, 0.8)[0])
    down, right = np.gradient(blur(np.where(inside, scene.depth, scene.outline), 0.03))
    wind = rng.uniform(0, math.pi) + 0.7 * noise(rng, size, 2)
    angle = np.where(scene.outline < rng.uniform(0.05, 0.5), np.arctan2(right, -down), wind)
    image = _strokes(air * (1 - 0.35 * ramp(scene.outline, 0.12, 0)), angle, scene.outline > -0.1, rng, 2.2, broad)
    image = _strokes(np.where(inside, body, image), angle, scene.outline < -0.01, rng, 2.5, broad * 0.65)
    image = np.where(inside, mix(image, body, 0.6), image)
    image = _strokes(image, angle, inside & (scene.edge < 0.05), rng, 1.5, 0.045)
    weave = np.sin(x * size * 0.8) * np.sin(y * size * 0.8)
    return image * pigment(rng.choice([0.22, 0.3, 0.75]), rng.uniform(0, 0.25), 1) * (1 + 0.04 * weave)


def _pattern(rng: Rng, size: int) -> Field:
    """Positive where a cartoon's background has its second colour: a hill, rays, dots, stripes or nothing."""
    x, y = grid(size)
    turn, rate = rng.uniform(0, math.pi), rng.uniform(6, 13)
    left, top = rng.uniform(-0.6, 0.6, 2).astype(np.float32)
    u, v = math.cos(turn) * x - math.sin(turn) * y, math.sin(turn) * x + math.cos(turn) * y
    hill = y - rng.uniform(0, 0.5) - 0.12 * np.sin(rate / 3 * x + turn)
    rays = np.sin(np.arctan2(y - top, x - left) * round(rate))
    dots = np.sin(rate * u) * np.sin(rate * v) - rng.uniform(0.3, 0.6)
    return np.asarray((hill, rays, dots, np.sin(rate * u), np.full_like(y, -1))[rng.integers(5)])


def cartoon(scene: Scene, rng: Rng) -> Field:
    """Flat loud colours, one step of shade and one of shine, a dark outline, a simple pattern behind."""
    size, light, hue, loud = len(scene.tone), sun(rng), rng.random(), rng.uniform(0.2, 0.5)
    back = pigment(hue, loud, rng.uniform(0.9, 1))
    front = pigment(hue + rng.choice([0, 0, 0.08, -0.08, 0.5]), loud + rng.uniform(-0.15, 0.2), rng.uniform(0.85, 1))
    shade = ramp(moved(scene.outline, rng.uniform(0.08, 0.18) * light), -0.01, 0.01)
    shine = ramp(np.abs(scene.outline + 0.075), 0.03, 0.015) * (moved(scene.outline, -0.11 * light) > 0)
    body = palette(rng, (0.65, 0.95), (0.8, 1)).take(scene.tone, 1) * (1 - 0.3 * shade)
    body = mix(body, 1, 0.6 * shine * (scene.tone != DARK))
    image = mix(mix(back, front, ramp(_pattern(rng, size), -0.05, 0.05)), body, ramp(scene.outline, 0.01, -0.01))
    width, ink = rng.uniform(0.015, 0.03), pigment(hue + 0.5, 0.5, rng.uniform(0, 0.2))
    return mix(image, ink, ramp(scene.edge, width + 0.01, width - 0.01))


def sketch(scene: Scene, rng: Rng) -> Field:
    """Pencil on white: lines drawn more than once by an unsteady hand, perhaps hatching, no fill."""
    size, light = len(scene.tone), sun(rng)
    x, y = grid(size)
    # The more lines, the thinner: else the sum of ink would name the thing.
    ink, width = np.zeros_like(x), rng.uniform(0.0035, 0.0105) / math.sqrt(np.mean(scene.edge < 0.03))
    for _ in range(rng.integers(1, 4)):
        line = moved(scene.edge, rng.uniform(0.004, 0.016) * noise(rng, size, 5, channels=(2,)))
        pressure = np.clip(0.8 + 0.35 * noise(rng, size, 5), 0.1, 1.3)
        ink = np.maximum(ink, pressure * ramp(line, width * 1.4, width * 0.4))
    shade = (scene.outline < 0) & (moved(scene.outline, 0.2 * light) > 0)
    for _ in range(rng.integers(0, 3)):
        turn, rate = rng.uniform(0, math.pi), rng.uniform(50, 75)
        wave = np.sin(rate * (math.cos(turn) * x + math.sin(turn) * y) + 0.6 * noise(rng, size, 4))
        ink = np.maximum(ink, shade * ramp(wave, 0.2, 0.9) * (0.5 + 0.25 * noise(rng, size, 4)))
    ink = np.maximum(ink, (scene.tone == DARK) * (0.55 + 0.2 * np.sin(60 * (x + y))))
    return np.broadcast_to(1 - np.clip(ink, 0, 0.95), (3, size, size))


RENDERERS: dict[str, Callable[[Scene, Rng], Field]] = {
    "art_painting": art_painting,
    "cartoon": cartoon,
    "photo": photo,
    "sketch": sketch,
}
