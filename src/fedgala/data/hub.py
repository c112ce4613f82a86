"""``hf:OWNER/NAME`` and ``hf:PATH``: a data set of huggingface.co, or a copy of one on disk, through `datasets`.

The library is an extra, imported when such a name is met and never before. What it downloads or converts stays in its
own cache, where other programs find it too.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedgala.data.catalog import HUB, Entry
from fedgala.data.listing import Listing, printable
from fedgala.data.rows import list_rows
from fedgala.errors import ConfigError, DataError

_PARQUET = ".parquet"
_SAVED = ("dataset_dict.json", "state.json")  # what tells a folder that `save_to_disk` wrote


def read_hub(named: str, only: Entry | None) -> Listing:
    """The listing of what `named`, which begins with ``hf:``, stands for; a path that is there goes first.

    Raises:
        ConfigError: the library is not installed.
        DataError: there is no such data set, it cannot be had, or its columns do not say enough.
    """
    place = named.removeprefix(HUB)
    data = _load(place)
    return list_rows(data, Path(place).absolute().name.removesuffix(_PARQUET), Path(printable(named)), only)


def _load(place: str) -> Any:
    """A `datasets.Dataset`, or a `DatasetDict` of all splits, that is mapped into memory."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"'{HUB}{printable(place)}' is read by the library datasets, which is not installed: "
            "pip install 'fedgala[hf]'"
        ) from error
    path = Path(os.path.expanduser(place))
    _refuse_no_such_path(place, path)
    try:
        with _hushed():
            return _opened(datasets, place, path)
    except datasets.exceptions.DatasetNotFoundError as error:
        raise DataError(
            f"there is no folder '{place}' here, and no data set of that name on huggingface.co that may be read: "
            "check the name, or run `hf auth login` where it is private or asks for consent"
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"huggingface.co cannot be reached for '{HUB}{place}': try again, or name a copy on disk, a folder or "
            f"archive of pictures or {HUB}FOLDER of its parquet files"
        ) from error
    except Exception as error:  # of the libraries below, which have kinds of their own for what can go wrong
        cause = str(error.__cause__ or error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(
            f"'{HUB}{printable(place)}' cannot be read as a Hugging Face data set ({printable(cause)}): put that "
            "right, or name a folder or archive of pictures"
        ) from error


def _opened(library: Any, place: str, path: Path) -> Any:
    if path.is_file():
        return library.load_dataset("parquet", data_files=str(path))
    if any((path / name).is_file() for name in _SAVED):
        return library.load_from_disk(str(path))
    return library.load_dataset(str(path) if path.exists() else place)


def _refuse_no_such_path(place: str, path: Path) -> None:
    """Before the hub is asked for it."""
    if path.is_file() and path.suffix != _PARQUET:
        raise DataError(f"'{printable(place)}' is no {_PARQUET} file: archives of pictures are named without {HUB}")
    owned = re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", place) and not place.endswith(_PARQUET)
    if not owned and not (place and path.exists()):
        raise DataError(
            f"there is no folder or {_PARQUET} file '{printable(place)}': name one, or a data set of huggingface.co as "
            f"{HUB}OWNER/NAME"
        )


@contextmanager
def _hushed() -> Iterator[None]:
    """Without the libraries' bars and messages unless somebody watches; as it was before, afterwards."""
    import datasets
    import huggingface_hub
    from huggingface_hub import utils

    if sys.stderr.isatty():
        yield
        return
    loggers = (datasets.logging, huggingface_hub.logging)
    levels = [logger.get_verbosity() for logger in loggers]
    bars = [(datasets.are_progress_bars_disabled(), datasets.enable_progress_bars)]
    bars += [(utils.are_progress_bars_disabled(), utils.enable_progress_bars)]
    try:
        for logger in loggers:
            logger.set_verbosity(50)
        datasets.disable_progress_bars()
        utils.disable_progress_bars()
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.set_verbosity(level)
        for disabled, enable in bars:
            if not disabled:
                enable()
