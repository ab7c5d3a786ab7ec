"""The matrix of what there is: asked of specs, short in tables, and the same in the README."""

import dataclasses
import json
import subprocess
import sys

import pytest

from cases.case import Case
from cases.dtypes import ALL, ARITHMETIC, FLOATS, INTEGERS, refuses_types
from cases.multimem import FLOAT8_ARCHS
from cases.ops import OPS, collective
from cases.refusal import Refusal
from kernels import __main__ as door
from kernels import commands as command
from kernels.catalogue import SPECS, find
from kernels.compile import source_digest
from kernels.matrix.codes import Code, codes
from kernels.matrix.matrix import LEGEND, Row, cells, dtypes_text, exceptions, ranges, rows
from kernels.matrix.proofs import PLACE, Proof, Tally, proofs
from kernels.matrix.sheets import markdown, text
from kernels.multimem import refuses_multimem
from kernels.spec import refuses
from memory.fabric import Traits
from tests.golden import same_text

ONE_SHOT = find("all_reduce/one_shot")

MULTIMEM = dataclasses.replace(
    ONE_SHOT, algorithm="switched", needs_multicast=True, refusal=refuses_multimem, placements=("in_place",)
)
"""A kernel that takes what multimem has."""


def proof_of(machine, date, tally):
    return Proof(machine=machine, date=date, commit="0123456789abcdef", specs={ONE_SHOT.name: tally})


PROOFS = (
    proof_of("simulator", "2026-11-21", Tally(12, 3, (1, 2, 3, 8), "older")),
    proof_of("4 x A", "2026-11-22", Tally(7, 0, (2, 4), source_digest(ONE_SHOT))),
    proof_of("2 x B", "2026-11-22", Tally(5, 0, (2,), "older")),
)


def shown(spec, *proven):
    return cells(Row(spec, proven), lambda words: f"[{words}]")


def test_every_kernel_of_the_catalogue_has_a_row():
    assert [row.spec.name for row in rows(())] == [spec.name for spec in SPECS]
    assert {row.spec.op for row in rows((), "all_gather")} <= {"all_gather"}


@pytest.mark.parametrize("row", rows(()), ids=lambda row: row.spec.name)
def test_a_row_says_just_what_is_not_refused(row):
    """Every combination, put to refuses() again with sizes of its own, is in the row or refused."""
    spec = row.spec
    for arch in ("sm_90a", "sm_100a"):
        for dtype in ALL:
            for accumulator in ("native", "float16", "float32", "none"):
                for reduction in ("sum", "avg", "min", "xor", "none"):
                    cell = (dtype, accumulator, reduction)
                    sizes = [1024 * 1024 * 2, 8 * 8, 8, 4]
                    case = Case(spec.op, spec.algorithm, *cell, 0, 2, spec.placements[-1])
                    traits = Traits("some", arch, 2, 1 << 40, True)
                    taken = any(
                        refuses(spec, collective(spec.op), dataclasses.replace(case, size_bytes=size), traits) is None
                        for size in sizes
                    )
                    assert taken == (arch in row.taken.get(cell, ())), cell


def test_cells_of_kernels_for_everything_for_some_and_of_proven_ones():
    """For everything in few words; what a kernel has not of its types exactly; where it is proven, and since when."""
    for found in (shown(ONE_SHOT), shown(MULTIMEM), shown(ONE_SHOT, *PROOFS)):
        same_text(json.dumps(found, indent=1))
    assert all(arch in shown(MULTIMEM)["needs"] for arch in MULTIMEM.archs if arch in FLOAT8_ARCHS)
    assert shown(MULTIMEM, *PROOFS)["simulator"] == "not yet"


def test_the_exceptions_are_all_that_is_missing():
    row = Row(MULTIMEM, ())
    every = {
        (dtype, accumulator, reduction)
        for dtype in ARITHMETIC
        for accumulator in ("native", "float16", "float32")
        for reduction in ("sum", "min", "max", "and", "or", "xor", "avg")
        if refuses_types(dtype, accumulator, reduction) is None
    }
    assert set(row.taken) | set(row.missing()) == every
    assert set(row.taken) & set(row.missing()) == set()
    assert {cell[0] for cell in row.missing()} == {"float64", "float32", "float8_e4m3fn", "float8_e5m2"}
    assert exceptions(Row(ONE_SHOT, ())) == ""
    assert len(row.taken) == 58, "tests/kernels/test_multimem.py counts the same"


def test_limits_of_size_ranks_and_alignment_are_shown():
    def picky(case, arch):
        return Refusal("offset", "no") if case.offset or case.world_size in (3, 5) else None

    small = dataclasses.replace(ONE_SHOT, max_size_bytes=65536, max_world_size=8, refusal=picky)
    found = shown(dataclasses.replace(small, placements=("out_of_place", "in_place")))
    assert found["needs"] == "16-byte alignment, at most 64 KiB"
    assert (found["ranks"], found["placement"]) == ("1-2, 4, 6-8", "either")


