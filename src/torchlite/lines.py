"""The files of a run that grow by lines, and are cut when the run goes on from a checkpoint that counts fewer."""

import contextlib
import os
from pathlib import Path

from torchlite.errors import MachineError, UserError


def first(path: Path, count: int | None) -> list[str]:
    """The first `count` lines of a file; None is none. Raises UserError where it has fewer."""
    if not count:
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        lines = []
    if len(lines) < count or not lines[count - 1].endswith("\n"):
        raise UserError(f"{path} has lost lines, so this run cannot go on; move {path.parent} away and start it again.")
    return lines[:count]


class Lines:
    """A file that begins with these lines, open for more; a kill leaves what it held before or these."""

    def __init__(self, path: Path, kept: list[str]) -> None:
        self.path = path
        aside = path.with_name(f".{path.name}.partial")
        aside.write_text("".join(kept), encoding="utf-8")
        os.replace(aside, path)
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115

    def write(self, lines: str) -> None:
        """Append whole lines."""
        try:
            self._file.write(lines)
        except OSError as error:
            raise MachineError(f"could not write {self.path}: {error.strerror}. Make room.") from error

    def sync(self) -> None:
        """Put the lines so far on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the rest of a line that found no room, which has been said
            self._file.close()
