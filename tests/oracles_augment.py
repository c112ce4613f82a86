"""Views one picture at a time, in float64 and plain loops, or by Pillow itself; written to be read, not to be fast."""

import colorsys
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

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
