"""Two sets of records: every verdict on data and on speed, what is missing, what differs, and the exit code."""

from __future__ import annotations

import dataclasses
import json

import pytest

from cases.record.record import CHECK_WAS_OFF, Check, Record, Status
from reports.table import sheet
from symlab.evidence.audit.comparison import FINDING, NOT_AUDITABLE, RUN_HERE, STATED, VERIFIED, compare
from symlab.evidence.audit.data import Data
from symlab.evidence.audit.differences import OLDER
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.statistics import Speed
from tests.reports.synthetic import KIB, MIB, refused, with_case
from tests.symlab.evidence.audit.invented_records import broken, check, in_turns, kernel, one, simulated, worlds, wrong

STEADY = (10.0, 10.01, 10.02, 9.99, 10.03)
SLOW = tuple(1.1 * us for us in STEADY)


def elsewhere(record: Record) -> Record:
    """The same, as another world gave it."""
    return dataclasses.replace(record, request=dataclasses.replace(record.request, command="another world"))


def data_of(before: Record, after: Record) -> tuple[Data, str]:
    (case,) = compare([before], [elsewhere(after)]).cases
    return case.data.data, case.data.remark


@pytest.mark.parametrize("method", ["bitwise", "bound"])
def test_a_world_is_not_compared_with_itself(method: str) -> None:
    record = one(check=check(method=method))
    found = compare([record], [record])
    assert found.cases[0].data.data is Data.NOT_COMPARABLE
    assert "the same world stands on both sides" in found.cases[0].data.remark
    assert found.exit_code == NOT_AUDITABLE


def test_the_same_bits_are_bit_equal() -> None:
    found = compare([one()], [one(world=1)])
    assert [case.data.data for case in found.cases] == [Data.BIT_EQUAL]
    assert found.exit_code == VERIFIED
    assert found.verdict == f"NO FINDING: data: 1 BIT-EQUAL; speed: 1 NOT COMPARABLE; {STATED}"


def test_other_bits_where_bits_are_promised_are_a_finding() -> None:
    found = compare([one()], [one(world=1, check=check("other"))])
    (case,) = found.cases
    assert case.data.data is Data.DIFFERENT
    assert case.data.remark.startswith("rank 0: ")
    assert case.data.remark.endswith("(different on 4 of 4 ranks)")
    assert found.exit_code == FINDING
    assert found.verdict.startswith("FINDING: data: 1 DIFFERENT; ")


def test_a_replay_says_that_only_one_side_ran_here() -> None:
    found = compare([one()], [one(world=1)], is_after_run_here=True)
    assert found.verdict == f"NO FINDING: data: 1 BIT-EQUAL; speed: 1 NOT COMPARABLE; {RUN_HERE}"


def test_a_single_rank_and_a_single_launch_count() -> None:
    rows = list(check().output_digests or ())
    rows[2] = (rows[2][0], check("other").output_digests[0][0])  # type: ignore[index]
    odd = check(
        output_digests=tuple(rows), launches_equal=False, launches_equal_promised=False, ranks_equal_promised=False
    )
    data, remark = data_of(one(), one(check=odd))
    assert data is Data.DIFFERENT
    assert remark.startswith("rank 2: ")
    assert remark.endswith("(different on 1 of 4 ranks)")


def test_other_bits_within_a_bound_are_within_the_bound() -> None:
    before, after = check(method="bound"), check("other", method="bound", bound_used=0.5)
    assert data_of(one(check=before), one(check=after)) == (
        Data.WITHIN_BOUND,
        "0.25 of the bound was used before, 0.5 after",
    )
    assert data_of(one(check=before), one(check=before)) == (Data.BIT_EQUAL, "")


def test_a_world_that_differs_among_worlds_is_seen() -> None:
    others = [one(world=1), one(world=2, check=check("other")), one(world=3)]
    assert compare([one()], others).cases[0].data.data is Data.DIFFERENT
    assert compare(others, [one()]).cases[0].data.data is Data.DIFFERENT


def old(record: Record) -> Record:
    assert record.check is not None
    return dataclasses.replace(
        record, schema=2, check=dataclasses.replace(record.check, input_digests=None, output_digests=None)
    )


def edge(bits: str = "right", method: str = "bitwise_fold") -> Record:
    made = one(check=check(bits, method=method))
    return with_case(made, inputs="edge")


