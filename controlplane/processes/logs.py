"""One log file per process, turned over when it is full; lines also go to the terminal, with the name in front."""

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

FULL_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class ProcessLog:
    """Writes what a process says to `<folder>/<name>.log`; the file before it is kept as `.log.1`.

    echo: whether lines go to standard output as well. width: of the name column there.
    """

    folder: Path
    name: str
    echo: bool
    width: int = 12
    _file: BinaryIO | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)

    @property
    def path(self) -> Path:
        """Where the lines are."""
        return self.folder / f"{self.name}.log"

    def write(self, line: bytes) -> None:
        """Add one line, its newline included."""
        file = self._open()
        file.write(line)
        self._bytes += len(line)
        if self._bytes > FULL_BYTES:
            self._turn_over()
        if self.echo:
            text = line.decode(errors="replace").rstrip("\n")
            sys.stdout.write(f"{self.name:<{self.width}} | {text}\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Add a line of the supervisor's own, with its time (RFC 3339, UTC)."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.write(f"{at} [supervisor] {text}\n".encode())

    def tail(self, lines: int = 15) -> str:
        """The last lines, to show when a process does not start."""
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: a person who follows the file sees a line when it is written.
            self._file = self.path.open("ab", buffering=0)
            self._bytes = self.path.stat().st_size
        return self._file

    def _turn_over(self) -> None:
        self.close()
        self.path.replace(self.path.with_suffix(".log.1"))
