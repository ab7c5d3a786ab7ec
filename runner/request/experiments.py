"""The named experiments: the files in exp/ of each folder of configurations, with the line that each is listed by."""

from __future__ import annotations

import os
from pathlib import Path

from runner.gpu.names import CONF as CONF
from runner.gpu.names import SUFFIX, names_in


def experiments(config_dir: Path | None = None) -> dict[str, str]:
    """Return the experiments of conf/, then of config_dir, by name, each with its first comment that is no directive.

    Of two files of one name Hydra reads that of conf/. A file that can't be read is listed as such.
    """
    found: dict[str, str] = {}
    for folder in (CONF, *([config_dir] if config_dir else [])):
        for name in names_in(folder / "exp"):
            found.setdefault(_printable(name), _line(folder / "exp" / f"{name}{SUFFIX}"))
    return found


def _line(path: Path) -> str:
    """An experiment's line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "(unreadable)"
    comments = (line[1:].strip() for line in text.splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@")), "")


def _printable(name: str) -> str:
    """A file's name as text that any terminal takes: bytes that are no UTF-8 as \\xff."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