@pytest.mark.parametrize(
    ("before", "after", "remark"),
    [
        (old(edge()), edge(), "both sides were verified; before no digests were recorded"),
        (edge(), old(edge()), "both sides were verified; after no digests were recorded"),
        (one(), refused("one_shot"), "after: REFUSED (no multicast: the (invented) fabric manager gave none); before"),
        (refused("one_shot"), one(), "before: REFUSED (no multicast: the (invented) fabric manager gave none)"),
        (refused("one_shot"), refused("one_shot"), "on both sides: REFUSED (no multicast"),
        (broken(Status.FAILED), broken(Status.FAILED), "on both sides: FAILED (an invented reason)"),
        (one(check=None, reason=CHECK_WAS_OFF), one(), "before: PASSED (check was off)"),
        (one(), one(check=None, reason=CHECK_WAS_OFF), "after: PASSED (check was off)"),
    ],
)
def test_what_is_not_comparable_has_its_reason(before: Record, after: Record, remark: str) -> None:
    data, says = data_of(before, after)
    assert data is Data.NOT_COMPARABLE
    assert says.startswith(remark.removesuffix("; before"))
    assert compare([before], [after]).exit_code == NOT_AUDITABLE


def test_the_bits_of_nan_are_not_promised() -> None:
    data, remark = data_of(edge("right", "bitwise_fold"), edge("other", "bitwise_fold"))
    assert (data, "the bits of NaN are not promised" in remark) == (Data.NOT_COMPARABLE, True)
    assert data_of(edge("right", "bytes"), edge("other", "bytes"))[0] is Data.DIFFERENT
    assert data_of(edge("right", "bitwise_fold"), edge("right", "bitwise_fold"))[0] is Data.BIT_EQUAL


def edged(record: Record) -> Record:
    return with_case(record, inputs="edge")


@pytest.mark.parametrize("method", ["bytes", "bitwise", "bitwise_fold"])
def test_without_digests_both_have_the_references_bits(method: str) -> None:
    new = one(check=check(method=method))
    for before, after in ((old(new), new), (new, old(new)), (old(new), old(new))):
        data, remark = data_of(before, after)
        assert data is Data.BIT_EQUAL
        assert remark.startswith("by the reference, whose bits both sides have: ")
    assert data_of(old(new), one(check=check(method="bound")))[0] is Data.NOT_COMPARABLE


def test_without_digests_a_bound_is_a_bound() -> None:
    new = one(check=check(method="bound"))
    data, remark = data_of(old(new), new)
    assert (data, remark) == (
        Data.WITHIN_BOUND,
        "unknown whether the bits are equal: before no digests were recorded",
    )


@pytest.mark.parametrize("status", [Status.FAILED, Status.DEADLOCK, Status.TIMEOUT])
def test_what_broke_after_is_a_finding(status: Status) -> None:
    found = compare([one()], [one(world=1), broken(status, world=2)])
    assert (found.cases[0].data.data, found.exit_code) == (Data.DIFFERENT, FINDING)
    assert f"after: {status} (an invented reason)" in found.cases[0].data.remark


def test_what_is_wrong_after_is_a_finding_even_where_it_was_wrong_before() -> None:
    assert compare([one()], [wrong()]).exit_code == FINDING
    assert compare([wrong()], [wrong()]).exit_code == FINDING
    assert compare([wrong()], [one()]).exit_code == NOT_AUDITABLE


def test_the_verdict_counts_what_was_wrong_before() -> None:
    found = compare([wrong(), one(size_bytes=MIB)], [one(world=1), one(size_bytes=MIB, world=1)])
    assert found.exit_code == VERIFIED
    assert found.verdict.endswith(f"; wrong before: 1 case; {STATED}")
    assert compare([one(), one(size_bytes=MIB)], [wrong(world=1), one(size_bytes=MIB, world=1)]).exit_code == FINDING


def test_a_world_before_that_was_no_good_is_named() -> None:
    (case,) = compare([one(), broken(Status.FAILED, world=1)], [one(world=2)]).cases
    assert case.data.data is Data.BIT_EQUAL
    assert case.data.remark == "1 of 2 worlds before: FAILED (an invented reason)"


@pytest.mark.parametrize(
    ("after", "speed", "code"),
    [(STEADY, Speed.SAME, 0), (SLOW, Speed.SLOWER, 1), (tuple(0.9 * us for us in STEADY), Speed.FASTER, 1)],
)
def test_speed(after: tuple[float, ...], speed: Speed, code: int) -> None:
    found = compare(*in_turns(STEADY, after))
    (case,) = found.cases
    assert (case.speed.speed, case.speed.worlds) == (speed, (5, 5))
    assert found.exit_code == code
    assert f"speed: 1 {speed}" in found.verdict


