"""Recorded cases that run again for an audit: which are chosen, what is compared; a record's code never runs."""

import dataclasses
import json
from pathlib import Path

import pytest

from cases.record.record import Status, from_json
from reports.record.bundle import read
from runner.case.allowed_code import allowed_code
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay.at_commit import Answers, at_commits
from symlab.evidence.replay.by_reference import MOST_LAUNCHES, check_by_reference
from symlab.evidence.replay.rerun import SMALL_BYTES, in_order, rerun, with_data
from tests.golden import refused
from tests.runner.conftest import BAD, GOOD
from tests.runner.found import LOAD, finding
from tests.symlab.evidence.audit.complete_set import asked

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"


@pytest.fixture
def again(symlab, script):
    """again(records): what a second run on stub worlds gives; the script says what comes out."""

    def run(records, number=None, **how):
        tools = script.tools()
        ask = how.pop("ask", at_commits)
        up_to_bytes = how.pop("up_to_bytes", -1)
        wanted = Rerun(number=number, **{"patience_s": None, **how})
        more = {"make": tools.make_world, "means": tools.means, "ask": ask}
        return rerun(records, wanted, lambda text: None, up_to_bytes=up_to_bytes, **more)

    return run


@pytest.fixture
def made(symlab):
    def make(*arguments):
        return read([symlab(*arguments).folder / "records"])

    return make


def test_every_case_runs_again_and_agrees(made, again, script):
    records = made("sizes=[8,64]", "world_size=3")
    found = again(records)
    assert (found.of, len(found.parts.data.agree), found.parts.data.different, found.parts.data.stated) == (
        4,
        4,
        [],
        [],
    )
    assert found.kernels == ["all_reduce/one_shot", "all_reduce/two_shot"]
    assert all(world.closed for world in script.worlds), "no world is left open"
    assert len(found.parts.code.agree) == 4


def test_a_case_that_comes_out_wrong_here_is_a_difference(made, again, script):
    records = made("sizes=[8]")
    script.outcomes["one_shot"] = BAD
    found = again(records)
    ((case, what),) = found.parts.data.different
    assert ("one_shot" in case, "wrong is 0 in the record, 3 here" in what) == (True, True)


def edited(record, part="check", **changes):
    there = getattr(record, part)
    changed = {**there, **changes} if isinstance(there, dict) else dataclasses.replace(there, **changes)
    return dataclasses.replace(record, **{part: changed})


@pytest.mark.parametrize(
    "changes",
    [
        {"elements": 63},
        {"max_absolute_error": 0.125},
        {"max_ulp_error": 1},
        {"rms_ulp_error": 0.5},
        {"method": "bytes"},
        {"launches": 3},
        {"ranks_equal_promised": False},
    ],
)
def test_one_edited_figure_is_found(changes, made, again):
    first, *others = made("sizes=[8]")
    found = again([edited(first, **changes), *others])
    assert [case for case, _ in found.parts.data.different] == [first.id]
    assert len(found.parts.data.agree) == 1


def test_an_edited_kernel_is_found_unless_its_sources_changed(made, again, script):
    script.outcomes["one_shot"] = dataclasses.replace(GOOD, method="bitwise_fold")
    first, *_ = made("sizes=[8]")
    liar = edited(first, "kernel", code_digest="sha256:0")
    assert [case for case, _ in again([liar]).parts.code.different] == [first.id]
    older = edited(liar, "kernel", source_digest="sha256:0")
    found = again([older])
    assert found.parts.code.stated == [(first.id, "stated: sources changed")]
    assert len(found.parts.data.agree) == 1, "the data is the same all the same"
    worse = again([edited(older, max_ulp_error=3)])
    assert (worse.parts.data.agree, worse.parts.data.different) == ([], [])
    ((_, what),) = worse.parts.data.unsure
    assert what.startswith("its code changed since, and max_ulp_error is 3 in the record, 0 here")


def test_where_no_order_enters_the_reference_decides_whatever_code_ran(made, again, script):
    """The record is right, by other code; what runs today is wrong: the reference says so."""
    record = published("bulk", 1024)
    script.outcomes["all_gather"] = dataclasses.replace(BAD, elements=record.check.elements)
    found = again([record], up_to_bytes=1 << 20)
    assert found.parts.data.agree == [(record.id, record.case.name, "reference")]
    found = again([edited(record, max_ulp_error=3)], up_to_bytes=1 << 20)
    assert [case for case, _ in found.parts.data.different] == [record.id]


