"""Recorded cases that run again for an audit: which are chosen, what is compared; a record's code never runs."""

import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from cases.record.record import Status, from_json
from reports.record.bundle import read
from runner.case.allowed_code import allowed_code
from runner.environment.repository import source_digests
from runner.request.experiments import CONF
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay.at_commit import Answers, at_commits
from symlab.evidence.replay.by_reference import MOST_LAUNCHES, check_by_reference
from symlab.evidence.replay.rerun import SMALL_BYTES, in_order, rerun, with_data
from symlab.evidence.replay.rerun_results import Found
from tests.golden import refused, same_text
from tests.runner.conftest import BAD, GOOD
from tests.runner.found import LOAD, finding
from tests.symlab.evidence.audit.complete_set import asked

PUBLISHED = Path(__file__).parents[4] / "reports" / "published"
MIB = 1 << 20


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


KEPT = {}
"""Records that a usual run left, by its arguments."""


@pytest.fixture
def made(symlab, script, tmp_path):
    def make(*arguments):
        is_usual = not (script.outcomes or script.findings)
        if is_usual and arguments in KEPT:
            return KEPT[arguments]
        before = {*tmp_path.glob("records/*")}
        symlab(*arguments)
        records = read(sorted({*tmp_path.glob("records/*")} - before))
        return KEPT.setdefault(arguments, records) if is_usual else records

    return make


def edited(record, part="check", **changes):
    there = getattr(record, part)
    changed = {**there, **changes} if isinstance(there, dict) else replace(there, **changes)
    return replace(record, **{part: changed})


def with_sources(record, **changes):
    return edited(record, "environment", sources=source_digests(CONF.parent) | changes)


@cache
def published(algorithm, size_bytes, dtype="bfloat16"):
    name = "all_reduce" if algorithm in ("one_shot", "nccl") else "collectives"
    records = read([PUBLISHED / "h200-x2" / f"{name}-world1.jsonl.xz"])
    found = (one for one in records if one.case.algorithm == algorithm and one.case.size_bytes == size_bytes)
    return next(one for one in found if one.case.dtype == dtype and one.check is not None)


def ended(record, status, **changes):
    return replace(record, status=status, check=None, counters={}, reason="so it is said", **changes)


def by_commit(gives, reason=""):
    """Stands for the code of commits: what it gives to the first case."""
    return lambda records, say: Answers({0: gives} if gives else {}, {0: reason} if gives is None else {})


def scene(function):
    """A test of what is run again in some situations: the function yields each as its name and what came of it."""

    def test(made, again, script):
        said = "\n".join(told(name, found) for name, found in function(made, again, script))
        same_text(said, r"sha256:[0-9a-f]{20,}\.\.\.", r"conftest\.py:\d+", r"(?<=9\.9 there, )\S+(?= here)")

    return test


def told(name, found):
    lines = [f"{name}: {found.of} cases, {found.at_commit} at their commit, of {' '.join(found.kernels)}"]
    for part in fields(Found):
        for one in fields(tally := getattr(found.parts, part.name)):
            lines += [f"  {part.name} {one.name}: {' | '.join(row)}" for row in getattr(tally, one.name)]
    return "\n".join(lines)


@scene
def test_every_case_agrees_and_one_that_comes_out_wrong_here_differs(made, again, script):
    yield "right", again(made("sizes=[8,64]", "world_size=3"))
    assert all(world.closed for world in script.worlds), "no world is left open"
    records = made("sizes=[8]")
    script.outcomes["one_shot"] = BAD
    yield "wrong", again(records)


@scene
def test_an_edited_figure(made, again, script):
    first, *others = made("sizes=[8]")
    for changes in (
        *({"elements": 63}, {"max_absolute_error": 0.125}, {"max_ulp_error": 1}, {"rms_ulp_error": 0.5}),
        *({"method": "bytes"}, {"launches": 3}, {"ranks_equal_promised": False}),
    ):
        yield str(changes), again([edited(first, **changes), *others])


