"""The options of `symlab run`, beside its overrides; and how a command was started, as records say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

INFO_TOPICS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
CFG_PARTS = ("job", "hydra", "all")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a command line of `symlab run` asks for, its flags as Hydra means them.

    cfg, info and plan show something instead of running; package and resolve say how cfg shows it.
    """

    overrides: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: Path | None = None
    cfg: Literal["job", "hydra", "all"] | None = None
    package: str | None = None
    resolve: bool = False
    info: str | None = None
    help: bool = False
    version: bool = False
    quiet: bool = False
    plan: bool = False

    @property
    def runs(self) -> bool:
        """Whether cases are to run; otherwise something is only shown."""
        return not (self.cfg or self.info or self.help or self.version or self.plan)


def config_dir_of(words: Sequence[str]) -> str:
    """Return the folder that a command line names with --config-dir, as it was written; "" without one."""
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            return value or (words[number + 1] if number + 1 < len(words) else "")
    return ""


def command_line(first_argument: str, arguments: Sequence[str]) -> list[str]:
    """Return the whole command line of this process: from sys.argv[0], and the arguments of its verb.

    They begin with the verb itself where it is another one than run.
    """
    started = tuple(Path(first_argument).parts[-2:])
    given = list(arguments)
    if started == ("runner", "__main__.py"):
        return ["python", "-m", "runner", *given]
    program = ["python", "-m", "symlab"] if started == ("symlab", "__main__.py") else ["symlab"]
    return [*program, *given] if given[:1] in (["replay"], ["resume"], ["tune"]) else [*program, "run", *given]