def test_a_bound_kept_in_the_simulator_needs_todays_simulator(made, again, script):
    first, *_ = made("sizes=[8]")
    bound = {"method": "bound", "bound": "a formula", "bound_value": 0.5, "bound_used": 0.25}
    record = with_sources(edited(first, **bound))
    script.outcomes["one_shot"] = dataclasses.replace(record.check, bound_used=0.5)
    assert [case for case, _ in again([record]).parts.data.different] == [record.id]
    older = with_sources(record, simulator="sha256:0")
    assert [case for case, _ in again([older]).parts.data.unsure] == [record.id]


def with_sources(record, **changes):
    from runner.environment.repository import source_digests
    from runner.request.experiments import CONF

    return edited(record, "environment", sources=source_digests(CONF.parent) | changes)


def test_counters_are_compared_where_the_simulator_is_todays(made, again):
    first, *_ = made("sizes=[8]")
    here = with_sources(first)
    assert again([here]).parts.counters.agree == [(first.id, "all_reduce/one_shot")]
    slower = edited(here, "counters", race_orders=["fabric.schedule=priority fabric.seed=0"])
    assert again([slower]).parts.counters.different == []
    more = edited(here, "counters", instructions=1)
    ((_, what),) = again([more]).parts.counters.different
    assert what == "counter instructions is 1 in the record, 2000 here"
    other = with_sources(more, simulator="sha256:0")
    assert again([other]).parts.counters.stated == [(first.id, "stated: sources changed")]


def by_commit(gives, reason=""):
    """Stands for the code of commits: what it gives to the first case."""
    return lambda records, say: Answers({0: gives} if gives else {}, {0: reason} if gives is None else {})


def test_at_the_commit_nothing_is_hidden_by_changed_sources(made, again, script):
    """Code, counters and data of an older record against what the code of its commit gave."""
    script.outcomes["one_shot"] = dataclasses.replace(GOOD, method="bitwise_fold")
    first, *_ = made("sizes=[8]")
    older = edited(with_sources(first, simulator="sha256:0"), "kernel", source_digest="sha256:0")
    found = again([older], at_commit=True, ask=by_commit(older))
    assert (found.parts.code.agree, found.parts.counters.agree) == ([(first.id, "all_reduce/one_shot")],) * 2
    assert (len(found.parts.data.agree), found.at_commit, found.parts.code.stated) == (1, 1, [])
    for lied in (edited(older, "kernel", grid=99), edited(older, "kernel", source_digest="sha256:1")):
        assert len(again([lied], at_commit=True, ask=by_commit(older)).parts.code.different) == 1
    assert len(again([edited(older, launches=3)], at_commit=True, ask=by_commit(older)).parts.data.different) == 1
    more = edited(older, "counters", instructions=1)
    assert len(again([more], at_commit=True, ask=by_commit(older)).parts.counters.different) == 1
    other = edited(older, "kernel", compiler="nvidia-cutlass-dsl 9.9", code_digest="sha256:1")
    ((_, why),) = again([other], at_commit=True, ask=by_commit(older)).parts.code.stated
    assert why.startswith("stated: another compiler (nvidia-cutlass-dsl 9.9 there")
    right = edited(first, "kernel", source_digest="sha256:0", code_digest="sha256:0")
    worse = edited(right, max_ulp_error=3)
    assert len(again([worse]).parts.data.unsure) == 1
    for gives, agree, different in ((worse, 1, 0), (right, 0, 1)):
        found = again([worse], at_commit=True, ask=by_commit(gives))
        assert (len(found.parts.data.agree), found.parts.data.unsure, len(found.parts.data.different)) == (
            agree,
            [],
            different,
        )


def test_what_the_commit_can_not_say_stays_stated_with_the_reason(made, again):
    first, *_ = made("sizes=[8]")
    older = edited(with_sources(first, simulator="sha256:0", kernels="sha256:0"), "kernel", source_digest="sha256:0")
    found = again([older], at_commit=True, ask=by_commit(None, "git does not have it"))
    assert found.parts.code.stated == [(first.id, "stated: sources changed; git does not have it")]
    assert found.parts.counters.stated == [(first.id, "stated: sources changed; git does not have it")]
    assert (len(found.parts.data.agree), found.at_commit) == (1, 0)


