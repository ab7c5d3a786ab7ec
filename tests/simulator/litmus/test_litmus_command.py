"""symlab litmus: its tables, its exit codes, and the words that complete it."""

from __future__ import annotations

from pathlib import Path

import pytest

import simulator.litmus
from symlab.command import main
from symlab.completion import answer_lines

PROGRAM = """# Mine.
memory data, flag
thread T0 on rank 0 block 0
    st.weak [data], 0x70001
    st.release.sys [flag], 1
thread T1 on rank 1 block 0
    ld.acquire.sys r0, [flag]
    ld.weak r1, [data]
{condition}
"""


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["litmus", *arguments]) == code
    return capsys.readouterr().out


def test_a_file_whose_condition_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.litmus"
    path.write_text(PROGRAM.format(condition="never T1.r0 == 1 and T1.r1 == 0"))
    assert said(capsys, str(path), "--seeds", "0").splitlines() == [
        "mine: Mine.",
        "",
        "  T1.r0    T1.r1  verdict",
        "      0        0  allowed    data race",
        "      0  0x70001  allowed    data race",
        "      1        0  forbidden  Causality (8.10.6)",
        "      1  0x70001  allowed",
        "",
        "T1.r0 == 1, T1.r1 == 0 contradicts Causality (8.10.6):",
        "  T1: ld.weak r1, [data]         reads before",
        "  T0: st.weak [data], 0x70001    program order",
        "  T0: st.release.sys [flag], 1   synchronizes",
        "  T1: ld.acquire.sys r0, [flag]  program order",
        "  T1: ld.weak r1, [data]",
        "",
        "3 executions allowed",
        "never T1.r0 == 1 and T1.r1 == 0: holds",
    ]


@pytest.mark.slow
def test_the_example_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(simulator.litmus.__file__).parent / "README.md").read_text(encoding="utf-8")
    example = page.split("```")[1].strip("\n")
    assert example in said(capsys, "mp_no_acquire")


@pytest.mark.slow
def test_a_condition_that_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.litmus"
    path.write_text(PROGRAM.format(condition="exists T1.r0 == 1 and T1.r1 == 0\nalways T1.r0 == 0 or T1.r1 != 0"))
    lines = said(capsys, str(path), code=1).splitlines()
    assert lines[-2:] == [
        "exists T1.r0 == 1 and T1.r1 == 0: FAILS",
        "always T1.r0 == 0 or T1.r1 != 0: holds",
    ]


@pytest.mark.slow
def test_programs_of_the_project_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "bar_too_few", "mp_weak")
    assert "T0 waits at a barrier for ever" in text
    assert "\n\nmp_weak: Message passing with weak accesses" in text


@pytest.mark.slow
def test_undefined_programs_and_deadlocks_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = tmp_path / "mixed.litmus"
    mixed.write_text(
        "memory x\nthread T0 on rank 0 block 0\nst.weak.b64 [x], 1\nthread T1 on rank 1 block 0\nld.weak r0, [x]\n"
        "exists T1.r0 == 0\n"
    )
    assert "undefined: T0: st.weak.b64 [x], 1 and T1: ld.weak r0, [x] race and have different sizes" in said(
        capsys, str(mixed), code=1
    )
    stuck = tmp_path / "stuck.litmus"
    stuck.write_text("memory x\nthread T0 on rank 0 block 0\nbar.sync 0, 2\nnever x == 1\n")
    assert "in some, no thread ends: conditions are about the others" in said(capsys, str(stuck))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "mp_no_acquire",
            ["races: found", "  race: an acquire is missing between T0: st.weak [data], 1 and T1: ld.weak r1, [data]"],
        ),
        (
            "alias_stores",
            ["races: not checked: y is a second address of x; a rank has one address of each location"],
        ),
        ("corr_relaxed", ["races: none"]),
    ],
)
def test_what_the_checker_says(name: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, name, "--seeds", "1")
    assert "\n".join(["", *lines, ""]) in text
    assert text.count("  race: ") == len(lines) - 1
    assert "races:" not in said(capsys, name, "--seeds", "0"), "the judge alone"


@pytest.mark.slow
def test_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "--all").splitlines()
    assert lines[0].split() == ["program", "allowed", "forbidden", "conditions", "forbidden", "by"]
    row = next(line for line in lines if line.startswith("sb_fence_sc "))
    assert row.split() == ["sb_fence_sc", "3", "1", "hold", "Causality"]
    number = len(lines) - 2
    assert lines[-1] == f"{number} programs, all conditions hold in {number}"
    assert number == 169


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give litmus programs, or --all for the project's 169"),
        (["mp_weak", "--all"], "give litmus programs, or --all for the project's 169"),
        (["nothing"], "nothing: No such file or directory, give a litmus program"),
    ],
)
def test_a_wrong_request(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["litmus", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_names_and_files_are_completed() -> None:
    assert answer_lines("symlab litmus mp_pol") == ["word mp_polls", "word mp_polls_ends", "word mp_polls_relaxed"]
    assert answer_lines("symlab litmus ./mi") == ["files"]
