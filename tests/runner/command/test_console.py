"""What a command says on stdout and on stderr: lines, stories once, a bar in a terminal."""

import dataclasses
import io
import re
import subprocess
import sys

import pytest

from cases.case import Case
from cases.record.record import Check, Mismatch, Status
from kernels.sources import ROOT
from reports.table.text import summary
from runner.command.console import MANY_CASES, MAX_IDS, MAX_STORIES, Console, failures
from runner.records.command_json import exit_code_for
from tests.golden import same_text
from tests.reports.raced import checked, finding
from tests.reports.synthetic import KIB, record, refused, with_case, with_request
from tests.runner.conftest import BAD

AT = Mismatch(1, 0, 5, 1.0, 2.0, "0x3f80", "0x4000")
WRONG = Check(
    "bound", 64, 12, 1.0, 1, 0.1, True, 2, True, first_mismatch=AT, bound="E", bound_value=0.25, bound_used=3.0
)


def passed(algorithm="one_shot", size_bytes=KIB, **changes):
    return record(algorithm, size_bytes, is_timed=False, **changes)


def wrong(algorithm="one_shot", size_bytes=KIB, check=WRONG):
    return passed(algorithm, size_bytes, status=Status.WRONG, check=check)


def failed(algorithm="one_shot", size_bytes=KIB, reason="rank 2 hung"):
    return passed(algorithm, size_bytes, status=Status.TIMEOUT, check=None, reason=reason)