@pytest.mark.slow
def test_records_without_digests_of_sources_are_held_to_todays_code_where_git_says_it_is_theirs(made, again):
    first, *_ = made("sizes=[8]")
    more = edited(edited(first, "environment", sources=None), "counters", instructions=1)
    assert len(again([more]).parts.counters.stated) == 1
    found = again([more], at_commit=True, ask=by_commit(None, ""))
    assert (len(found.parts.counters.different), found.parts.counters.stated) == (1, [])


@pytest.mark.slow
def test_the_commit_is_asked_only_for_what_has_changed(made, again):
    def never(*_):
        raise AssertionError("nothing has changed")

    records = [with_sources(one) for one in made("sizes=[8]")]
    assert len(again(records, at_commit=True, ask=never).parts.data.agree) == 2


@pytest.mark.slow
def test_another_digest_of_todays_sources_is_a_difference(made, again):
    """The record says that its kernels are those of today: then each has today's digest."""
    first, *_ = made("sizes=[8]")
    lied = edited(first, "kernel", source_digest="sha256:0", grid=99)
    assert len(again([with_sources(lied)]).parts.code.different) == 1
    assert len(again([with_sources(lied, kernels="sha256:0")]).parts.code.stated) == 1


def test_as_many_as_wanted_with_one_of_each_kernel_first(made, again, script):
    records = made("sizes=[8,16,32,64]")
    before = len(script.ran)
    found = again(records, number=2, seed=3)
    assert len(script.ran) == before + 2
    assert {kernel for _, kernel, _ in found.parts.data.agree} == {"all_reduce/one_shot", "all_reduce/two_shot"}
    assert {why for _, why in found.parts.data.stated} == {"not among the 2 that were to run again"}
    assert len(found.parts.data.agree) + len(found.parts.data.stated) == found.of == 8
    cases = with_data(records)
    orders = [tuple(case.id for case in in_order(cases, seed)) for seed in (*range(8), 3)]
    assert len(set(orders)) > 1
    assert orders[3] == orders[-1], "the order is that of the seed"
    found = again(records, patience_s=-1.0)
    assert (len(script.ran), {why for _, why in found.parts.data.stated}) == (
        before + 2,
        {"not begun within -1 s, and --rerun has no limit"},
    )


def test_worlds_of_one_case_count_once_and_each_is_compared(made, again):
    (first, *_), (second, *_) = made("sizes=[8]", "algorithms=[one_shot]"), made("sizes=[8]", "algorithms=[one_shot]")
    assert again([first, second]).of == 1
    found = again([first, edited(second, max_ulp_error=2)])
    assert (found.parts.data.agree, len(found.parts.data.different)) == ([], 1)


def test_records_without_a_check_or_a_configuration(made, again):
    first, second = made("sizes=[8]")
    unchecked = dataclasses.replace(second, check=None, reason="check was off")
    found = again([edited(first, "request", configuration=None), unchecked])
    ((case, why),) = found.parts.data.stated
    assert (found.of, case, "holds no configuration" in why) == (2, first.id, True)
    assert found.parts.data.agree == [(second.id, second.case.name, "status")]
    found = again([dataclasses.replace(first, kernel=None)])
    assert found.kernels == [first.case.name], "it counts as that kernel's"
    assert (found.parts.data.agree, found.parts.data.stated) == ([], [(first.id, "the record has no kernel")])


def test_a_deadline_of_a_record_does_not_hold_the_audit(made, script):
    records = made("sizes=[8]", "deadline_s=100000")
    tools = script.tools()
    asked = []

    def ran(world, contestant, request):
        asked.append(request.deadline_s)
        return GOOD

    means = dataclasses.replace(tools.means, ran=ran)
    rerun(records, Rerun(patience_s=None), lambda text: None, make=tools.make_world, means=means)
    assert asked == [60.0, 60.0]


def published(algorithm, size_bytes, dtype="bfloat16"):
    name = "all_reduce" if algorithm in ("one_shot", "nccl") else "collectives"
    records = read([PUBLISHED / "h200-x2" / f"{name}-world1.jsonl.xz"])
    found = (one for one in records if one.case.algorithm == algorithm and one.case.size_bytes == size_bytes)
    return next(one for one in found if one.case.dtype == dtype and one.check is not None)


