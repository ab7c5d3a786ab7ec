"""Two sets of records: every verdict on data and on speed, what is missing, what differs, and the exit code."""

import dataclasses

import pytest

from cases.record.record import CHECK_WAS_OFF, Status
from reports.table import sheet
from symlab.evidence.audit.comparison import compare
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.result import as_json
from symlab.evidence.audit.statistics import Speed
from tests.golden import same_text
from tests.reports.synthetic import KIB, MIB, refused, with_case
from tests.symlab.evidence.audit.invented_records import broken, check, in_turns, kernel, one, simulated, worlds, wrong

STEADY = (10.0, 10.01, 10.02, 9.99, 10.03)
SLOW = tuple(1.1 * us for us in STEADY)


def elsewhere(record, world):
    """The same, as another world gave it."""
    return dataclasses.replace(record, request=dataclasses.replace(record.request, command=world))


def old(record):
    return dataclasses.replace(
        record, schema=2, check=dataclasses.replace(record.check, input_digests=None, output_digests=None)
    )


def edge(bits="right", method="bitwise_fold", **changes):
    return with_case(one(check=check(bits, method=method), **changes), inputs="edge")


def of_one_launch(**changes):
    """Other bits of one launch of one rank."""
    rows = list(check().output_digests or ())
    rows[2] = (rows[2][0], check("other").output_digests[0][0])
    promised = {"launches_equal": False, "launches_equal_promised": False, "ranks_equal_promised": False}
    return check(output_digests=tuple(rows), **promised)


def of_sm_100a(bits):
    made = one(check=check(bits))
    assert made.fabric is not None
    assert made.kernel is not None
    fabric, code = (dataclasses.replace(part, arch="sm_100a") for part in (made.fabric, made.kernel))
    return dataclasses.replace(made, fabric=fabric, kernel=code, check=check("of sm_100a"))


def bound(bits="right", **changes):
    return one(check=check(bits, method="bound", **changes))


FASTER = tuple(0.9 * us for us in STEADY)
NOISY = (8.0, 12.0, 9.0, 11.5, 10.0)
FOUR_LAUNCHES = check(output_digests=tuple(row * 2 for row in check().output_digests or ()), launches=4)
OFF = one(check=None, reason=CHECK_WAS_OFF)

DATA = {
    "the same bits": ([one()], [one()]),
    "other bits": ([one()], [one(check=check("other"))]),
    "of one launch of one rank": ([one()], [one(check=of_one_launch())]),
    "within a bound": ([bound()], [bound("other", bound_used=0.5)]),
    "the same within a bound": ([bound()], [bound()]),
    "one world of three after": ([one()], [one(world=1), one(world=2, check=check("other")), one(world=3)]),
    "one world of three before": ([one(world=1), one(world=2, check=check("other")), one(world=3)], [one()]),
    "no digests before, of edge values": ([old(edge())], [edge()]),
    "no digests after, of edge values": ([edge()], [old(edge())]),
    "no digests before": ([old(one())], [one()]),
    "no digests after, bytes": ([one(check=check(method="bytes"))], [old(one(check=check(method="bytes")))]),
    "no digests, folds": ([old(one(check=check(method="bitwise_fold")))],) * 2,
    "no digests, another method": ([old(one())], [bound()]),
    "no digests, a bound": ([old(bound())], [bound()]),
    "refused after": ([one()], [refused("one_shot")]),
    "refused before": ([refused("one_shot")], [one()]),
    "refused twice": ([refused("one_shot")], [refused("one_shot")]),
    "failed twice": ([broken(Status.FAILED)], [broken(Status.FAILED)]),
    "unchecked before": ([OFF], [one()]),
    "unchecked after": ([one()], [OFF]),
    "bits of NaN": ([edge()], [edge("other")]),
    "bytes of NaN": ([edge(method="bytes")], [edge("other", "bytes")]),
    "the same bits of NaN": ([edge()], [edge()]),
    "failed after": ([one()], [one(world=1), broken(Status.FAILED, world=2)]),
    "deadlock after": ([one()], [one(world=1), broken(Status.DEADLOCK, world=2)]),
    "timed out after": ([one()], [broken(Status.TIMEOUT)]),
    "wrong after": ([one()], [wrong()]),
    "wrong twice": ([wrong()], [wrong()]),
    "wrong before": ([wrong(), one(size_bytes=MIB)], [one(), one(size_bytes=MIB)]),
    "a bad world before": ([one(), broken(Status.FAILED, world=1)], [one(world=2)]),
    "other inputs": ([one()], [one(check=check(given="other"))]),
    "more launches": ([one()], [one(check=FOUR_LAUNCHES)]),
    "two architectures": ([one(), of_sm_100a("right")], [one(check=check("other")), of_sm_100a("right")]),
    "no common case": ([one()], [one(size_bytes=MIB)]),
    "missing after": ([one(), one(size_bytes=MIB), refused("one_shot", 2 * MIB)], [one()]),
    "new after": ([one()], [one(), one(size_bytes=MIB)]),
}

