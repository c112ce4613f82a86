"""The same training as most people would write it, and ours, timed in one process: FedGaLA's local step with SimCLR.

    python benchmarks/naive.py                                       noise, ResNet-18, batch 128
    python benchmarks/naive.py --data pacs128.tar --workers 2,16 --json naive.json

The naive pipeline is fair: pictures lie decoded in memory as Pillow images, a `DataLoader` with workers makes two views
of each with Pillow (crop, flip, jitter, grayscale), the step is eager float32 (TF32 where there is a GPU) with
`torch.optim.Adam`, and local alignment takes one cosine per tensor, read with ``.item()``, and drops its gradient. Same
model, loss, batch, augmentation and number of views. What is compared is seconds per step, loader included.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image, ImageEnhance
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from fedgala.api import choose_device
from fedgala.bench import Bench, Clock, machine, noise
from fedgala.config import DataConfig, RunConfig, ViewsConfig, merge
from fedgala.data.domain import DomainData
from fedgala.data.source import open_dataset
from fedgala.models import ENCODERS, ResNet
from fedgala.observe import Observer
from fedgala.presets import PRESETS
from fedgala.ssl.base import Projected, Recipe
from fedgala.ssl.losses import nt_xent


class TwoViews(Dataset[tuple[Tensor, Tensor]]):
    """Two random views of each picture, one picture at a time, with Pillow."""

    def __init__(self, data: DomainData, views: ViewsConfig):
        self.views = views
        self.pictures = [
            Image.fromarray(data.picture(i).permute(1, 2, 0).contiguous().numpy()) for i in range(len(data))
        ]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.view(self.pictures[index]), self.view(self.pictures[index])

    def view(self, picture: Image.Image) -> Tensor:
        """One view as a tensor."""
        views, (width, height) = self.views, picture.size
        area = width * height * random.uniform(*views.scale)
        ratio = random.uniform(*views.ratio)
        w, h = min(width, round((area * ratio) ** 0.5)), min(height, round((area / ratio) ** 0.5))
        left, top = random.randint(0, width - w), random.randint(0, height - h)
        picture = picture.resize((views.crop, views.crop), Image.Resampling.BILINEAR, (left, top, left + w, top + h))
        if random.random() < views.flip:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if random.random() < views.jitter:
            picture = self.jitter(picture)
        if random.random() < views.grayscale:
            picture = picture.convert("L").convert("RGB")
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(views.crop, views.crop, 3).permute(2, 0, 1).float() / 255

    def jitter(self, picture: Image.Image) -> Image.Image:
        """Brightness, contrast, saturation and hue in random order."""
        views = self.views
        enhancers = [
            (ImageEnhance.Brightness, views.brightness),
            (ImageEnhance.Contrast, views.contrast),
            (ImageEnhance.Color, views.saturation),
        ]
        random.shuffle(enhancers)
        for enhancer, strength in enhancers:
            picture = enhancer(picture).enhance(random.uniform(1 - strength, 1 + strength))
        hue, saturation, value = picture.convert("HSV").split()
        turn = round(255 * random.uniform(-views.hue, views.hue))
        hue = hue.point([(level + turn) % 256 for level in range(256)])
        return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def naive_steps(
    module: nn.Module, loader: "DataLoader[tuple[Tensor, Tensor]]", reference: dict[str, Tensor], device: torch.device
) -> Iterator[float]:
    """Train for ever; the loss of each step."""
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    while True:
        for first, second in loader:
            views = torch.cat([first, second]).to(device)
            loss = nt_xent(module(views), 0.07)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            for name, parameter in module.named_parameters():
                assert parameter.grad is not None
                cosine = F.cosine_similarity(parameter.grad.flatten(), reference[name].flatten(), dim=0)
                if cosine.item() <= 0:
                    parameter.grad = None
            optimizer.step()
            yield loss.item()


def time_naive(bench: Bench, data: DomainData, workers: int, repeats: int) -> list[float]:
    """Seconds of each step, after as many to warm up."""
    trainer, device = bench.trainer, bench.trainer.device
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    encoder = ResNet(ENCODERS[trainer.config.model.encoder])
    model = trainer.config.model
    recipe = Recipe(encoder.features, model.projector_hidden, model.projector_output)
    module = Projected(encoder, recipe).to(device)
    assert bench.sent.reference is not None
    reference = {name: view.clone() for name, view in trainer.layout.views(bench.sent.reference).items()}
    loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
        TwoViews(data.to(torch.device("cpu")), trainer.config.views), trainer.config.federation.batch_size,
        shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )  # fmt: skip
    steps, clock, found = naive_steps(module, loader, reference, device), Clock(device), []
    for number in range(2 * repeats):
        clock.start()
        next(steps)
        if number >= repeats:
            found.append(clock.lap())
    return found


def time_ours(bench: Bench, repeats: int) -> list[float]:
    """Seconds of each of our steps, after as many to warm up."""
    clock, found = Clock(bench.trainer.device), []
    for number in range(2 * repeats):
        clock.start()
        bench.step()
        if number >= repeats:
            found.append(clock.lap())
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper", choices=PRESETS)
    parser.add_argument("--data", help="a data set, whose first domain is used; noise without")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", default="0,2", help="of the loader; several with commas")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    device = choose_device(options.device)
    over = {"local": {"rule": "discard", "unit": "tensor", "sign": "descent"}}
    bench = Bench(RunConfig.from_dict(merge(PRESETS[options.preset], over)), device)
    if options.data:
        bench.data = open_dataset(DataConfig(path=options.data), Observer()).domains[0].to(device)
    else:
        bench.data = noise(8 * bench.trainer.config.federation.batch_size, device)
    began = time.monotonic()
    ours = time_ours(bench, options.repeats)
    rows = {"ours": ours}
    for workers in map(int, options.workers.split(",")):
        rows[f"naive, {workers} workers"] = time_naive(bench, bench.data, workers, options.repeats)
        print(f"{workers} workers: {time.monotonic() - began:.0f} s so far", file=sys.stderr)
    base = statistics.median(ours)
    print(f"{machine(device)['device']}: ms per step, median ({options.repeats} steps, least to most), ratio to ours")
    for name, seconds in rows.items():
        middle = statistics.median(seconds)
        spread = f"({1e3 * min(seconds):.1f} to {1e3 * max(seconds):.1f})"
        print(f"{name:<20}{1e3 * middle:>10.1f}  {spread:<20}{middle / base:>7.2f}x")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(device), "seconds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
