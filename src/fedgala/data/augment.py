"""Random views of pictures, as SimCLR draws them, for a whole batch at once and on the device that holds the pictures.

What is random is drawn first (`draw`), the pixels are computed after (`apply`), so the second part is a plain function:
tests feed it by hand, and a CUDA graph can record it, for no shape depends on data and the host never waits.

The semantics are torchvision's RandomResizedCrop, RandomHorizontalFlip, RandomApply([ColorJitter]) and RandomGrayscale
on a Pillow picture, without Pillow's rounding to whole levels after each step. Crop, resize and flip are one matrix per
axis; colours go through the same few steps for every picture, with factors that leave alone what a picture skips.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedgala.errors import ConfigError

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)  # columns of Draws.factors, entries of Draws.order
ATTEMPTS = 10  # boxes tried before the central one, as in torchvision
COLUMNS = (ATTEMPTS, ATTEMPTS, 2, 1, 1, 4, 4, 1)  # uniform numbers per view, in the order `draws_from` names them


@dataclass(frozen=True)
class Views:
    """How views are drawn; a strength or probability of 0 leaves pixels exactly as they are."""

    crop: int = 32  # side of a view, pixels
    scale: tuple[float, float] = (0.08, 1.0)  # share of the picture's area that a box covers, uniform
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width of a box over its height, uniform in the logarithm
    flip: float = 0.5  # probability of a mirror image
    jitter: float = 0.8  # probability that the four colour operations apply
    brightness: float = 0.8  # factor uniform in 1 -/+ this, not below 0
    contrast: float = 0.8  # as brightness, away from the mean gray
    saturation: float = 0.8  # as brightness, away from the gray picture
    hue: float = 0.2  # rotation uniform in -/+ this, in turns of the colour circle, at most 0.5
    grayscale: float = 0.2  # probability of a gray picture

    def __post_init__(self) -> None:
        allowed = {
            "crop at least 1": self.crop >= 1,
            "0 < scale[0] <= scale[1] <= 1": 0 < self.scale[0] <= self.scale[1] <= 1,
            "0 < ratio[0] <= ratio[1]": 0 < self.ratio[0] <= self.ratio[1],
            "hue in [0, 0.5]": 0 <= self.hue <= 0.5,
        }
        allowed |= {f"{name} in [0, 1]": 0 <= getattr(self, name) <= 1 for name in ("flip", "jitter", "grayscale")}
        allowed |= {f"{name} at least 0": getattr(self, name) >= 0 for name in ("brightness", "contrast", "saturation")}
        if broken := [rule for rule, holds in allowed.items() if not holds]:
            raise ConfigError(f"views need {', '.join(broken)}; got {self}")


@dataclass(frozen=True)
class Draws:
    """What was drawn for N views."""

    box: Tensor  # float32 (N, 4), whole numbers: top, left, height, width
    flip: Tensor  # bool (N,)
    factors: Tensor  # float32 (N, 4): brightness, contrast, saturation (1 is neutral), hue in turns (0 is neutral)
    order: Tensor  # int64 (N, 4), a permutation: the operation that comes first, second, ...
    grayscale: Tensor  # bool (N,)


def draw(sizes: Tensor, views: Views, generator: torch.Generator) -> Draws:
    """Draws one view of each picture in `sizes` (N, 2), on the generator's device and from that generator alone."""
    uniform = torch.rand((len(sizes), sum(COLUMNS)), generator=generator, device=generator.device)
    return draws_from(uniform, sizes, views)


def draws_from(uniform: Tensor, sizes: Tensor, views: Views) -> Draws:
    """The draws that numbers `uniform` in [0, 1) stand for, one row of ``sum(COLUMNS)`` per view.

    A row holds, in this order: area and ratio of each attempt, place of the box (vertical, horizontal), flip, whether
    to jitter, the four factors, the keys whose ranking is the order of operations, grayscale.
    """
    area, ratio, place, flip, jitter, factors, keys, grayscale = uniform.split_with_sizes(COLUMNS, dim=1)
    return Draws(
        box=_boxes(area, ratio, place, sizes, views),
        flip=flip[:, 0] < views.flip,
        factors=_factors(factors, jitter[:, 0] < views.jitter, views),
        order=keys.argsort(dim=1),
        grayscale=grayscale[:, 0] < views.grayscale,
    )