def cases(count):
    return [Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", KIB, 4)] * count


def told(records, total, **options):
    """What a console says on stdout, by lines, and on stderr, of records."""
    out, err = io.StringIO(), io.StringIO()
    with Console(out, errors=err, **options) as console:
        console.begin(cases(total))
        for one in records:
            console.finished(one)
    return out.getvalue().splitlines(), err.getvalue()


def test_a_small_command_has_a_line_a_case():
    second = with_case(passed("two_shot"), placement="in_place")
    lines, err = told([passed(), refused(), passed("torch/two_shot"), second], 4)
    same_text("\n".join(lines))
    assert err == ""


def test_a_library_that_did_not_finish_is_no_failure():
    late = dataclasses.replace(wrong(), status=Status.TIMEOUT, check=None, reason="the deadline passed")
    assert failures([dataclasses.replace(late, library="NVSHMEM 0.0.0")]) == []
    assert failures([late]) != [], "a kernel's deadline is one"
    assert exit_code_for([passed(), refused(), dataclasses.replace(late, library="NVSHMEM 0.0.0")]) == 0
    assert exit_code_for([passed(), late]) == 1
    assert exit_code_for([dataclasses.replace(late, library="NVSHMEM 0.0.0")]) == 1, "nothing passed"
    failed = dataclasses.replace(late, status=Status.FAILED, library="NVSHMEM 0.0.0")
    assert exit_code_for([passed(), failed]) == 1, "an error is no slowness"


def test_a_large_command_says_what_failed_so_far():
    total = MANY_CASES + 40
    late = dataclasses.replace(failed(), library="NVSHMEM 0.0.0")
    lines, _ = told([passed(), passed(), wrong(), failed(), late], total)
    assert lines == [
        f"[1/{total}] one_shot 1K n4 PASSED",
        f"[2/{total}] one_shot 1K n4 PASSED",
        f"[3/{total}] one_shot 1K n4 WRONG: 12 of 64 elements; {wrong().id} (1 failed)",
        f"[4/{total}] one_shot 1K n4 TIMEOUT: rank 2 hung (2 failed)",
        f"[5/{total}] one_shot 1K n4 TIMEOUT: rank 2 hung (2 failed)",
    ]


def test_quiet_says_nothing_but_errors_and_what_is_announced():
    out, err = io.StringIO(), io.StringIO()
    with Console(out, heading=["heading"], is_quiet=True, errors=err) as console:
        console.begin(cases(2))
        console.finished(passed())
        console.finished(wrong())
        console.say("a table")
        console.warn("symlab: warning: disk")
        console.announce("2 cases: 1 passed, 1 wrong")
    assert (out.getvalue(), err.getvalue()) == ("2 cases: 1 passed, 1 wrong\n", "symlab: warning: disk\n")


def test_a_story_is_told_whole_with_the_bound_the_place_and_the_method():
    of_sweep = with_request(failed(), job=1, jobs=3, overrides=("world_size=4",))
    same_text("\n".join([*failures([passed(), refused(), wrong()]), *failures([of_sweep])]))


def test_one_reason_of_many_cases_is_told_once_and_many_are_cut():
    records = [failed(size_bytes=KIB * size) for size in range(1, MAX_IDS + 3)]
    lines = failures(records)
    assert lines[:MAX_IDS] == [f"  {one.id}" for one in records[:MAX_IDS]]
    assert lines[MAX_IDS:] == ["  and 2 cases more", "    TIMEOUT: rank 2 hung"]
    assert failures(records[:MAX_IDS])[MAX_IDS:] == ["    TIMEOUT: rank 2 hung"]
    records = [failed(reason=f"rank {number} hung") for number in range(MAX_STORIES + 2)]
    lines = failures(records, "records/x")
    assert len(lines) == 2 * MAX_STORIES + 1
    assert lines[-1] == "  and 2 more: symlab table records/x"


def test_the_summary_counts_cases_and_races():
    fabric = passed().fabric
    simulated = passed(fabric=dataclasses.replace(fabric, simulated=True))
    on_gpus, raced = [passed(), refused()], checked(finding())
    lines = [
        summary([*on_gpus, wrong()], 2000),
        summary([], 1),
        summary([simulated], 1),
        summary(on_gpus, 2),  # GPUs show no races
        summary([passed(), checked(), checked()], 3),
        summary([checked(), raced], 2),
    ]
    same_text("\n".join(lines))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_of_a_terminal_stays_below_the_lines_and_is_taken_away(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    out = Terminal()
    with Console(out, ["symlab: a heading"]) as console:
        console.begin(cases(6), jobs=14)
        print("a library's words", file=sys.stderr)
        for number, record in enumerate([passed(), wrong(), passed(), failed()]):
            console.starting(record.case, job=number + 1)
            console.finished(record)
        console.warn("symlab: warning: a disk is almost full")
    console.announce("the summary")
    said = "a library's words\nsymlab: warning: a disk is almost full\n"
    assert capsys.readouterr().err == said, "stderr stays stderr while the bar is shown"
    drawn = out.getvalue()
    lines = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", drawn).replace("\r", "\n").splitlines()
    same_text("\n".join(line for line in lines if line and "━" not in line))
    assert drawn.rindex("\x1b[2K") > drawn.rindex("━"), "the bar is taken away"
    assert "4/6 2 failed job 4/14 one_shot 1K n4" in drawn


def test_refused_cases_say_nothing_of_the_time_that_others_take(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: now_s[0])
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Console(out) as console:
        console.begin(cases(80))
        for record in [refused()] * 40 + [passed()] * 5:
            now_s[0] += 60.0 if record.status == "PASSED" else 0.0
            console.finished(record)
    times = re.findall(r"\d+:\d\d(?= )", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.getvalue()))
    assert times[-1] == "35:00", times


@pytest.mark.slow
def test_a_command_of_many_cases_ends_with_a_summary_and_names_the_command_for_all(symlab, script):
    script.outcomes = {"two_shot-float32-float32-sum-n2-2048B": BAD}
    seeds = ",".join(map(str, range(MANY_CASES)))
    done = symlab("-m", f"seed={seeds}", "sizes=[1K,2K]", "algorithms=[one_shot,two_shot]")
    lines = done.out.splitlines()
    (folder,) = (done.folder / "records").iterdir()
    assert f"the whole table: symlab table records/{folder.name}" in lines
    after_cases = lines[max(index for index, line in enumerate(lines) if line.startswith("[")) + 1 :]
    assert len(after_cases) < 20
    assert re.search(rf"all_reduce/one_shot +1 KiB to 2 KiB +{2 * MANY_CASES} +{2 * MANY_CASES} +0", done.out)
    assert re.search(rf"all_reduce/two_shot +1 KiB to 2 KiB +{2 * MANY_CASES} +{MANY_CASES} +{MANY_CASES}", done.out)


def test_the_order_of_errors_and_lines_where_both_go_to_one_place():
    code = "from runner.command.console import Console; c = Console(); c.say('one'); c.warn('two'); c.announce('three')"
    said = subprocess.check_output([sys.executable, "-c", code], stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert said.splitlines() == ["one", "two", "three"]
