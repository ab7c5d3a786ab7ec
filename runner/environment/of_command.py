"""The environment part of a command's records: captured once, before the work; worlds on GPUs add what they know."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.documents import decoded
from cases.record.request import RecordedEnvironment
from runner.environment.capture import capture
from runner.environment.repository import configurations_digest
from runner.records.store import Store, StoreError
from runner.request.experiments import CONF

if TYPE_CHECKING:
    from runner.world.world import World

ASKING_S = 30.0
"""How long the ranks of a new world may take to say what they have."""


def added_digest(folder: Path) -> str:
    """Return "sha256:<hex>" of what a folder adds as --config-dir: the YAML files of the groups that there are; "" if
    there are none."""
    groups = {"hydra", *(path.name for path in CONF.iterdir() if path.is_dir())}
    return configurations_digest(folder, groups)


class Surroundings:
    """The environment of one command. It never costs a result: what is unavailable becomes a reason in the records.

    store: keeps the difference of the sources from their commit; None: it is not kept."""

    def __init__(self, capture: Callable[[Path], dict[str, Any]] = capture, store: Store | None = None) -> None:
        self._capture = capture
        self._store = store
        self._found: dict[str, Any] = {}
        self._world: dict[str, Any] = {}
        self._asks = True

    def look(self) -> None:
        """Look around, before any code is imported that may change later. Keeps the sources' difference. Once."""
        if not self._found:
            self._found = self._looked()

    def now(self) -> RecordedEnvironment:
        """The environment of a record that is made now."""
        self.look()
        return decoded(
            RecordedEnvironment, self._found | ({"world": self._world} if self._world else {}), "environment"
        )

    def ask(self, world: World) -> bool:
        """Let the ranks of a new world say what only they know. False if that has hurt the world: then never again."""
        from runner.environment.gpus import rank_facts
        from runner.world.world import WorldFailure

        if not self._asks:
            return True
        try:
            self._world = {"ranks": world.run(rank_facts, None, ASKING_S)}
        except WorldFailure as failure:
            self._asks = False
            self._world = {"not_captured": {"ranks": failure.message}}
            return False
        return True

    def _looked(self) -> dict[str, Any]:
        started_s = time.monotonic()
        try:
            found = dict(self._capture(CONF.parent))
        except Exception as error:
            return {"problem": f"{type(error).__name__}: {error}"}
        found["capture_s"] = round(time.monotonic() - started_s, 3)
        git = dict(found.get("git") or {})
        if difference := git.pop("diff", ""):
            try:
                if self._store is None:
                    raise StoreError("a record of the Python API lies in no folder")
                git["kept_diff"] = self._store.write_difference(difference)
            except StoreError as error:
                found["not_captured"] = found.get("not_captured", {}) | {"kept_diff": str(error)}
        return found | {"git": git} if git else found
