"""What happened in a run, one JSON object a line, appended as it happens: tables and plots are computed from these."""

import json
import os
from pathlib import Path
from typing import Any

from fedgala.errors import CheckpointError
from fedgala.storage import KEPT, write_text

Record = dict[str, Any]


class Records:
    """The lines of ``records.jsonl``. Each has a `kind` and a `round`."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, record: Record) -> None:
        """Add a line and hand it to the operating system."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"can't write {self.path}: {error.strerror}; the last checkpoint is intact"
            ) from error

    def read(self, kind: str | None = None) -> list[Record]:
        """All records, or those of one kind; a last line that a killed process left unfinished is not one."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")[:-1]  # what follows the last newline was never finished
        records = [self._parse(number, line) for number, line in enumerate(lines, 1)]
        return [record for record in records if kind is None or record["kind"] == kind]

    def sync(self) -> None:
        """Wait until all lines are on the disk: a checkpoint must not know of rounds that the records do not."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def rewind(self, round: int) -> None:
        """Forget what was recorded after `round`: a resumed run plays those rounds again.

        Raises:
            CheckpointError: rounds up to `round` are missing.
        """
        kept = [record for record in self.read() if record["round"] <= round]
        missing = set(range(1, round + 1)) - {record["round"] for record in kept if record["kind"] == "round"}
        if missing:
            raise CheckpointError(
                f"{self.path} lacks {len(missing)} of the {round} rounds that are done (round {min(missing)} first); "
                "put it back, or move its folder away to start afresh"
            )
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))

    def _parse(self, number: int, line: str) -> Record:
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or "kind" not in record or not isinstance(record.get("round"), int):
                raise ValueError("not a record")
        except ValueError as error:
            raise CheckpointError(f"{self.path}, line {number} is damaged ({error}); {KEPT}") from error
        return record
