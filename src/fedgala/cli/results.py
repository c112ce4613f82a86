"""Commands about what comes out: features, probes, and the demonstration."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgala.cli import study
from fedgala.cli.data import Size
from fedgala.cli.progress import observer, say
from fedgala.config import DataConfig, ProbeConfig
from fedgala.errors import ConfigError, DataError
from fedgala.report.tables import cell, table
from fedgala.settings import near

if TYPE_CHECKING:
    from torch import Tensor

    from fedgala.data.domain import Dataset

Encoder = Annotated[Path, typer.Argument(help="encoder.safetensors of a run", show_default=False)]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="folder of pictures, hf:OWNER/NAME, or shapes", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]


def embed(
    encoder: Encoder,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="features.npz or features.parquet")],
    size: Size = 128,
    device: Device = "auto",
) -> None:
    """Write the encoder's features of every picture of a folder, with its domain, label and file name.

    **fedgala embed runs/.../encoder.safetensors photos/ -o features.npz**
    """
    import torch

    from fedgala.data.source import open_named
    from fedgala.storage import write_atomically

    write = WRITERS.get(output.suffix)
    if write is None:
        raise ConfigError(f"--output {output}: allowed endings: {', '.join(WRITERS)}")
    dataset, names = open_named(DataConfig(path=data, size=size), observer(quiet=True))
    features = torch.cat(_encoded(encoder, dataset, device)).cpu()
    columns = {
        "name": list(names),
        "domain": [domain.name for domain in dataset.domains for _ in range(len(domain))],
        "label": [label for domain in dataset.domains for label in _labels(dataset, domain.labels, len(domain))],
    }
    write_atomically(output, lambda temporary: write(temporary, features, columns))
    print(f"{output}: {features.shape[0]} pictures, {features.shape[1]} features each")


def probe(
    encoder: Encoder,
    data: Data,
    domain: Annotated[str | None, typer.Option(help="only this domain")] = None,
    ratios: Annotated[str, typer.Option(help="shares of the labels to train the probe on")] = "0.1,0.3",
    splits: Annotated[int, typer.Option(min=1, help="random splits per ratio")] = 10,
    size: Size = 128,
    device: Device = "auto",
) -> None:
    """Train linear probes on the encoder's features of labelled pictures: mean and spread over random splits.

    **fedgala probe runs/.../encoder.safetensors photos/ --domain sketch**
    """
    from fedgala.data.source import open_named
    from fedgala.evaluation import probe_features

    try:
        config = ProbeConfig(ratios=tuple(float(ratio) for ratio in ratios.split(",")), splits=splits)
    except ValueError as error:
        raise ConfigError(f"--ratios {ratios}: expected numbers between 0 and 0.95 with commas between") from error
    dataset, _ = open_named(DataConfig(path=data, size=size), observer(quiet=True))
    if domain is not None and domain not in dataset.names:
        raise DataError(f"--domain {domain}: no such domain in {data}; {near(domain, dataset.names)}")
    chosen = dataset.select([domain]) if domain else dataset
    rows = []
    for part, features in zip(chosen.domains, _encoded(encoder, chosen, device), strict=True):
        if part.labels is None:
            say(f"{part.name}: no labels, no probe")
            continue
        try:
            found = probe_features({"encoder": features}, part.labels, config, len(dataset.classes), 0)["encoder"]
        except DataError as error:  # too few pictures or classes
            if domain is not None:
                raise
            say(f"{part.name}: no probe, {error}")
            continue
        rows.append([part.name, str(len(part)), *(cell(values) for values in found.values())])
    if not rows:
        raise DataError(f"{data}: nothing to probe; a probe needs DIR/<domain>/<class>/ folders")
    print(table(["accuracy, %", "pictures", *(f"{ratio:.0%} labels" for ratio in config.ratios)], rows))
    print(f"mean ± standard deviation over {splits} random splits")


def demo(
    out: Annotated[Path, typer.Option(help="where the runs go")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="seeds 0, 1, ...")] = 2,
    rounds: Annotated[int | None, typer.Option(min=1, help="rounds of a run")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="runs at a time; one per core if not said")] = None,
) -> None:
    """See it work: leave-one-domain-out FedGaLA beside FedAvg + SimCLR and an untrained encoder.

    Uses the embedded data set **shapes** and takes minutes on two cores. Once more finishes what is missing.
    """
    from fedgala.studies.demo import ROUNDS, run_demo

    began = time.monotonic()
    result = run_demo(out, range(seeds), rounds or ROUNDS, jobs, study.watcher())
    print(f"\n{result.table}")
    print(f"pictures  {result.pictures}\nplots     {result.run.folder / 'plots'}\nencoder   {result.run.encoder_path}")
    print(f"took {time.monotonic() - began:.0f} s")
    study.ending(result.summary)


def _encoded(encoder: Path, dataset: "Dataset", device: str) -> "list[Tensor]":
    from fedgala.api import choose_device
    from fedgala.evaluation import encode
    from fedgala.export import load_encoder

    place = choose_device(device)
    model = load_encoder(encoder).to(place)
    return [encode(model, domain.to(place), model.crop) for domain in dataset.domains]


def _labels(dataset: "Dataset", labels: "Tensor | None", count: int) -> Sequence[str]:
    return [""] * count if labels is None else [dataset.classes[index] for index in labels.tolist()]


def _write_npz(path: Path, features: "Tensor", columns: dict[str, list[str]]) -> None:
    import numpy as np

    with path.open("wb") as file:
        arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
        np.savez(file, features=features.numpy(), **arrays)


def _write_parquet(path: Path, features: "Tensor", columns: dict[str, list[str]]) -> None:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError("a .parquet file needs pyarrow: pip install 'fedgala[parquet]', or use .npz") from error
    rows = arrow.FixedSizeListArray.from_arrays(arrow.array(features.numpy().ravel()), features.shape[1])
    parquet.write_table(arrow.table({**columns, "features": rows}), path)


WRITERS = {".npz": _write_npz, ".parquet": _write_parquet}
