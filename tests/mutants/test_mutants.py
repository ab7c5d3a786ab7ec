"""Mutants: what is weakened and how, that they run, how arguments work; and that each mutant is found or argued."""

import json
import re

import pytest

from kernels import catalogue
from simulator.ptx.assembler import assembled, find_ptxas
from tests.museum.exhibit import ARCH
from tests.mutants.__main__ import main
from tests.mutants.arguments import PLACE, arguments
from tests.mutants.matmul_runs import MATMULS
from tests.mutants.mutant_runs import CHECKED_ROWS, FAIR, OWN, ROWS, Compiled, Try
from tests.mutants.recorded import Recorded, code_digest, recorded, try_of
from tests.mutants.searching import NAMES, TABLE, again, compiled_kernel, gaps, page, results, table, told
from tests.rooms import needs

SAMPLE = ("all_reduce/one_shot", "barrier/multimem")
"""Kernels that run, as they are and as mutants, in the fast tests: flags of peers, and of the switch."""

PTX = """
.file 1 "kernels/dsl/rank_barriers.py"
.loc 1 1 5
st.release.sys.global.u32 [%rd1], %r1;
@%p1 ld.acquire.gpu.global.u32 %r2, [%rd1];
ld.global.u32 %r2, [%rd1];
atom.acq_rel.cta.global.add.u32 %r2, [%rd1], 1;
red.release.sys.global.add.u32 [%rd1], 1;
multimem.ld_reduce.relaxed.sys.global.add.u32 %r2, [%rd1];
fence.acq_rel.sys;
fence.proxy.alias;
fence.proxy.async.shared::cta;
bar.sync 0;
@%p2 barrier.sync.aligned 1, 64;
bar.warp.sync 3;
cp.async.bulk.wait_group.read 0;
cp.async.bulk.commit_group;
st.release.sys.global.u32 [%rd2], %r1;
"""


def test_a_place_is_the_text_of_the_source_line():
    (flag, *_) = [one for one in Compiled(OWN[SAMPLE[0]]).mutants if one.opcode.startswith("st.release")]
    assert flag.place == "rank_barriers.py `device.signal(mine, epoch, order)`"


def test_all_of_our_kernels_have_mutants():
    assert set(OWN) == {spec.name for spec in catalogue.SPECS}
    assert len(OWN) == 49  # as the page says
    for name in SAMPLE:
        changes = {one.change for one in Compiled(OWN[name]).mutants}
        assert changes == {"release to relaxed", "acquire to relaxed", "sys to gpu", "dropped"}


@pytest.mark.parametrize("name", SAMPLE)
def test_the_assembler_takes_every_mutant(name):
    """They are programs that a GPU would run. The kernels say a version of PTX that older assemblers do not know."""
    ptxas = find_ptxas()
    if ptxas is None:
        pytest.skip("ptxas is not installed")
    compiled = Compiled(OWN[name])
    one_of_each = {(one.opcode, one.change): one for one in compiled.mutants}
    for mutant in one_of_each.values():
        older = re.sub(r"^\.version .*$", ".version 8.6", mutant.applied(compiled.executable.ptx), flags=re.MULTILINE)
        verdict = assembled(ptxas, older, ARCH)
        assert verdict.problems == (), mutant.name


@pytest.mark.parametrize("is_patient", [False, True])
@pytest.mark.parametrize("name", SAMPLE)
def test_a_whole_kernel_runs_and_a_mutant_without_its_barrier_does_not(name, is_patient):
    compiled = Compiled(OWN[name])
    how = Try("fair", 0, is_patient)
    assert compiled.outcome(None, how) == ""
    assert compiled.changed(None) is compiled.executable
    dropped = next(one for one in compiled.mutants if one.opcode == "bar.sync")
    assert compiled.changed(dropped).digest != compiled.executable.digest


@needs("checks")
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in OWN])
def test_our_kernels_are_clean(name):
    for is_patient in (False, True):
        assert Compiled(OWN[name]).outcome(None, Try("races", 0, is_patient)) == ""


BOTH = pytest.mark.parametrize("kernels", [tuple(OWN), pytest.param(tuple(MATMULS), marks=pytest.mark.slow)], ids=len)
"""Matmuls are not kept compiled."""


@BOTH
def test_each_mutant_of_todays_kernels_is_found_or_argued(kernels):
    """results.json is about these kernels' code, and says so of each mutant; the next tests run them again."""
    assert gaps(recorded(), kernels) == []


def test_the_page_has_the_recorded_table():
    rows = table(told(recorded(), tuple(OWN)))
    assert set(TABLE.read_text(encoding="utf-8").splitlines()) >= {line for line in rows if "| all |" not in line}


@pytest.mark.slow
def test_the_page_is_what_is_recorded():
    assert TABLE.read_text(encoding="utf-8") == page()


