"""One process at a time sends the records of a command: whoever comes later finds the earlier, and withdraws."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.record import bundle
from runner.track import claim
from runner.track.by_command import by_command
from runner.track.claim import Claim, Ticket
from runner.track.send import send_folder
from tests.patience import NEVER_S, PATIENCE_S, pressed, within
from tests.reports.synthetic import KIB, MIB, record

Patch = pytest.MonkeyPatch

Runs = Callable[[str], dict[str, list[Any]]]


class Experiment:
    """A server with one experiment's tags; each call takes a while, longer or shorter."""

    def __init__(self, seed: int = 0) -> None:
        self.tags: dict[str, str] = {}
        self._random = random.Random(seed)

    def _pass(self) -> None:
        time.sleep(self._random.random() * 0.004)

    def get_experiment(self, experiment_id: str) -> Any:
        self._pass()
        found = SimpleNamespace(tags=dict(self.tags))
        self._pass()
        return found

    def set_experiment_tag(self, experiment_id: str, key: str, value: str) -> None:
        self._pass()
        self.tags[key] = value
        self._pass()

    def delete_experiment_tag(self, experiment_id: str, key: str) -> None:
        self._pass()
        del self.tags[key]


@pytest.mark.parametrize("seed", range(8))
def test_of_many_at_once_one_sends(seed: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(claim, "_LOOK_S", 0.002)
    server = Experiment(seed)
    claims = [Claim(server, "1", "c1") for _ in range(5)]
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: answers.append(one.take())) for one in claims]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * 4 + [True]
    assert len(server.tags) == 1
    for one in claims:
        one.give_back()
    assert server.tags == {}


def test_a_sender_that_died_here_is_noticed_at_once(server: Experiment, monkeypatch: Patch) -> None:
    monkeypatch.setattr(claim, "SILENT_S", NEVER_S)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    name = claim._process(str(gone.pid)) or f"{gone.pid}.1"
    gone.wait()
    other(server, claim._machine(), name)
    with within():
        assert Claim(server, "1", "c1").take()
    assert len(server.tags) == 1


def test_a_number_that_another_process_has_now_is_not_the_sender() -> None:
    here = claim._process(str(os.getpid()))
    assert not Ticket(1, claim._machine(), here).is_dead
    assert Ticket(1, claim._machine(), f"{os.getpid()}.1").is_dead
    assert not Ticket(1, "elsewhere", f"{os.getpid()}.1").is_dead


def test_a_silent_sender_of_another_machine_loses_its_turn(server: Experiment, monkeypatch: Patch) -> None:
    monkeypatch.setattr(claim, "SILENT_S", 0.1)
    other(server, "elsewhere", "1.1")
    assert Claim(server, "1", "c1").take()


def test_a_sender_of_another_machine_that_beats_keeps_its_turn(server: Experiment, monkeypatch: Patch) -> None:
    monkeypatch.setattr(claim, "BEAT_S", 0.01)
    monkeypatch.setattr(claim, "_machine", lambda: "elsewhere")
    earlier = Claim(server, "1", "c1")
    assert earlier.take()
    monkeypatch.setattr(claim, "_machine", lambda: "here")
    assert not Claim(server, "1", "c1").take()
    earlier.give_back()


def test_a_server_that_deletes_no_tag_keeps_none_that_counts(server: Experiment, monkeypatch: Patch) -> None:
    monkeypatch.setattr(server, "delete_experiment_tag", lambda *_: 1 / 0)
    for _ in range(2):
        one = Claim(server, "1", "c1")
        assert one.take()
        one.give_back()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plain", 'it\'s <b>"quoted"</b> `so` & 100%'])
def test_senders_at_once_give_one_set_of_runs(command: str, tmp_path: Path, database: str, mlflow_runs: Runs) -> None:
    records = [record(name, size, request={"command": command}) for name in ("one_shot", "nccl") for size in (KIB, MIB)]
    bundle.write(records, tmp_path / "two.jsonl.xz", is_quick=True)
    kept = by_command([tmp_path], tmp_path / "unpacked")[0][command]
    experiment = f"at_once_{len(command)}"
    said: list[str] = []

    def send() -> None:
        said.append(send_folder(kept, database, experiment)[0])

    send_folder(by_command([tmp_path], tmp_path / "again")[0][command], database, f"{experiment}_made")  # imports
    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 3, "no sender fails"
    assert sum("sent as run" in one and "already" not in one for one in said) == 1, said
    assert all("nothing done" in one or "4 records sent" in one for one in said)
    runs = mlflow_runs(experiment)
    assert (len(runs["parents"]), len(runs["children"])) == (1, 2)
    assert runs["parents"][0].data.tags["symlab.complete"] == "true"
    assert "already sent" in send_folder(kept, database, experiment)[0], "its name is found by a filter"


@pytest.mark.parametrize("patience_s", [0.0, 7.0])
def test_patience_ends_when_it_is_over(server: Experiment, patience_s: float, monkeypatch: Patch) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        assert now[0] < 200, "the sender waits for ever"

    monkeypatch.setattr(server, "_pass", lambda: None)
    first, second = Claim(server, "1", "c1"), Claim(server, "1", "c1")
    assert first.take()
    monkeypatch.setattr(claim, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    assert not second.take(patience_s)
    assert patience_s <= now[0] - 100 <= patience_s + claim._LOOK_S
    first.give_back()
    assert server.tags == {}, "who gives up leaves nothing"


@pytest.fixture
def server(monkeypatch: Patch) -> Experiment:
    """A server, which claims look at often."""
    monkeypatch.setattr(claim, "_LOOK_S", 0.01)
    return Experiment()


def other(server: Experiment, machine: str, process: str) -> None:
    """A claim of another sender, who is silent from now on."""
    server.tags[f"symlab.sending.{claim.digest_of('c1')}.x"] = Ticket(1, machine, process).text


def test_whoever_waits_has_the_next_turn_and_other_commands_do_not_wait(server: Experiment) -> None:
    first, second = Claim(server, "1", "c1"), Claim(server, "1", "c1")
    assert first.take()
    assert Claim(server, "1", "c2").take()
    with pressed(lambda: any(second._key in key for key in server.tags), first.give_back):
        assert second.take(patience_s=PATIENCE_S)
    second.give_back()
