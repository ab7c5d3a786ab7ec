"""Stress from the command line: cases, refusals, seeds, records; replayed and shown like all others."""

from pathlib import Path

import pytest

from cases.record.record import Status
from cases.stress import PROMISES
from reports.mlflow_values import parameters_of
from reports.record.bundle import read
from reports.table.compare import heading
from runner.command.exploration import seeds_of
from runner.request.experiments import CONF
from symlab.command import main
from tests.golden import same_text
from tests.kernels.own_kernel import RING, write_ring
from tests.runner.conftest import asked, on_its_fabric, refusals

PULL = """    source = frame.peer("input", frame.after(frame.rank, frame.world_size - 1))
    frame.copy(source, frame.address("output"), frame.size, push=False)
"""


def write_pull(folder):
    """A kernel without flags, which any number of streams may run at once: hosts meet before its inputs change."""
    place = write_push(folder, "pulled", "leave", "two_streams")
    text = (folder / "pulled.py").read_text()
    start, end = text.index("    frame.arrive()"), text.index("\n\ndef spec_of")
    text = (text[:start] + PULL + text[end:]).replace(
        'address("input"), peers("output")', 'peers("input"), address("output")'
    )
    (folder / "pulled.py").write_text(text)
    return place


def write_push(folder, name, ends, *promises):
    write_ring(folder)
    text = RING.replace("send_recv/ring", f"send_recv/{name}").replace("frame.leave", f"frame.{ends}")
    text = text.replace("placements=", f"promises=frozenset({set(promises)}), placements=")
    (folder / f"{name}.py").write_text(text)
    return f"{name}.py:SPEC"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def records_of(*arguments, code=0):
    before = set(Path("records").glob("*")) if Path("records").exists() else set()
    assert main(["run", *arguments, "fabric=simulator", "track=none"]) == code
    (folder,) = set(Path("records").glob("2*")) - before
    return read([folder])


class TestRequests:
    def test_an_order_that_is_fair_becomes_random_but_for_a_dead_rank(self):
        found = {}
        for name in ("none", "late_rank", "no_host_barrier", "dead_rank", "two_streams+late_rank"):
            (asked_for,) = asked(f"stress={name} fabric=simulator")
            request = on_its_fabric(asked_for)
            found[name] = (request.fabric.schedule, len(seeds_of(request)))
        random = dict.fromkeys(("late_rank", "no_host_barrier", "two_streams+late_rank"), ("random", 8))
        assert found == {"none": ("fair", 1), "dead_rank": ("fair", 1), **random}
        (seeded,) = asked("stress=late_rank fabric=simulator fabric.seed=5 stress_seeds=3")
        assert seeds_of(on_its_fabric(seeded)) == (5, 6, 7), "they begin with the fabric's"

    def test_what_is_wrong_is_one_line(self):
        lines = "stress=late / stress=[late_rank] / stress_seeds=0 / +exp=custom_ptx stress=late_rank"
        same_text(refusals(lines))


class TestRuns:
    @pytest.mark.slow
    def test_a_promise_is_kept_recorded_and_replayed(self, ran, capsys):
        arguments = ("op=send_recv", "algorithms=[push]", "sizes=[64]", "stress_seeds=2")
        (record,) = records_of(*arguments, "stress=alternating_sizes+no_host_barrier")
        assert (record.status, record.case.stress) == (Status.PASSED, "no_host_barrier+alternating_sizes")
        assert record.id.endswith("-stress_no_host_barrier+alternating_sizes")
        assert record.fabric.settings["schedule"] == "random"
        assert parameters_of(record)["stress"] == record.case.stress
        assert f"stress {record.case.stress}" in heading(record)
        assert f"stress {record.case.stress}" in capsys.readouterr().out
        assert main(["replay", "records", "--records", "again"]) == 0
        (again,) = read(["again"])
        assert again.case == record.case
        assert again.check.output_digests == record.check.output_digests

    def test_what_is_not_promised_is_refused_with_the_reason(self, ran):
        place = write_push(ran, "silent", "leave")
        arguments = ("op=send_recv", f"algorithms=[push,{place}]", "sizes=[64]", "stress=late_rank", "stress_seeds=1")
        ours, silent = records_of(*arguments)
        assert (ours.status, silent.status) == (Status.PASSED, Status.REFUSED)
        assert silent.refusal.key == "stress"
        assert silent.reason.startswith("send_recv/silent does not promise late_rank, ")

    @pytest.mark.slow
    def test_a_broken_promise_names_its_seed_which_shows_it_again(self, ran):
        """Without a barrier at its end a rank goes on, and looks at its output, before that has come."""
        place = write_push(ran, "early", "keep_epoch", "no_host_barrier")
        arguments = ("op=send_recv", f"algorithms=[{place}]", "sizes=[64]", "stress=no_host_barrier")
        (record,) = records_of(*arguments, code=1)
        assert record.status is Status.WRONG
        seed = record.reason.partition("with fabric.seed=")[2].partition(";")[0]
        (again,) = records_of(*arguments, f"fabric.seed={seed}", "stress_seeds=1", code=1)
        assert again.status is Status.WRONG

    @pytest.mark.slow
    def test_two_streams_under_the_race_checker(self, ran, capsys):
        """Ours are refused; one that keeps its promise is clean, and one whose launches share epochs is not."""
        places = f"{write_push(ran, 'greedy', 'leave', 'two_streams')},{write_pull(ran)}"
        arguments = ("op=send_recv", f"algorithms=[push,{places}]", "sizes=[64]", "stress_seeds=1", "check.races=true")
        push, greedy, pulled = records_of(*arguments, "stress=two_streams", code=1)
        assert (push.status, pulled.status) == (Status.REFUSED, Status.PASSED)
        assert (push.findings, pulled.findings) == (None, ())
        assert greedy.status in (Status.WRONG, Status.DEADLOCK)
        assert greedy.findings
        assert "an event between the streams" in {one.missing for one in greedy.findings}
        assert {one.first.tensor for one in greedy.findings} == {"epochs"}
        sides = [side for one in greedy.findings for side in (one.first, one.second)]
        assert {side.stream for side in sides} == {1, 2}
        assert "launch 1 on stream" in greedy.findings[0].sentence()

    @pytest.mark.slow
    def test_the_experiment_of_conf_is_short_and_runs(self, ran):
        assert len((CONF / "exp" / "stress.yaml").read_text().splitlines()) < 30
        records = records_of("+exp=stress")
        combinations = {"late_rank+alternating_sizes", "no_host_barrier+alternating_sizes"}
        assert {one.case.stress for one in records} == {*PROMISES, *combinations, "late_rank+graph_out_of_step"}
        assert len(records) == 36
        by_status = {status: sum(one.status is status for one in records) for status in Status}
        assert (by_status[Status.PASSED], by_status[Status.REFUSED]) == (31, 5)

    @pytest.mark.slow
    def test_the_experiment_of_conf_is_clean_under_the_race_checker(self, ran):
        records = records_of("+exp=stress", "stress_seeds=1", "check.races=true")
        assert {one.findings for one in records if one.status is not Status.REFUSED} == {()}
        assert sum(one.status is Status.REFUSED for one in records) == 5