def test_blocks_apart_in_time_are_at_most_outside() -> None:
    for after, speed, code in ((STEADY, Speed.INSIDE, VERIFIED), (SLOW, Speed.OUTSIDE, FINDING)):
        found = compare(worlds(STEADY), worlds(after, first=5))
        (case,) = found.cases
        assert (case.speed.speed, case.speed.p, case.speed.low) == (speed, None, None)
        assert case.speed.advice.startswith("apart in time: ")
        assert found.exit_code == code
        assert "speed: apart in time" in sheet.text(found.sheets, found.captions)


def test_a_launchs_own_order_counts_not_that_of_the_records() -> None:
    before, after = in_turns(STEADY, SLOW)
    (forward,), (backward,) = (compare(*sides).cases for sides in ((before, after), (before[::-1], after[::-1])))
    assert forward.speed == backward.speed
    assert forward.speed.speed is Speed.SLOWER


def test_the_verdict_begins_with_what_was_not_compared() -> None:
    others = refused("one_shot", 2 * MIB), one(size_bytes=MIB)
    found = compare([one(), others[0]], [one(world=1), others[0], others[1]], not_run=[("gone", "an invented reason")])
    assert found.not_compared == 3
    assert found.verdict.startswith(
        "NO FINDING IN WHAT WAS COMPARED: 3 of 4 cases not compared; data: 1 BIT-EQUAL, 1 NOT COMPARABLE; "
    )
    assert "not compared" not in compare([one()], [one(world=1)]).verdict


def test_other_inputs_from_the_same_seed_are_a_finding() -> None:
    found = compare([one()], [one(world=1, check=check(given="other"))])
    assert found.cases[0].data.data is Data.DIFFERENT
    assert found.cases[0].data.remark.startswith("other inputs from the same seed: rank 0: ")
    assert found.exit_code == FINDING


FASTER = tuple(0.9 * us for us in STEADY)


@pytest.mark.parametrize(
    ("after_us", "bits", "codes"),
    [
        (STEADY, "right", {"any": 0, "slower": 0, "different": 0}),
        (SLOW, "right", {"any": 1, "slower": 1, "different": 0}),
        (FASTER, "right", {"any": 1, "slower": 0, "different": 0}),
        (STEADY, "other", {"any": 1, "slower": 0, "different": 1}),
        (SLOW, "other", {"any": 1, "slower": 1, "different": 1}),
        (FASTER, "other", {"any": 1, "slower": 0, "different": 1}),
    ],
)
def test_a_gate_decides_the_exit_code_alone(after_us: tuple[float, ...], bits: str, codes: dict[str, int]) -> None:
    before, after = in_turns(STEADY, after_us)
    after = [dataclasses.replace(record, check=check(bits)) for record in after]
    for gate, code in codes.items():
        found = compare(before, after, gate=Gate(gate))
        assert (gate, found.exit_code) == (gate, code)
        assert found.outcome == codes["any"], "the verdict names what is found, whatever the gate"
        says = {0: "passed", 1: "failed"}[code]
        assert found.verdict.endswith(f"; gate {gate}: {says}") == (gate != "any")


def test_a_gate_without_anything_to_decide_it_does_not_pass() -> None:
    untimed = compare([one()], [one(world=1)], gate=Gate.SLOWER)
    assert (untimed.exit_code, untimed.outcome) == (NOT_AUDITABLE, VERIFIED)
    assert untimed.verdict.endswith("; gate slower: nothing to decide it")
    blocks = compare(worlds(STEADY), worlds(SLOW, first=5), gate=Gate.SLOWER)
    assert blocks.exit_code == FINDING, "OUTSIDE on the slow side"
    missing = compare([one(), one(size_bytes=MIB)], [one(world=1)], gate=Gate.DIFFERENT)
    assert missing.exit_code == FINDING
    assert compare([one(), one(size_bytes=MIB)], [one(world=1)], gate=Gate.SLOWER).exit_code == NOT_AUDITABLE