@pytest.mark.parametrize(
    ("sources", "code", "today", "is_older"),
    [
        ("older", "sha256:1", "sha256:1", False),
        ("older", "sha256:1", "sha256:2", True),
        ("today's", "sha256:1", "sha256:2", True),  # another compiler, or a proof of another kernel's code
        ("today's", None, "sha256:2", False),
        ("older", None, "sha256:2", True),
        ("today's", "sha256:1", None, False),
        ("older", "sha256:1", None, True),
    ],
)
def test_a_proof_is_judged_by_code_where_both_sides_have_it(sources, code, today, is_older):
    digest = source_digest(ONE_SHOT) if sources == "today's" else sources
    proof = proof_of("simulator", "2026-11-21", Tally(1, 0, (2,), digest, code))
    known = {} if today is None else {ONE_SHOT.name: Code(1, today, "sample", "sha256:3")}
    (row,) = (one for one in rows((proof,), "all_reduce", known) if one.spec is ONE_SHOT)
    assert cells(row, str)["simulator"] == f"1 on 2 ranks{'*' if is_older else ''}"


def test_what_was_added_to_a_proof_later_is_said():
    added = dataclasses.replace(PROOFS[0], code_from="compiled later from git, commit 0123456789ab")
    for proof in (added, PROOFS[0]):
        same_text(text((Row(ONE_SHOT, (proof,)),), (proof,)).splitlines()[-1])


@pytest.mark.parametrize(
    ("dtypes", "words"),
    [
        (ALL, "all 11"),
        (ARITHMETIC, "floats, integers"),
        (FLOATS, "floats"),
        ((*INTEGERS, "uint8"), "integers, uint8"),
        (("float8_e5m2", "float32", "float8_e4m3fn"), "fp8, float32"),
        (("float16", "bfloat16", "int32"), "float16, bfloat16, int32"),
        (("uint32",), "uint32"),
    ],
)
def test_sets_of_types_in_few_words(dtypes, words):
    assert dtypes_text(dtypes) == words
    for word in words.split(", "):
        assert word in LEGEND[0], "the legend explains it"


def test_ranges_of_numbers():
    assert ranges((1, 2, 3, 4, 8, 16, 17)) == "1-4, 8, 16-17"
    assert ranges(()) == ""


def test_the_table_has_columns_notes_and_legend():
    found = text((Row(ONE_SHOT, PROOFS), Row(MULTIMEM, PROOFS), Row(MULTIMEM, PROOFS)), PROOFS)
    same_text(found)
    assert set(LEGEND) <= set(found.splitlines())


def test_markdown_is_one_table_and_a_list():
    found = markdown((Row(ONE_SHOT, PROOFS), Row(MULTIMEM, ())), PROOFS)
    assert {line.count("|") for line in found.splitlines()[:4]} == {11}
    same_text(found)


@pytest.mark.parametrize(
    "line",
    ["--op allreduce", "all_to_all_v", "more", "--readme --op barrier", "--op matmul_all_reduce", "--codes --readme"],
)
def test_a_wrong_request_is_one_line_and_code_2(line, capsys):
    assert door.main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    same_text(captured.err)


def test_the_readme_has_the_matrix_as_it_is_now():
    readme = command.README.read_text(encoding="utf-8")
    assert readme == command.page(), "python -m kernels --readme"
    assert "| all_reduce | one_shot |" in readme
    assert command.README.relative_to(PLACE.parent.parent).as_posix() == "kernels/matrix/README.md"


@pytest.mark.slow
def test_a_readme_that_is_not_up_to_date_is_put_right(monkeypatch, tmp_path, capsys):
    readme = tmp_path / "README.md"
    monkeypatch.setattr(command, "README", readme)
    assert door.main(["--readme"]) == 0
    assert "| one_shot |" in readme.read_text()


@pytest.mark.slow
def test_codes_are_written_and_found_to_differ(monkeypatch, tmp_path, capsys):
    place = tmp_path / "codes.json"
    monkeypatch.setattr("kernels.matrix.codes.PLACE", place)
    both = (find("barrier/peers"), find("barrier/multimem"))
    cache = ["--cache", str(tmp_path / "cache")]
    assert door.main(["--codes", *cache], both) == 1, "there was none"
    assert json.loads(place.read_text())["barrier/peers"] == dataclasses.asdict(codes()["barrier/peers"])
    assert door.main(["--codes", *cache], both) == 0
    assert "all 2 kernels have the code of codes.json" in capsys.readouterr().out
    found = json.loads(place.read_text())
    found["barrier/peers"] = found["barrier/multimem"]
    place.write_text(json.dumps(found))
    assert door.main(["--codes", *cache], both) == 1
    said = capsys.readouterr().out
    assert "barrier/peers: 2 variants, other code than in codes.json" in said
    assert "codes.json: has other code of 1 kernels now" in said
    assert door.main(["--codes", *cache], both) == 0


@pytest.mark.slow
def test_the_command_prints_it(capsys):
    assert door.main([]) == 0
    printed = capsys.readouterr().out
    assert printed == text(rows(proofs(), known=codes()), proofs())
    assert door.main(["--op", OPS[0]]) == 0
    assert len(capsys.readouterr().out) < len(printed)


@pytest.mark.slow
def test_it_is_quick_and_imports_neither_torch_nor_cutlass():
    code = (
        "import sys; from kernels.__main__ import main; main([]); "
        "print(*sorted({'torch', 'cutlass', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    root = PLACE.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