def _boxes(area: Tensor, ratio: Tensor, place: Tensor, sizes: Tensor, views: Views) -> Tensor:
    """The first attempt that fits into the picture, else the largest central box of an allowed ratio."""
    size = sizes.float()
    height, width = size[:, :1], size[:, 1:]
    (smallest, largest), (narrow, wide) = views.scale, views.ratio
    area = height * width * (smallest + (largest - smallest) * area)
    ratio = torch.exp(math.log(narrow) + math.log(wide / narrow) * ratio)
    tall = torch.cat([(area / ratio).sqrt(), torch.minimum(height, width / narrow).clamp(min=1)], dim=1).round()
    broad = torch.cat([(area * ratio).sqrt(), torch.minimum(width, height * wide).clamp(min=1)], dim=1).round()
    fits = (tall > 0) & (tall <= height) & (broad > 0) & (broad <= width)
    chosen = fits.int().argmax(dim=1, keepdim=True)  # the first of equals; the central box always fits
    extent = torch.cat([tall.gather(1, chosen), broad.gather(1, chosen)], dim=1)
    room = size - extent
    corner = torch.where(chosen < ATTEMPTS, place * (room + 1), room / 2).floor()
    return torch.cat([corner, extent], dim=1)


def _factors(uniform: Tensor, jitter: Tensor, views: Views) -> Tensor:
    """Factors of the four colour operations, neutral where `jitter` is false."""
    ranges = [(max(0.0, 1 - width), 1 + width, 1.0) for width in (views.brightness, views.contrast, views.saturation)]
    ranges.append((-views.hue, views.hue, 0.0))
    columns = zip(uniform.unbind(1), ranges, strict=True)
    return torch.stack(
        [torch.where(jitter, low + (high - low) * column, neutral) for column, (low, high, neutral) in columns], dim=1
    )


def apply(images: Tensor, draws: Draws, crop: int) -> Tensor:
    """The views that `draws` describe: float32 (N, 3, crop, crop) in [0, 1].

    Call it outside autocast: bfloat16 products are a level or two off, where TF32 costs a quarter of one.

    Args:
        images: uint8 (B, C, S, S); N is a multiple of B, and view i shows picture i % B. Two views of each picture
            therefore need no second copy of the pictures.
        draws: What was drawn for the N views.
        crop: Side of a view, pixels.
    """
    x = _resample(images, draws.box, draws.flip, crop)
    x = _jitter(x, draws.factors, draws.order)
    x = torch.where(_wide(draws.grayscale), _gray(x), x)
    return x.expand(-1, 3, -1, -1).contiguous()


def resize(images: Tensor, sizes: Tensor, crop: int) -> Tensor:
    """Whole pictures, squashed to a square: float32 (N, 3, crop, crop) in [0, 1]."""
    box = torch.cat([torch.zeros_like(sizes), sizes], dim=1).float()
    flip = torch.zeros_like(sizes[:, 0], dtype=torch.bool)
    return _resample(images, box, flip, crop).expand(-1, 3, -1, -1).contiguous()