def test_records_of_gpus_are_compared_with_the_reference(again):
    record = published("one_shot", 262144)
    assert record.case.size_bytes > SMALL_BYTES
    found = again([record], up_to_bytes=1 << 20)
    assert found.parts.data.agree == [(record.id, "all_reduce/one_shot", "reference")]
    for changes in ({"elements": record.check.elements - 1}, {"method": "bytes"}, {"rms_ulp_error": 0.5}):
        found = again([edited(record, **changes)], up_to_bytes=1 << 20)
        assert (found.parts.data.agree, len(found.parts.data.different + found.parts.data.unsure)) == ([], 1), changes
    assert again([record], up_to_bytes=1024).parts.data.agree == []


def test_a_library_that_kept_a_bound_is_stated_and_its_elements_are_compared(again):
    record = published("nccl", 65536)
    found = again([record], up_to_bytes=1 << 20)
    assert (found.parts.data.agree, found.parts.data.stated) == (
        [],
        [(record.id, "a library ran it, which needs GPUs")],
    )
    found = again([edited(record, elements=record.check.elements - 2)], up_to_bytes=1 << 20)
    assert [case for case, _ in found.parts.data.different] == [record.id]


def test_by_the_reference_no_number_of_launches_fills_the_memory():
    record = edited(published("one_shot", 1024), launches=MOST_LAUNCHES + 1)
    with refused(ValueError):
        check_by_reference(record)


@pytest.mark.slow
def test_in_the_simulator_the_data_of_a_gpus_record_is_the_recorded():
    """The real worker, on one published case and on the same with one edited figure."""
    record = published("one_shot", 1024, "float16")
    said = asked([record], up_to_bytes=0, rerun=Rerun(1, 0, None))
    assert "data VERIFIED: 1 of 1 cases recomputed (1 in the simulator (seed 0)): all agree" in said


EVIL = """
from pathlib import Path

Path({mark!r}).write_text("ran")
"""


@pytest.mark.slow
def test_nothing_that_a_record_carries_is_run_or_applied(made, tmp_path, again):
    """A record whose kernel, configuration and difference would each leave a mark, beside files that would, too."""
    first, *_ = made("sizes=[8]")
    folder, mark = tmp_path / "sent", tmp_path / "mark"
    folder.mkdir()
    evil = folder / "evil.py"
    evil.write_text(EVIL.format(mark=str(mark)))
    place = f"{evil}:SPEC"
    (folder / "source.diff").write_text(
        "--- a/kernels/catalogue.py\n+++ b/kernels/catalogue.py\n@@ -1,0 +1,2 @@\n"
        f'+from pathlib import Path\n+Path({str(mark)!r}).write_text("ran")\n'
    )
    document = json.loads(first.to_json())
    document["environment"]["git"] |= {"dirty": True, "changed_files": 1, "kept_diff": {"file": "source.diff"}}
    document["environment"]["git"]["diff"] = (folder / "source.diff").read_text()
    document["request"]["brought"] = {"one_shot": {"place": place, "digest": "sha256:0"}}
    document["request"]["configuration"] |= {"algorithms": [place], "cache_dir": str(folder), "records": str(folder)}
    record = from_json(json.dumps(document))
    (folder / f"{record.id}.json").write_text(record.to_json())
    wanted = Rerun(patience_s=None)
    found = rerun([record], wanted, lambda text: None, allowed_code([folder], folder=tmp_path / "elsewhere"))
    assert found.parts.data.agree == []
    assert not mark.exists()
    assert asked([record], [folder], rerun=Rerun(None, 0, None))
    assert not mark.exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted(["evil.py", "source.diff", f"{record.id}.json"])
    rerun([record], wanted, lambda text: None, allowed_code([folder], [folder], changed=True))
    assert mark.exists(), "the trap works where a user names the folder"


def test_gpus_are_never_asked(made, again, script):
    """A record of GPUs runs again on a simulated world, whatever its configuration names."""
    first, *_ = made("sizes=[8]")
    gpus = edited(first, "fabric", name="nvshmem", simulated=False, settings={})
    asked = {**(first.request.configuration or {}), "fabric": {"name": "nvshmem"}}
    again([dataclasses.replace(edited(gpus, "request", configuration=asked), counters={})])
    assert script.worlds[-1].fabric.simulated