TIMES = {
    "the same": in_turns(STEADY, STEADY),
    "slower": in_turns(STEADY, SLOW),
    "faster": in_turns(STEADY, FASTER),
    "noisy": in_turns(NOISY, tuple(reversed(NOISY))),
    "blocks": (worlds(STEADY), worlds(STEADY, first=5)),
    "slower blocks": (worlds(STEADY), worlds(SLOW, first=5)),
    "two worlds": (worlds(STEADY[:2]), worlds(STEADY[:2], first=5)),
    "two slower worlds": (worlds(STEADY[:2]), worlds(SLOW[:2], first=5)),
    "one world on both sides": (worlds(STEADY), worlds(STEADY)),
    "untimed on both sides": ([one()], [one()]),
    "simulated before": ([simulated(one())], worlds(STEADY)),
    "simulated after": (worlds(STEADY), [simulated(one())]),
    "untimed before": ([one()], worlds(STEADY)),
    "another mode": (worlds(STEADY), worlds(STEADY, first=5, timing={"mode": "eager"})),
    "other calls": (worlds(STEADY), worlds(STEADY, first=5, timing={"calls_per_sample": 7})),
    "other GPUs": (worlds(STEADY), worlds(STEADY, first=5, environment={"gpus": [{"model": "Other GPU"}]})),
}


def said(found):
    """The exit code, the verdict, and what is said of each case."""
    lines = [f"{found.exit_code}: {found.verdict}"]
    for case in found.cases:
        speed = case.speed
        lines.append(f"  {case.data.data}: {case.data.remark}; {speed.speed} {speed.worlds}: {speed.advice}")
    return "\n".join(lines)


def test_what_is_said_of_data():
    """Wherever both sides are of one world, nothing was run again."""
    told = []
    for name, (before, after) in DATA.items():
        others = [elsewhere(record, f"after{number}") for number, record in enumerate(after)]
        told.append(f"{name}\n{said(compare(before, others))}")
    told += [f"itself\n{said(compare([record], [record]))}" for record in (one(), bound())]
    same_text("\n".join(told))


def test_what_is_said_of_times():
    told = [f"{name}\n{said(compare(before, after))}" for name, (before, after) in TIMES.items()]
    wide = compare(worlds(STEADY[:2]), worlds(SLOW[:2], first=5), band=0.2)
    here = compare(*TIMES["the same"], is_after_run_here=True)
    same_text("\n".join([*told, f"a wide band\n{said(wide)}", f"run here\n{said(here)}"]))


def test_a_gate_decides_the_exit_code_alone():
    """The verdict names what is found, whatever the gate."""
    told = []
    for after_us in (STEADY, SLOW, FASTER):
        before, after = in_turns(STEADY, after_us)
        sides = {"": (before, after)}
        sides["other bits, "] = before, [dataclasses.replace(record, check=check("other")) for record in after]
        told += [(f"{bits}{after_us[0]:g}", *both) for bits, both in sides.items()]
    told.append(("untimed", [one()], [one(world=1)]))
    told.append(("slower blocks", *TIMES["slower blocks"]))
    told.append(("missing after", [one(), one(size_bytes=MIB)], [one(world=1)]))
    same_text(
        "\n".join(f"{name}, {gate}: {gated(before, after, gate)}" for name, before, after in told for gate in Gate)
    )


def gated(before, after, gate):
    found = compare(before, after, gate=gate)
    return f"{found.exit_code}, {found.outcome}: {found.verdict}"


OTHER_PLACE = {
    "git": {"commit": "f" * 40, "dirty": True},
    "packages": {"torch": "2.13.0"},
    "gpus": [{"model": "Invented GPU", "driver": "2"}],
    "capture_s": 0.5,
}
OTHER_REQUEST = {"command": "other", "configuration": {"seed": 1, "records": "elsewhere", "timing": {"mode": "graph"}}}


def joined(*sets):
    """Two sides, each of all sets' records of that side."""
    return tuple([record for pair in sets for record in pair[side]] for side in (0, 1))


