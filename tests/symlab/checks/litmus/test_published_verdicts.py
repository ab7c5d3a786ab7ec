"""The comparison with a published suite, on files of our own in its format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import same_text
from tests.symlab.checks.litmus.published import main

GENERIC = """PTX two-lines
"A text
with two lines and | a bar"
{
data = 0; flag = 0;
P1:r1 = 0;
}
 P0@cta 0,gpu 0           | P1@cta 1, gpu 0           ;
 st.weak data, 7          | LC00:                     ;
 ld r5, 1                 | ld.acquire.gpu r0, flag   ;
 st.release.gpu flag, r5  | bne r0, 1, LC00           ;
                          | ld.weak r1, data          ;
~exists
(P1:r0 == 1 /\\ 1:r1 != 7)
"""
ALIAS = """PTX alias
{
a = 0;
b @ generic aliases a;
s @ surface aliases a;
}
 P0@cta 0,gpu 0     ;
 st.weak a, 3       ;
 fence.proxy.alias  ;
 ld.weak r0, b      ;
forall
(P0:r0 = 3 \\/ P0:r0 == 4)
"""
SURFACE = ALIAS.replace("ld.weak r0, b", "suld.weak r0, s")
BARRIER = """PTX barrier
{
a = 0;
}
 P0@cta 0,gpu 0 | P1@cta 0,gpu 0 | P2@cta 0,gpu 0 ;
 st.weak a, 1   | bar.cta.sync 3 |                ;
 bar.cta.sync 3 | ld.weak r0, a  |                ;
forall (P1:r0 == 1)
"""


def dat3m(folder: Path, verdicts: str) -> Path:
    for name, text in (("generic", GENERIC), ("alias", ALIAS), ("surface", SURFACE), ("barrier", BARRIER)):
        path = folder / "litmus" / "PTX" / f"{name}.litmus"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    table = folder / "dartagnan" / "src" / "test" / "resources" / "PTXv7_5-expected.csv"
    table.parent.mkdir(parents=True)
    names = ("generic", "alias", "surface", "barrier")
    table.write_text("".join(f"litmus/PTX/{name}.litmus,{one}\n" for name, one in zip(names, verdicts, strict=True)))
    return folder


def said(capsys: pytest.CaptureFixture[str], folder: Path, code: int) -> None:
    assert main([str(folder)]) == code
    same_text(capsys.readouterr().out)


@pytest.mark.parametrize(("verdicts", "code"), [("1111", 0), ("0111", 1)])
def test_herds_format(verdicts: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, dat3m(tmp_path, verdicts), code)


def test_a_program_beyond_the_limit_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("symlab.checks.litmus.outcomes.MAXIMUM_EXECUTIONS", 1)
    said(capsys, dat3m(tmp_path, "1111"), 1)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == main([]) == 2