@pytest.mark.parametrize("algorithm", ["one_shot", "nccl"])
def test_an_invented_bound_does_not_hide_errors_of_gpus(again, algorithm):
    """The kernel promises each bit: a record of it that says a bound was kept does not count as recomputed."""
    record = published(algorithm, 262144)
    invented = {"method": "bound", "bound": "x", "bound_value": 100.0, "bound_used": 0.9}
    errors = {"max_absolute_error": 90.0, "max_ulp_error": 99, "rms_ulp_error": 50.0}
    found = again([edited(record, **invented, **errors)], up_to_bytes=1 << 20)
    assert (found.parts.data.agree, found.parts.data.stated) == ([], [])
    ((case, what),) = found.parts.data.unsure
    assert (case, "bound is 'x' in the record" in what) == (record.id, True)
    honest = again([record], up_to_bytes=1 << 20)
    assert (honest.parts.data.different, honest.parts.data.unsure) == ([], [])


def ended(record, status, **changes):
    return dataclasses.replace(record, status=status, check=None, counters={}, reason="so it is said", **changes)


@pytest.mark.parametrize("status", [Status.REFUSED, Status.FAILED, Status.DEADLOCK])
def test_a_case_that_passes_here_and_is_said_to_have_ended_otherwise_is_a_difference(status, made, again):
    first, second = map(with_sources, made("sizes=[8]"))
    liar = ended(first, status, kernel=None if status is Status.REFUSED else first.kernel)
    found = again([liar, second])
    assert found.parts.data.different == [(first.id, f"it ended {status} in the record, PASSED here")]
    assert (found.of, found.kernels) == (2, [second.case.name])
    older = with_sources(liar, simulator="sha256:0")
    assert [case for case, _ in again([older]).parts.data.unsure] == [first.id]
    found = again([ended(first, Status.TIMEOUT)])
    assert (found.parts.data.different, [case for case, _ in found.parts.data.unsure]) == ([], [first.id])


def test_a_case_that_breaks_here_agrees_where_it_did_and_else_is_a_difference(made, again, script):
    passed, _ = map(with_sources, made("sizes=[8]"))
    script.outcomes["one_shot"] = RuntimeError("it breaks")
    ((case, what),) = again([passed], up_to_bytes=1 << 20).parts.data.different
    assert (case, what.startswith("it ended PASSED in the record, FAILED here")) == (passed.id, True)
    found = [with_sources(one) for one in made("sizes=[8]") if one.status is Status.FAILED]
    assert found[0].check is None
    assert (found[0].id, found[0].case.name, "status") in again(found).parts.data.agree


def test_what_gpus_did_not_run_is_not_compared_with_the_simulator(made, again):
    first, second = made("sizes=[8]")
    on_gpus = edited(first, "fabric", name="nvshmem", simulated=False).fabric
    assert again([ended(first, Status.REFUSED, kernel=None, fabric=on_gpus), second]).of == 1


FORMAL = finding("formal", "an acquire")


def test_races_are_found_again(made, again, script):
    script.findings["one_shot"] = (FORMAL,)
    records = made("check.races=true", "sizes=[8]")
    found = again(records).parts.races
    assert (len(found.agree), found.different, found.stated) == (2, [], [])
    assert again([dataclasses.replace(one, findings=None) for one in records]).parts.races.agree == []
    other = dataclasses.replace(FORMAL, second=dataclasses.replace(LOAD, line=56))
    script.findings["one_shot"] = (other,)
    ((case, what),) = again(records).parts.races.different
    assert "one_shot" in case
    assert "only after: " in what
    assert "only before: " in what


def test_findings_of_other_code_and_of_cases_that_end_before_are_stated(made, again, script):
    record, *_ = made("check.races=true", "sizes=[8]", "algorithms=[one_shot]")
    code = {"source_digest": "sha256:other", "code_digest": "sha256:other"}
    other = dataclasses.replace(record, kernel=dataclasses.replace(record.kernel, **code))
    assert "other code" in again([other]).parts.races.stated[0][1]
    unasked = edited(record, "request", configuration={**record.request.configuration, "check": True})
    assert again([unasked]).parts.races.stated[0][1] == "stated: PASSED here, without findings"