SHOWN = {
    "of every kind": joined(
        in_turns(STEADY, SLOW),
        ([one(size_bytes=MIB)], [one(size_bytes=4 * MIB)]),
        ([simulated(one(size_bytes=2 * MIB))], [simulated(one(size_bytes=2 * MIB, world=5))]),
    ),
    "an untimed library": joined(in_turns(STEADY, SLOW), ([one("nccl", MIB)], [one("nccl", MIB, world=5)])),
    "untimed": ([one()], [one(world=1)]),
    "one inconclusive": joined(TIMES["noisy"], in_turns(STEADY, STEADY, size_bytes=2 * KIB)),
    "without data": tuple([with_case(old(one), inputs="edge") for one in side] for side in TIMES["noisy"]),
    "missing and never run": ([one(), one(size_bytes=MIB), refused("one_shot", 2 * MIB)], [one(world=1)]),
    "another place": ([one()], [one(world=1, environment=OTHER_PLACE, kernel=kernel(version="2"))]),
    "another request": ([one()], [simulated(one(request=OTHER_REQUEST))]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(name):
    found = compare(*SHOWN[name], not_run=[("gone", "an invented reason")] if name == "untimed" else ())
    same_text("\n".join([found.verdict, str(found.not_compared), sheet.text(found.sheets, found.captions)]))


def test_the_document_is_json_and_holds_everything():
    found = compare(*SHOWN["of every kind"])
    same_text(as_json(found))


def test_a_launchs_own_order_counts_not_that_of_the_records():
    before, after = in_turns(STEADY, SLOW)
    (forward,), (backward,) = (compare(*sides).cases for sides in ((before, after), (before[::-1], after[::-1])))
    assert forward.speed == backward.speed
    assert forward.speed.speed is Speed.SLOWER


def test_the_recorded_code_in_turns_is_what_speed_is_judged_by():
    """Where the code as recorded gives other bits today, that is a finding."""
    recorded = [elsewhere(one(us=us), f"recorded{at}") for at, us in enumerate(STEADY)]
    again, today = in_turns(SLOW, SLOW)
    other_bits = [dataclasses.replace(record, check=check("other")) for record in again]
    untimed = [dataclasses.replace(record, timing=None) for record in again]
    told = []
    for name, turns in {"as quick": again, "other bits": other_bits, "untimed": untimed}.items():
        found, slower = (compare(recorded, today, in_turns=turns, gate=gate) for gate in (Gate.ANY, Gate.SLOWER))
        told += [name, said(found), f"{slower.exit_code}: {slower.verdict}"]
        told.append(sheet.text(found.sheets, found.captions))
    same_text("\n".join(told))


def test_holm_is_over_all_cases_of_the_comparison():
    sizes = [KIB << power for power in range(10)]
    each = [in_turns(STEADY, SLOW, size_bytes=size) for size in sizes]
    before, after = ([record for pair in each for record in pair[side]] for side in (0, 1))
    assert {case.speed.speed for case in compare(before, after).cases} == {Speed.OUTSIDE}
    assert compare(before[:5], after[:5]).cases[0].speed.speed is Speed.SLOWER


def test_ways_of_timing_are_cases_of_their_own_where_there_are_several():
    def both(first, eager_us):
        eager = worlds((eager_us,), first=first, timing={"mode": "eager"})
        return [*worlds((10.0,), first=first), *eager]

    found = compare(both(0, 20.0), both(5, 30.0))
    assert [case.speed.speed for case in found.cases] == [Speed.INSIDE, Speed.OUTSIDE]
    lonely = compare(both(0, 20.0), worlds((10.0,), first=5))
    assert ([case.speed.speed for case in lonely.cases], len(lonely.only_before)) == ([Speed.INSIDE], 1)


@pytest.mark.parametrize(
    ("codes", "ptx", "sources", "expected"),
    [
        (("1", "1"), ("1", "2"), ("1", "2"), {"sources"}),  # lines moved: PTX and cubin differ in nothing else
        (("1", "2"), ("1", "2"), ("1", "2"), {"sources", "code", "cubin"}),
        (("1", "1"), ("1", "1"), ("1", "1"), {"cubin"}),  # another assembler
        (("", "1"), ("1", "2"), ("1", "1"), {"PTX", "cubin"}),
        (("", "1"), ("1", "1"), ("1", "1"), {"cubin"}),
        (("", ""), ("1", "2"), ("1", "2"), {"sources", "PTX", "cubin"}),
    ],
)
def test_code_is_compared_where_both_sides_have_it(codes, ptx, sources, expected):
    sides = []
    for at in (0, 1):
        digests = {"ptx_digest": ptx[at], "source_digest": sources[at], "code_digest": codes[at] or None}
        sides.append(one(kernel=dataclasses.replace(kernel(), **digests, cubin_digest=str(at))))
    found = [line.what for line in compare(sides[:1], sides[1:]).differences]
    assert {what.removeprefix("kernel all_reduce/one_shot.").removesuffix(" (1 case)") for what in found} == expected