@scene
def test_an_edited_kernel(made, again, script):
    script.outcomes["one_shot"] = replace(GOOD, method="bitwise_fold")
    first, *_ = made("sizes=[8]")
    liar = edited(first, "kernel", code_digest="sha256:0")
    older = edited(liar, "kernel", source_digest="sha256:0")
    yield "the same sources", again([liar])
    yield "older sources, the same data", again([older])
    yield "older sources, other data", again([edited(older, max_ulp_error=3)])
    lied = edited(first, "kernel", source_digest="sha256:0", grid=99)
    yield "another digest of today's sources", again([with_sources(lied)])
    yield "of older ones", again([with_sources(lied, kernels="sha256:0")])


@scene
def test_the_reference_decides_where_no_order_enters_whatever_code_ran(made, again, script):
    """The record is right, by other code; what runs today is wrong."""
    record = published("bulk", 1024)
    script.outcomes["all_gather"] = replace(BAD, elements=record.check.elements)
    yield "right", again([record], up_to_bytes=MIB)
    yield "edited", again([edited(record, max_ulp_error=3)], up_to_bytes=MIB)


@scene
def test_a_bound_kept_in_the_simulator_needs_todays_simulator(made, again, script):
    first, *_ = made("sizes=[8]")
    bound = {"method": "bound", "bound": "a formula", "bound_value": 0.5, "bound_used": 0.25}
    record = with_sources(edited(first, **bound))
    script.outcomes["one_shot"] = replace(record.check, bound_used=0.5)
    yield "today's", again([record])
    yield "an older one", again([with_sources(record, simulator="sha256:0")])


@scene
def test_counters_are_compared_where_the_simulator_is_todays(made, again, script):
    first, *_ = made("sizes=[8]")
    here = with_sources(first)
    more = edited(here, "counters", instructions=1)
    yield "the same", again([here])
    yield "other orders", again([edited(here, "counters", race_orders=["fabric.schedule=priority fabric.seed=0"])])
    yield "others", again([more])
    yield "of an older one", again([with_sources(more, simulator="sha256:0")])


@scene
def test_at_the_commit_nothing_is_hidden_by_changed_sources(made, again, script):
    """Code, counters and data of an older record against what the code of its commit gave."""
    script.outcomes["one_shot"] = replace(GOOD, method="bitwise_fold")
    first, *_ = made("sizes=[8]")
    older = edited(with_sources(first, simulator="sha256:0"), "kernel", source_digest="sha256:0")
    for name, record in (
        ("honest", older),
        ("another grid", edited(older, "kernel", grid=99)),
        ("other sources", edited(older, "kernel", source_digest="sha256:1")),
        ("more launches", edited(older, launches=3)),
        ("a counter", edited(older, "counters", instructions=1)),
        ("another compiler", edited(older, "kernel", compiler="nvidia-cutlass-dsl 9.9", code_digest="sha256:1")),
    ):
        yield name, again([record], at_commit=True, ask=by_commit(older))
    right = edited(first, "kernel", source_digest="sha256:0", code_digest="sha256:0")
    worse = edited(right, max_ulp_error=3)
    yield "worse, not asked", again([worse])
    yield "worse, and so there", again([worse], at_commit=True, ask=by_commit(worse))
    yield "worse, and not there", again([worse], at_commit=True, ask=by_commit(right))


@scene
def test_what_the_commit_can_not_say_stays_stated_with_the_reason(made, again, script):
    first, *_ = made("sizes=[8]")
    older = edited(with_sources(first, simulator="sha256:0", kernels="sha256:0"), "kernel", source_digest="sha256:0")
    yield "no commit", again([older], at_commit=True, ask=by_commit(None, "git does not have it"))
    more = edited(edited(first, "environment", sources=None), "counters", instructions=1)
    yield "no digests of sources", again([more])
    yield "no digests, and git says they are today's", again([more], at_commit=True, ask=by_commit(None, ""))

    def never(*_):
        raise AssertionError("nothing has changed")

    yield "nothing has changed", again([with_sources(first)], at_commit=True, ask=never)


@scene
def test_worlds_of_one_case_count_once_and_each_is_compared(made, again, script):
    first, *_ = made("sizes=[8]")
    second = edited(first, "request", command="another")
    yield "alike", again([first, second])
    yield "one edited", again([first, edited(second, max_ulp_error=2)])


