"""Command lines that are sent to MLflow, while they run or later, and what it has of them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from symlab.command import main as symlab
from tests.runner.conftest import Outcome


@dataclass(frozen=True)
class Sent:
    """An experiment of a test's own in MLflow."""

    symlab: Callable[..., Outcome]
    database: str
    find: Callable[[str], dict[str, list[Any]]]
    name: str

    def run(self, *words):
        """A command line that is sent while it runs."""
        return self.symlab(*words, f"track.uri={self.database}", f"track.experiment={self.name}", track=True)

    def later(self, *places):
        return symlab(["track", *map(str, places), "--uri", self.database, "--experiment", self.name])

    @property
    def children(self):
        return self.find(self.name)["children"]

    @property
    def parent(self):
        """The run of the only command."""
        (parent,) = self.find(self.name)["parents"]
        return parent

    @property
    def runs(self):
        return [self.parent, *self.children]


@pytest.fixture
def sent(symlab, database, mlflow_runs, request):
    return Sent(symlab, database, mlflow_runs, re.sub(r"\W+", "_", request.node.name))


def kept(folder, records):
    """The folder, with records in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(records):
        (folder / f"{number}.json").write_text(one.to_json(), encoding="utf-8")
    return folder