def test_results_that_miss_a_mutant_are_told():
    rows, kernel = recorded(), SAMPLE[0]
    row = rows[kernel]
    known = told(rows, (kernel,))
    found = next(at for at, one in enumerate(known) if one.found)
    argued_at = next(at for at, one in enumerate(known) if not one.found)

    def with_text(at, text):
        texts = (*row.found[:at], text, *row.found[at + 1 :])
        return {**rows, kernel: Recorded(row.code, texts)}

    cases = {
        "its code is not": {**rows, kernel: Recorded("0" * 16, row.found)},
        "its code is not what": {**rows, kernel: Recorded(row.code, row.found[:-1])},
        "is about": {name: one for name, one in rows.items() if name != kernel},
        "neither found nor argued": with_text(found, ""),
        "argued to be harmless, and found": with_text(argued_at, "finding (races)"),
        "no try is named": with_text(found, "finding (luck)"),
        "no such kernel": {**rows, "all_reduce/unknown": row},
    }
    for said, changed in cases.items():
        (line,) = gaps(changed, (kernel,))
        assert said in line


def test_a_digest_is_of_instructions_alone():
    moved = PTX.replace(".loc 1 1 5", ".loc 1 2 5").replace("bar.sync 0;", "// begin\nbar.sync 0;")
    assert code_digest(moved) == code_digest(PTX)
    assert code_digest(PTX.replace("bar.sync 0;", "bar.sync 1;")) != code_digest(PTX)


def test_a_result_names_its_try():
    for one in (FAIR[0], FAIR[-1], *CHECKED_ROWS, *ROWS, Try("random", 3), Try("races in orders", 5, is_patient=True)):
        assert try_of(f"wrong ({one.text})") == one
    assert try_of("") is None


@needs("checks")
@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in SAMPLE else pytest.mark.slow) for one in NAMES])
def test_mutants_are_found_by_the_recorded_tries(name):
    assert again(name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_all_mutants_end_as_recorded(name):
    """Those that are argued, too: the checker does not find them."""
    assert tuple(one.found for one in results(name)) == recorded()[name].found


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_the_runs_reach_all_waits_and_all_that_orders(name):
    """All but what a wait that gives up does: it looks at the status, claims it and reports."""
    compiled = Compiled(OWN[name])
    reached = set[int]().union(*map(compiled.reached, FAIR))
    missed = {one.place for one in compiled.mutants if one.line not in reached}
    assert missed
    assert all("status" in one for one in missed)


@needs("checks")
def test_a_rank_that_is_behind_makes_others_wait_with_a_time_limit():
    compiled = Compiled(OWN[SAMPLE[0]])
    seen = [one.line for one in compiled.mutants if "seen = device.observe" in one.place]
    assert not compiled.reached(Try("races", is_patient=True)) & set(seen)
    assert compiled.reached(Try("races", is_patient=True, behind=0)) >= set(seen)


def test_a_try_that_does_not_reach_a_mutant_is_left_out():
    compiled = Compiled(OWN[SAMPLE[1]])
    (never, *_) = [one for one in compiled.mutants if "device.claim(status)" in one.place]
    tried = []
    original = compiled.outcome

    def outcome(mutant, *how):
        tried.append(mutant)
        return original(mutant, *how)

    compiled.outcome = outcome
    assert compiled.found(never, FAIR) == ""
    assert never not in tried


@needs("checks")
def test_the_judge_forbids_with_the_all_clear_what_it_allows_without():
    from symlab.checks.litmus.outcomes import judged
    from symlab.checks.litmus.parse import read

    programs = {path.stem: read(path) for path in sorted((PLACE.parent / "litmus").glob("*.litmus"))}
    used = {one.litmus for one in arguments(PLACE.read_text(encoding="utf-8"))} - {""}
    whole = {"reuse", "all_clear", "token_after_fence"}
    assert set(programs) == used | whole
    for name, one in programs.items():
        (condition,) = one.conditions
        assert condition.text.startswith("never" if name in whole else "exists"), name
        assert judged(one).holds(condition), name


def test_an_argument_without_a_reason_is_refused():
    entry = {"kernel": "*", "opcode": "*", "place": "*", "change": "*", "why": " "}
    for wrong in (entry, {"why": "It reads nothing."}):
        with pytest.raises(ValueError, match="other parts than"):
            arguments(json.dumps([wrong]))


@BOTH
def test_each_argument_is_about_some_mutant(kernels):
    everything = [(name, one) for name in kernels for one in compiled_kernel(name).mutants]
    known = arguments(PLACE.read_text(encoding="utf-8"))
    for one in (one for one in known if one.kernel.startswith("matmul/") == (kernels[0] in MATMULS)):
        assert any(one.covers(name, mutant) for name, mutant in everything), one


def test_a_wrong_request_is_refused(capsys):
    assert main(["--kernel", "unknown"]) == 2
    assert "no kernel has 'unknown' in its name" in capsys.readouterr().err