def _resample(images: Tensor, box: Tensor, flip: Tensor, crop: int) -> Tensor:
    """Cuts boxes (N, 4) out of images (B, C, S, S) and resizes them: (N, C, crop, crop) in [0, 1].

    All views of a picture share the first product, which is the large one; both products and the change to floats read
    and write contiguous memory.
    """
    batch, channels, side, _ = images.shape
    beside = torch.arange(len(box), device=box.device).view(-1, batch).T.flatten()  # views of one picture: neighbours
    top, left, height, width = box[beside].unbind(1)
    rows = _filter(top, height, torch.zeros_like(flip), crop, side)
    columns = _filter(left, width, flip[beside], crop, side)

    pixels = images.permute(0, 2, 1, 3).to(rows.dtype, memory_format=torch.contiguous_format)
    x = torch.bmm(rows.view(batch, -1, side), pixels.view(batch, side, -1))
    x = torch.bmm(x.view(len(box), -1, side), columns.transpose(1, 2))
    x = x.view(batch, -1, crop, channels, crop).permute(1, 0, 3, 2, 4).reshape(len(box), channels, crop, crop)
    return x.div_(255).clamp_(0, 1)


def _filter(start: Tensor, length: Tensor, flip: Tensor, crop: int, side: int) -> Tensor:
    """Pillow's BILINEAR along one axis, as matrices (N, crop, side) that weigh the pixels ``start ... start + length``.

    A triangle as wide as a pixel of the input or of the output, whichever is larger, cut off at the ends of the box.
    """
    step = length / crop
    out = torch.arange(crop, device=start.device)
    out = torch.where(flip[:, None], crop - 1 - out, out)
    centre = start[:, None] + (out + 0.5) * step[:, None]
    pixel = torch.arange(side, device=start.device) + 0.5
    weight = (pixel - centre[:, :, None]).div_(step.clamp(min=1)[:, None, None]).abs_().neg_().add_(1).clamp_(min=0)
    weight *= ((pixel > start[:, None]) & (pixel < (start + length)[:, None]))[:, None]
    return weight.div_(weight.sum(dim=2, keepdim=True))


def _jitter(x: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """Applies the four operations in each picture's own order.

    Brightness, contrast and saturation are one formula with different coefficients, hue is not. So every picture goes
    through three blends, a rotation of hue, and three blends; one of its own at each place, the others neutral.
    """
    factor = factors.gather(1, order)
    hue_place = order.argsort(dim=1)[:, HUE]
    for place in (0, 1, 2):
        x = _blend(x, order[:, place], torch.where(hue_place > place, factor[:, place], 1.0))
    x = _rotate_hue(x, factors[:, HUE])
    for place in (1, 2, 3):
        x = _blend(x, order[:, place], torch.where(hue_place < place, factor[:, place], 1.0))
    return x


def _blend(x: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Moves pictures away from black, their mean gray or their gray picture; exactly nothing where the factor is 1."""
    gray = _gray(x)
    towards_gray = _wide(torch.where(operation == SATURATION, 1 - factor, 0.0))
    towards_mean = _wide(torch.where(operation == CONTRAST, 1 - factor, 0.0))
    other = gray.mean(dim=(2, 3), keepdim=True) * towards_mean + gray * towards_gray
    return (x * _wide(factor)).add_(other).clamp_(0, 1)


def _rotate_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turns the hue of HSV, keeping saturation and value; exactly nothing where the turn is 0."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.unbind(1)
    value = x.amax(1)
    chroma = value - x.amin(1)
    on_red = (value == red).float()  # products with masks: several times faster than `where` on a CPU
    on_green = (value == green).float() * (1 - on_red)
    on_blue = 1 - on_red - on_green
    ahead = on_red * (green - blue) + on_green * (blue - red) + on_blue * (red - green)
    hue = ahead / chroma.clamp(min=1e-12) + 2 * on_green + 4 * on_blue + 6 * turn[:, None, None]  # in sixths of a turn
    turned = [value - chroma * (2 - ((hue + n) % 6 - 2).abs()).clamp(0, 1) for n in (5, 3, 1)]
    return torch.where(_wide(turn == 0), x, torch.stack(turned, dim=1))


def _gray(x: Tensor) -> Tensor:
    """Luma as Pillow computes it (ITU-R 601): (N, 1, H, W)."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.chunk(3, dim=1)
    return (red * 0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _wide(per_view: Tensor) -> Tensor:
    """(N,) -> (N, 1, 1, 1), to broadcast over pictures."""
    return per_view[:, None, None, None]
