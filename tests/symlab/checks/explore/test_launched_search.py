"""A search on a launcher's workers finds what a search here finds, and says what was not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.launch import tasks as tasks_module
from runner.request.compose import launcher_of
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError
from symlab.checks.explore.search import Search, Searched
from symlab.checks.explore.spread import search_on
from tests.patience import PATIENCE_S
from tests.symlab.checks.explore.test_search import Seeded, plan

TWO = LaunchRequest("joblib", (), {"n_jobs": 2})


class Here:
    """Stands for the launcher: runs the workers one after another, in this process."""

    def __init__(self, request: LaunchRequest, work: Any, workers: Sequence[int], *rest: Any) -> None:
        self.error: BaseException | None = None
        self.is_over = True
        self.returns = [type("Return", (), {"return_value": work(worker)})() for worker in workers]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "Started", Here)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("bad", [(), (3,), (29,), (17, 20, 5)])
def test_it_finds_what_one_machine_finds(bad: tuple[int, ...], tmp_path: Path) -> None:
    wanted = plan(Seeded(), Seeded(bad=bad), schedule="both")
    told: list[int] = []
    spread = search_on(TWO, wanted, lambda done: told.append(done.runs), tmp_path / "tasks")
    alone = Search(wanted).run()
    assert spread.found == alone.found
    assert bad or spread.runs == alone.runs == 120
    assert told == sorted(told)
    assert (spread.processes, spread.lost, spread.interrupt) == (2, [], None)


@pytest.mark.usefixtures("here")
def test_seeds_begin_where_they_are_told_to_and_the_last_part_is_short(tmp_path: Path) -> None:
    done = search_on(TWO, plan(Seeded(), first_seed=5, seeds=19), lambda done: None, tmp_path / "tasks")
    assert done.runs == 19
    found = search_on(TWO, plan(Seeded(bad=(23,)), first_seed=5, seeds=19), lambda done: None, tmp_path / "tasks").found
    assert found is not None
    assert (found[0].order.seed, found[0].number) == (23, 18)
    beyond = plan(Seeded(bad=(24,)), first_seed=5, seeds=19)
    assert search_on(TWO, beyond, lambda done: None, tmp_path / "tasks").found is None


@pytest.mark.usefixtures("here")
def test_the_time_ends_it(tmp_path: Path) -> None:
    done = search_on(TWO, plan(Seeded(), seeds=None, seconds=0.5), lambda done: None, tmp_path / "tasks")
    assert done.runs > 0
    assert 0.5 <= done.seconds < PATIENCE_S
    assert done.found is None


@pytest.mark.usefixtures("here")
def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    done = search_on(TWO, plan(Seeded(refuses=True), seeds=16), lambda done: None, tmp_path / "tasks")
    assert done.runs == 0
    assert done.lost == [f"1 seed from {seed} on: not run: ValueError: it does not fit" for seed in range(16)]


def test_subjects_that_can_not_be_sent_are_refused(tmp_path: Path) -> None:
    class Local(Seeded):
        pass

    with pytest.raises(RequestError, match="can't be sent to another process"):
        search_on(TWO, plan(Local()), lambda done: None, tmp_path / "tasks")


@pytest.mark.slow
def test_real_workers_find_the_same(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    launch = launcher_of(["joblib", "hydra.launcher.n_jobs=2"])
    assert launch is not None
    wanted = plan(Seeded(bad=(17, 20)))
    done: Searched = search_on(launch, wanted, lambda done: None, tmp_path / "tasks")
    assert done.found == Search(wanted).run().found