def test_the_recorded_code_in_turns_is_what_speed_is_judged_by() -> None:
    recorded = [
        one(world=at, us=us, request={"command": f"recorded{at}"}, started="2025-12-01T00:00:00Z")
        for at, us in enumerate(STEADY)
    ]
    again, today = in_turns(SLOW, SLOW)
    found = compare(recorded, today, in_turns=again)
    (case,) = found.cases
    assert (case.speed.speed, case.speed.worlds) == (Speed.SAME, (5, 5))
    assert case.recorded is not None
    assert case.recorded.speed is Speed.OUTSIDE, "code is as quick, but the machine is not what it was"
    assert found.exit_code == FINDING
    assert "against the recorded times, apart in time: 1 OUTSIDE" in found.verdict
    document = found.document()["cases"][0]
    assert document["against_recorded"]["speed"] == "OUTSIDE"
    assert len(document["against_recorded"]["recorded_us"]) == len(document["before_us"]) == 5
    assert "the recorded times: OUTSIDE, ratio 1.1" in sheet.text(found.sheets, found.captions)
    assert compare(recorded, today, in_turns=again, gate=Gate.SLOWER).exit_code == VERIFIED
    untimed = [dataclasses.replace(record, timing=None) for record in again]
    (case,) = compare(recorded, today, in_turns=untimed).cases
    assert (case.speed.speed, case.recorded) == (Speed.OUTSIDE, None)
    assert case.speed.advice.startswith("apart in time")


def test_recorded_code_that_gives_other_bits_today_is_a_finding() -> None:
    again, today = in_turns(STEADY, STEADY, check=check("other"))
    recorded = [one(us=10.0, request={"command": "recorded"}, started="2025-12-01T00:00:00Z")]
    assert compare(recorded, today, in_turns=again).cases[0].data.data is Data.DIFFERENT


def test_two_modes_among_worlds_are_named() -> None:
    quick = tuple(10 + 0.01 * step for step in range(6))
    two_modes = tuple(us * (1.2 if index % 2 else 1) for index, us in enumerate(quick * 2))
    found, steady = (compare(*in_turns(times, times)) for times in (two_modes, quick))
    (case,) = found.cases
    text = sheet.text(found.sheets, found.captions)
    assert "bimodal before: 10.02 us (6 of 12 worlds) and 12.04 us (6)" in text
    assert "bimodal" not in sheet.text(steady.sheets, steady.captions)
    assert case.speed.lag1 is not None
    assert f"{case.speed.lag1:+.2f}" in text


def test_few_worlds_are_inside_or_outside() -> None:
    assert compare(worlds(STEADY[:2]), worlds(STEADY[:2], first=5)).cases[0].speed.speed is Speed.INSIDE
    found = compare(worlds(STEADY[:2]), worlds(SLOW[:2], first=5))
    assert (found.cases[0].speed.speed, found.exit_code) == (Speed.OUTSIDE, FINDING)
    assert compare(worlds(STEADY[:2]), worlds(SLOW[:2], first=5), band=0.2).exit_code == VERIFIED


def test_inconclusive_is_named_and_no_finding() -> None:
    noisy = (8.0, 12.0, 9.0, 11.5, 10.0)
    found = compare(*in_turns(noisy, tuple(reversed(noisy))))
    assert found.verdict == f"NOT AUDITABLE: data: 1 BIT-EQUAL; speed: 1 INCONCLUSIVE; {STATED}"
    assert found.exit_code == NOT_AUDITABLE, "no speed was verified"
    steady, unsteady = in_turns(STEADY, STEADY, size_bytes=2 * KIB), in_turns(noisy, tuple(reversed(noisy)))
    found = compare([*unsteady[0], *steady[0]], [*unsteady[1], *steady[1]])
    assert found.verdict == f"NO FINDING: data: 2 BIT-EQUAL; speed: 1 SAME, 1 INCONCLUSIVE; {STATED}"
    without = [[edged(old(record)) for record in side] for side in unsteady]
    assert compare(*without).exit_code == NOT_AUDITABLE


