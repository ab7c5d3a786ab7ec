"""symlab litmus: its tables, its exit codes, and the words that complete it."""

from pathlib import Path

import pytest

import symlab.checks.litmus
from symlab.command import main
from tests.golden import same_text
from tests.symlab.test_completion import answers

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


def said(capsys, *arguments, code=0):
    assert main(["litmus", *arguments]) == code
    return capsys.readouterr().out


def test_a_file_with_its_states_conditions_and_axioms(tmp_path, capsys):
    path = tmp_path / "mine.litmus"
    path.write_text(PROGRAM.format(condition="never T1.r0 == 1 and T1.r1 == 0"))
    same_text(said(capsys, str(path), "--seeds", "0"))
    path.write_text(PROGRAM.format(condition="exists T1.r0 == 1 and T1.r1 == 0\nalways T1.r0 == 0 or T1.r1 != 0"))
    same_text(said(capsys, str(path), "--seeds", "0", code=1))


@pytest.mark.slow
def test_the_example_of_the_page_is_what_the_command_prints(capsys):
    page = (Path(symlab.checks.litmus.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert page.split("```")[1].strip("\n") in said(capsys, "mp_no_acquire")


MIXED = "st.weak.b64 [x], 1\nthread T1 on rank 1 block 0\nld.weak r0, [x]\nexists T1.r0 == 0"


@pytest.mark.parametrize(("lines", "code"), [(MIXED, 1), ("bar.sync 0, 2\nnever x == 1", 0)], ids=["mixed", "stuck"])
def test_undefined_programs_and_deadlocks_are_told(lines, code, tmp_path, capsys):
    path = tmp_path / "mine.litmus"
    path.write_text(f"memory x\nthread T0 on rank 0 block 0\n{lines}\n")
    same_text(said(capsys, str(path), "--seeds", "0", code=code))


@pytest.mark.parametrize(("name", "races"), [("mp_no_acquire", 1), ("alias_stores", 0), ("corr_relaxed", 0)])
def test_what_the_checker_says(name, races, capsys):
    text = said(capsys, name, "--seeds", "1")
    assert text.count("  race: ") == races
    same_text(text[text.index("\nraces: ") :])
    assert "races:" not in said(capsys, name, "bar_too_few", "--seeds", "0"), "the judge alone"


@pytest.mark.slow
def test_all_programs(capsys):
    lines = said(capsys, "--all").splitlines()
    assert len(lines) - 2 == 169
    row = next(line for line in lines if line.startswith("sb_fence_sc "))
    same_text("\n".join([lines[0], row, lines[-1]]))


@pytest.mark.parametrize("arguments", [[], ["mp_weak", "--all"], ["nothing"]])
def test_a_wrong_request(arguments, capsys):
    assert main(["litmus", *arguments]) == 2
    same_text(capsys.readouterr().err)


def test_names_and_files_are_completed(monkeypatch):
    assert answers("symlab litmus mp_pol", monkeypatch) == [
        "plain mp_polls",
        "plain mp_polls_ends",
        "plain mp_polls_relaxed",
    ]
    assert answers("symlab litmus ./mi", monkeypatch) == ["file ./mi"]