@scene
def test_without_a_check_a_configuration_or_a_kernel(made, again, script):
    first, second = made("sizes=[8]")
    unchecked = replace(second, check=None, reason="check was off")
    yield "check, configuration", again([edited(first, "request", configuration=None), unchecked])
    yield "kernel", again([replace(first, kernel=None)])


@scene
def test_records_of_gpus_are_compared_with_the_reference(made, again, script):
    record = published("one_shot", 262144)
    assert record.case.size_bytes > SMALL_BYTES
    yield "larger than wanted", again([record], up_to_bytes=1024)
    for changes in ({}, {"elements": record.check.elements - 1}, {"method": "bytes"}, {"rms_ulp_error": 0.5}):
        yield str(changes), again([edited(record, **changes)], up_to_bytes=MIB)
    library = published("nccl", 65536)
    for changes in ({}, {"elements": library.check.elements - 2}):
        yield f"a library {changes}", again([edited(library, **changes)], up_to_bytes=MIB)


@scene
def test_an_invented_bound_does_not_hide_errors_of_gpus(made, again, script):
    """The kernel promises each bit: a record of it that says a bound was kept does not count as recomputed."""
    invented = {"method": "bound", "bound": "x", "bound_value": 100.0, "bound_used": 0.9}
    errors = {"max_absolute_error": 90.0, "max_ulp_error": 99, "rms_ulp_error": 50.0}
    for algorithm in ("one_shot", "nccl"):
        yield algorithm, again([edited(published(algorithm, 262144), **invented, **errors)], up_to_bytes=MIB)


@scene
def test_a_case_that_passes_here_and_is_said_to_have_ended_otherwise(made, again, script):
    first, second = map(with_sources, made("sizes=[8]"))
    for status in (Status.REFUSED, Status.FAILED, Status.DEADLOCK):
        liar = ended(first, status, kernel=None if status is Status.REFUSED else first.kernel)
        yield str(status), again([liar, second])
        yield f"{status}, older", again([with_sources(liar, simulator="sha256:0")])
    yield "late", again([ended(first, Status.TIMEOUT)])
    on_gpus = edited(first, "fabric", name="nvshmem", simulated=False).fabric
    yield "on GPUs", again([ended(first, Status.REFUSED, kernel=None, fabric=on_gpus), second])


@scene
def test_a_case_that_breaks_here(made, again, script):
    passed, _ = map(with_sources, made("sizes=[8]"))
    script.outcomes["one_shot"] = RuntimeError("it breaks")
    yield "and passed there", again([passed], up_to_bytes=MIB)
    yield "and broke there", again([with_sources(one) for one in made("sizes=[8]") if one.status is Status.FAILED])


FORMAL = finding("formal", "an acquire")


@scene
def test_races_are_found_again(made, again, script):
    script.findings["one_shot"] = (FORMAL,)
    records = made("check.races=true", "sizes=[8]")
    first = records[0]
    yield "the same", again(records)
    yield "unchecked there", again([replace(one, findings=None) for one in records])
    code = {"source_digest": "sha256:other", "code_digest": "sha256:other"}
    yield "other code", again([edited(first, "kernel", **code)])
    unasked = {**first.request.configuration, "check": True}
    yield "unchecked here", again([edited(first, "request", configuration=unasked)])
    script.findings["one_shot"] = (replace(FORMAL, second=replace(LOAD, line=56)),)
    yield "others", again(records)


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


def test_a_deadline_of_a_record_does_not_hold_the_audit(made, script):
    records = made("sizes=[8]", "deadline_s=100000")
    tools = script.tools()
    asked = []

    def ran(world, contestant, request):
        asked.append(request.deadline_s)
        return GOOD

    means = replace(tools.means, ran=ran)
    rerun(records, Rerun(patience_s=None), lambda text: None, make=tools.make_world, means=means)
    assert asked == [60.0, 60.0]


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
    again([replace(edited(gpus, "request", configuration=asked), counters={})])
    assert script.worlds[-1].fabric.simulated