def test_holm_is_over_all_cases_of_the_comparison() -> None:
    sizes = [KIB << power for power in range(10)]
    each = [in_turns(STEADY, SLOW, size_bytes=size) for size in sizes]
    before, after = ([record for pair in each for record in pair[side]] for side in (0, 1))
    assert {case.speed.speed for case in compare(before, after).cases} == {Speed.OUTSIDE}
    assert compare(before[:5], after[:5]).cases[0].speed.speed is Speed.SLOWER


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([simulated(one())], worlds(STEADY), "simulated before: there is no clock of real hardware"),
        (worlds(STEADY), [simulated(one())], "simulated after: there is no clock of real hardware"),
        ([one()], worlds(STEADY), "no timing before"),
        (worlds(STEADY), worlds(STEADY), "the same world stands on both sides (command0): nothing was measured again"),
        (
            worlds(STEADY),
            worlds(STEADY, first=5, timing={"mode": "eager"}),
            "other setup: graph, window kernel, L2 rotate, 20 calls a sample over 20 slots before, eager, window",
        ),
        (
            worlds(STEADY),
            worlds(STEADY, first=5, timing={"calls_per_sample": 7}),
            "other setup: graph, window kernel, L2 rotate, 20 calls a sample over 20 slots before, graph",
        ),
        (
            worlds(STEADY),
            worlds(STEADY, first=5, environment={"gpus": [{"model": "Other GPU"}]}),
            "other GPUs: Invented GPU before, Other GPU after",
        ),
    ],
)
def test_times_that_do_not_measure_the_same_thing(before: list[Record], after: list[Record], reason: str) -> None:
    (case,) = compare(before, after).cases
    assert case.speed.speed is Speed.NOT_COMPARABLE
    assert case.speed.advice.startswith(reason)


def test_ways_of_timing_are_cases_of_their_own_where_there_are_several() -> None:
    def both(first: int, eager_us: float) -> list[Record]:
        eager = worlds((eager_us,), first=first, timing={"mode": "eager"})
        return [*worlds((10.0,), first=first), *eager]

    found = compare(both(0, 20.0), both(5, 30.0))
    assert [case.speed.speed for case in found.cases] == [Speed.INSIDE, Speed.OUTSIDE]
    lonely = compare(both(0, 20.0), worlds((10.0,), first=5))
    assert ([case.speed.speed for case in lonely.cases], len(lonely.only_before)) == ([Speed.INSIDE], 1)


def test_what_is_missing_after_is_a_finding_and_what_is_new_is_named() -> None:
    extra, never = one(size_bytes=MIB), refused("one_shot", 2 * MIB)
    found = compare([one(), extra, never], [one(world=1)])
    assert found.exit_code == FINDING
    assert found.verdict.endswith(f"; missing after: 1 case that passed before; only before: 1 other case; {STATED}")
    text = sheet.text(found.sheets, found.captions)
    assert extra.id in text
    assert never.id in text
    new = compare([one()], [one(world=1), extra])
    assert new.exit_code == VERIFIED
    assert new.verdict.endswith(f"; only after: 1 case; {STATED}")
    assert extra.id in sheet.text(new.sheets, new.captions)


def test_sets_without_a_common_case_are_not_auditable() -> None:
    found = compare([one()], [one(size_bytes=MIB)])
    assert found.exit_code == NOT_AUDITABLE
    assert found.verdict.endswith("the two sets have no case in common")


def test_what_differs_is_listed() -> None:
    environment = {
        "git": {"commit": "f" * 40, "dirty": True},
        "packages": {"torch": "2.13.0"},
        "gpus": [{"model": "Invented GPU", "driver": "2"}],
        "capture_s": 0.5,
    }
    after = one(world=1, environment=environment, kernel=kernel(version="2"))
    found = {line.what: (line.before, line.after) for line in compare([one()], [after]).differences}
    assert found["git.commit"] == (("0123456789abcdef",), ("f" * 40,))
    assert found["git.dirty"] == (("false",), ("true",))
    assert found["packages.torch"] == ((), ("2.13.0",))
    assert found["gpus.driver"] == ((), ("2",))
    assert "gpus.model" not in found
    assert "capture_s" not in found
    assert {"kernel all_reduce/one_shot.sources", "kernel all_reduce/one_shot.PTX (1 case)"} <= set(found)
    assert list(found)[:2] == ["git.commit", "git.dirty"]
    text = sheet.text(compare([one()], [after]).sheets, ())
    assert "ffffffffffff.." in text
    assert "f" * 40 not in text


@pytest.mark.parametrize(
    ("codes", "ptx", "sources", "expected"),
    [
        (("1", "1"), ("1", "2"), ("1", "2"), {"sources"}),  # lines moved: PTX and cubin differ in nothing else
        (("1", "2"), ("1", "2"), ("1", "2"), {"sources", "code", "cubin"}),
        (("1", "1"), ("1", "1"), ("1", "1"), {"cubin"}),  # another assembler
        (("", "1"), ("1", "2"), ("1", "2"), {"sources", f"PTX{OLDER}", f"cubin{OLDER}"}),
        (("", "1"), ("1", "2"), ("1", "1"), {"PTX", "cubin"}),
        (("", "1"), ("1", "1"), ("1", "1"), {"cubin"}),
        (("", ""), ("1", "2"), ("1", "2"), {"sources", "PTX", "cubin"}),
    ],
)
def test_code_is_compared_where_both_sides_have_it(
    codes: tuple[str, str], ptx: tuple[str, str], sources: tuple[str, str], expected: set[str]
) -> None:
    sides = []
    for at in (0, 1):
        digests = {"ptx_digest": ptx[at], "source_digest": sources[at], "code_digest": codes[at] or None}
        sides.append(one(kernel=dataclasses.replace(kernel(), **digests, cubin_digest=str(at))))
    found = [line.what for line in compare(sides[:1], sides[1:]).differences]
    assert {what.removeprefix("kernel all_reduce/one_shot.").removesuffix(" (1 case)") for what in found} == expected


