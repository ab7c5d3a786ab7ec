"""The environment of a command's records: once, before the work; what a world's ranks know; what can't be had."""

import hashlib
import json

import pytest

from cases.documents import encoded
from cases.record.record import load
from runner.environment.gpus import rank_facts
from runner.environment.of_command import Surroundings
from runner.records.store import MAX_DIFFERENCE_BYTES, Store, StoreError
from runner.world.processes import ProcessWorld
from runner.world.world import WorldFailure
from tests.runner.conftest import Script, StubWorld, record_files
from tests.runner.rank_programs import FileOpener

DIFFERENCE = "-one\n+two\n"


def captured(root):
    return {"git": {"commit": "0123abc", "diff": DIFFERENCE}, "not_captured": {"gpus": "no driver"}}


class FactlessWorld(StubWorld):
    """A world on GPUs that asking hurts."""

    def run(self, program, argument, deadline_s):
        if program is rank_facts:
            self.healthy = False
            raise WorldFailure("TIMEOUT", 1, "rank 1: still running after 30.0 s, at pynvml.py:1")
        return super().run(program, argument, deadline_s)


def test_the_difference_lies_beside_the_records_not_in_them(tmp_path):
    surroundings = Surroundings(captured, Store(tmp_path))
    surroundings.look()
    found = surroundings.now()
    digest = f"sha256:{hashlib.sha256(DIFFERENCE.encode()).hexdigest()}"
    kept = {"file": "source.diff", "digest": digest, "bytes": len(DIFFERENCE), "left_out_bytes": 0}
    assert found.git == {"commit": "0123abc", "kept_diff": kept}
    assert found.capture_s >= 0
    assert (tmp_path / "source.diff").read_text() == DIFFERENCE
    assert captured(tmp_path)["git"]["diff"] == DIFFERENCE


@pytest.mark.slow
def test_a_long_difference_is_cut_and_says_so(tmp_path):
    line = "+" + "x" * 99 + "\n"
    kept = Store(tmp_path).write_difference(line * 20_000)
    text = (tmp_path / "source.diff").read_text()
    assert len(text) == kept["bytes"] <= MAX_DIFFERENCE_BYTES + 100
    *lines, last = text.splitlines(keepends=True)
    assert set(lines) == {line}
    assert kept["left_out_bytes"] == 101 * (20_000 - len(lines))
    assert last == f"# cut here: {kept['left_out_bytes']} more bytes were not kept\n"


def test_it_is_looked_at_once(tmp_path):
    seen = []
    surroundings = Surroundings(lambda root: {"problem": seen.append(root)}, Store(tmp_path))
    surroundings.look()
    first = surroundings.now()
    assert surroundings.now() == first
    assert len(seen) == 1


def test_what_can_not_be_had_is_a_reason(tmp_path, monkeypatch):
    def fails(root):
        raise RuntimeError("no such luck")

    assert encoded(Surroundings(fails, Store(tmp_path)).now()) == {"problem": "RuntimeError: no such luck"}

    def full(self, text):
        raise StoreError("no room")

    monkeypatch.setattr(Store, "write_difference", full)
    found = Surroundings(captured, Store(tmp_path)).now()
    assert found.git == {"commit": "0123abc"}
    assert found.not_captured == {"gpus": "no driver", "kept_diff": "no room"}


@pytest.mark.slow
def test_ranks_say_what_only_they_know(tmp_path):
    surroundings = Surroundings(captured, Store(tmp_path))
    world = ProcessWorld(2, FileOpener(str(tmp_path)))
    try:
        ids = list(world.processes)
        assert surroundings.ask(world)
        assert world.healthy
    finally:
        world.close()
    ranks = (surroundings.now().world or {})["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1]
    assert [one["process"] for one in ranks] == ids
    assert all(one["cores"] for one in ranks)
    assert json.loads(json.dumps(ranks)) == ranks


def test_a_world_that_asking_hurts_is_replaced_and_never_asked_again(tmp_path, monkeypatch):
    from runner.__main__ import main
    from runner.command import plan
    from runner.world.fabrics import HostOffer

    class Hurt(Script):
        def _world(self, fabric, world_size, say):
            self.worlds.append(FactlessWorld(fabric, world_size))
            return self.worlds[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "look", lambda: HostOffer(gpu_count=8, driver_problem="", gpu_extra=True))
    script = Hurt()
    tools = script.tools()
    arguments = ["fabric=nvshmem", "world_size=2", "sizes=[8,16]", "algorithms=[one_shot]", "baselines=[]"]
    assert main([*arguments, "track=none", "timing.mode=none"], tools) == 0
    assert [world.healthy for world in script.worlds] == [False, True]
    assert script.worlds[0].closed
    environments = [encoded(load(path).environment) for path in record_files(tmp_path)]
    assert len(environments) == 2
    for environment in environments:
        assert "still running" in environment["world"]["not_captured"]["ranks"]
