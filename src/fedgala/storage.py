"""Files that outlive a process: safetensors and text, written beside their place and renamed into it.

A reader sees the old file or the new one, never half of one; a write that fails leaves the old one as it was. Tensors
carry a checksum, because a damaged checkpoint that loads is worse than one that does not. Nothing is ever pickled.
"""

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedgala.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


LOCKS = fcntl is not None  # whether the system has any
METADATA = "fedgala"  # the key of all metadata, as JSON
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # a network disk that keeps none
KEPT = "nothing was changed; move it away to start afresh"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it into place.

    Raises:
        CheckpointError: the file can't be written (disk full, no permission); an older file is left as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp")  # one name, so that what a killed process left is overwritten
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        os.umask(mask := os.umask(0))
        temporary.chmod(0o666 & ~mask)  # what others may read is for the umask to say, not for the writer
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(f"can't save {path}: {reason}; what was saved before is intact") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the file `path` for this process, as long as it lives; no lock where the system has no `fcntl` (Windows).

    Raises:
        CheckpointError: `busy`, where another process holds it; or the folder can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")  # what is in it is the holder's
    except OSError as error:
        raise CheckpointError(f"can't use {path.parent}: {error.strerror}") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointError(busy) from error
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise CheckpointError(f"can't lock {path}: {error.strerror}") from error
        yield


def write_private(path: Path, content: bytes) -> None:
    """Write what nobody else may read: mode 0600 before a byte is in it; an existing file is not overwritten."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write named tensors with `metadata` and a checksum, whole or not at all."""
    dense = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    described = json.dumps({**metadata, "checksum": f"{_checksum(dense)}-{_of_words(metadata)}"}, sort_keys=True)
    # one key, since safetensors writes several in any order, and equal tensors should make equal files
    write_atomically(path, lambda temporary: safetensors.torch.save_file(dense, temporary, {METADATA: described}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file that `save_tensors` wrote.

    Raises:
        CheckpointError: the file is missing, unreadable, damaged, or was written by something else.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file ({error}); {KEPT}") from error
    if not isinstance(metadata, dict) or "checksum" not in metadata:
        raise CheckpointError(f"{path} was not written by fedgala: it has no checksum")
    content, _, words = str(metadata.pop("checksum")).partition("-")
    if content != _checksum(tensors) or words not in ("", _of_words(metadata)):  # older files have no sum of them
        raise CheckpointError(f"{path} is damaged: its checksum does not match; {KEPT}")
    return tensors, metadata


def _of_words(metadata: Mapping[str, object]) -> str:
    return f"{zlib.crc32(json.dumps(dict(metadata), sort_keys=True).encode()):08x}"


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"