def test_configuration_and_fabric_differ() -> None:
    asked = {"command": "other", "configuration": {"seed": 1, "records": "elsewhere", "timing": {"mode": "graph"}}}
    found = {one.what for one in compare([one()], [simulated(one(request=asked))]).differences}
    assert {"configuration.seed", "configuration.accumulator", "fabric.name", "fabric.multicast"} <= found
    assert "configuration.records" not in found


def test_nothing_that_differs_is_said() -> None:
    found = compare([one()], [one(world=1)])
    assert found.differences == ()
    assert "nothing differs" in found.captions[-1]


def test_the_document_is_json_and_holds_everything() -> None:
    sides = in_turns(STEADY, SLOW)
    before = [*sides[0], one(size_bytes=MIB), simulated(one(size_bytes=2 * MIB))]
    found = compare(before, [*sides[1], one(size_bytes=4 * MIB), simulated(one(size_bytes=2 * MIB, world=5))])
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["exit_code"] == 1
    assert document["verdict"] == found.verdict
    slow, other = document["cases"]
    assert (slow["speed"], slow["worlds"], slow["finding"]) == ("SLOWER", [5, 5], True)
    assert slow["before_us"]["command0"] == 10.0
    assert slow["order"] == "ABBAABBAAB"
    assert (document["not_compared"], document["gate"]) == (2, "any")
    assert slow["ratio"] == pytest.approx(1.1, rel=1e-3)
    assert (other["speed"], other["ratio"], other["data"]) == ("NOT COMPARABLE", None, "BIT-EQUAL")
    assert [one["statuses"] for one in document["only_before"] + document["only_after"]] == [["PASSED"], ["PASSED"]]
    assert document["band"] == 0.02


def test_the_table() -> None:
    sides = in_turns(STEADY, SLOW)
    found = compare([*sides[0], one("nccl", MIB)], [*sides[1], one("nccl", MIB, world=5)])
    lines = sheet.text(found.sheets, found.captions).splitlines()
    assert lines[0] == "all_reduce bfloat16, accumulator float32, sum, 4 ranks, normal inputs"
    slow = next(line for line in lines if line.strip().startswith("one_shot"))
    assert "BIT-EQUAL" in slow
    assert " SLOWER " in slow
    assert "5 and 5" in slow
    assert " 1.1000 " in slow
    assert any(line.startswith("[1] speed: no timing before") for line in lines)
    without = compare([one()], [one(world=1)])
    assert "ratio" not in without.sheets[0].columns


def test_a_band_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="band"):
        compare([one()], [one()], band=0)


def test_checks_of_before_and_after_may_have_other_numbers_of_launches() -> None:
    rows = tuple(row * 2 for row in (check().output_digests or ()))
    more = Check(
        **{
            **{f.name: getattr(check(), f.name) for f in dataclasses.fields(Check)},
            "output_digests": rows,
            "launches": 4,
        }
    )
    assert data_of(one(), one(check=more)) == (Data.BIT_EQUAL, "")


def test_architectures_are_cases_of_their_own() -> None:
    def both(bits: str) -> list[Record]:
        made = one(check=check(bits))
        assert made.fabric is not None
        assert made.kernel is not None
        other = dataclasses.replace(
            made,
            fabric=dataclasses.replace(made.fabric, arch="sm_100a"),
            kernel=dataclasses.replace(made.kernel, arch="sm_100a"),
            check=check("of sm_100a"),
        )
        return [made, other]

    def found(bits: str) -> list[Data]:
        return [case.data.data for case in compare(both("right"), list(map(elsewhere, both(bits)))).cases]

    assert found("right") == [Data.BIT_EQUAL] * 2
    assert found("other") == [Data.DIFFERENT, Data.BIT_EQUAL]
