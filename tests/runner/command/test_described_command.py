"""Kernels that a YAML file describes, in commands: beside the catalogue's, recorded, replayed, predicted, refused."""

import pytest

import symlab
from cases.record.record import Status
from reports.record.bundle import read
from symlab.command import main
from tests.golden import refused, same_text
from tests.kernels.own.exchange_ptx import EXCHANGE, EXCHANGED
from tests.kernels.own.own_entries import ADDED, OWN, SUM, changed, write_entries
from tests.rooms import needs


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*overrides, verb=.., **entries): the exit code of a command in tmp_path, beside the entries' file."""
    monkeypatch.chdir(tmp_path)

    def go(*overrides, verb="run", **entries):
        write_entries(tmp_path / "own", **(entries or {"sum": SUM}))
        usual = ["op=all_reduce", "world_size=3", "sizes=[1K,12K]", "track=none"]
        return main([verb, *usual, *overrides])

    return go


def records_in(folder):
    return {record.id: record for record in read([folder])}


def test_an_entry_stands_beside_the_catalogue(run, tmp_path):
    assert run("algorithms=[one_shot,own/kernels.yaml:sum@all]") == 0
    found = records_in(tmp_path / "records").values()
    assert [one.case.algorithm for one in found] == ["one_shot", "sum", "sum_blocks8"] * 2
    assert {(one.status, one.check and one.check.method) for one in found} == {(Status.PASSED, "bitwise_fold")}
    outputs = {(one.case.size_bytes, one.check and one.check.output_digests) for one in found}
    assert len(outputs) == 2, "all three add in the same order"
    brought = next(one for one in found if one.case.algorithm == "sum_blocks8")
    entry = brought.request.brought["sum_blocks8"]
    assert entry["place"] == "own/kernels.yaml:sum@blocks8"
    assert entry["digest"] == brought.kernel.source_digest
    assert [one["name"] for one in entry["files"]] == ["kernels.yaml", "one_shot.ptx"]
    assert (brought.kernel.entry, brought.kernel.compiler) == ("one_shot", "not named in the PTX")
    assert brought.request.kernel["choices"] == {"entry": "one_shot", "blocks": 8}


def test_tables_of_peers_begin_within_buffers(run, tmp_path):
    entry = changed(SUM, arguments=[{"peers": "input"}, {"peers": "flags + 16"}, "flags+16", *SUM["arguments"][3:]])
    entry["workspaces"]["flags"]["numel"] = "grid * world_size + 4"
    assert run("algorithms=[own/kernels.yaml:sum]", sum=entry) == 0
    assert {one.status for one in records_in(tmp_path / "records").values()} == {Status.PASSED}


@needs("evidence")
def test_a_record_of_an_entry_is_replayed_unless_its_files_changed(run, tmp_path, capsys):
    assert run("algorithms=[own/kernels.yaml:sum]", "sizes=[1K]") == 0
    (folder,) = (tmp_path / "records").iterdir()
    capsys.readouterr()
    assert main(["replay", str(folder), "--records", "again"]) == 0
    said = capsys.readouterr().out
    assert "1 BIT-EQUAL" in said
    assert "check.races" not in said, "races are looked for by the same configuration, for the kernel is brought"
    text = (tmp_path / "own" / "one_shot.ptx").read_text()
    (tmp_path / "own" / "one_shot.ptx").write_text(text.replace("add.rn.f32", "sub.rn.f32"))
    main(["replay", str(folder), "--records", "again"])
    same_text(capsys.readouterr().err)


@needs("evidence")
def test_an_audit_of_entries_finds_nothing(run, tmp_path, capsys):
    """Nor that a kernel of the catalogue beside them was not checked for races when it ran again, alone."""
    assert run(f"algorithms=[one_shot,{tmp_path}/own/kernels.yaml:sum@all]", "sizes=[1K]") == 0
    (folder,) = (tmp_path / "records").iterdir()
    main(["audit", str(folder), "--rerun", "all"])
    said = capsys.readouterr().out
    assert "  FINDING  " not in said, said
    assert "3 of 3 findings of the race checker" in said, said


def test_a_missing_barrier_is_a_race(run, tmp_path):
    assert run("algorithms=[own/kernels.yaml:added]", "sizes=[1K]", "check.races=true", added=ADDED) == 1
    (record,) = records_in(tmp_path / "records").values()
    assert record.status is Status.WRONG
    assert (record.kernel.grid, record.kernel.block) == (2, 128)


@pytest.mark.parametrize("stress", ["late_rank+alternating_sizes", "graph_out_of_step"])
def test_workspaces_are_kept_under_stress(stress, run):
    assert run("algorithms=[own/kernels.yaml:sum]", f"stress={stress}", "sizes=[3K]", "stress_seeds=2") == 0


@pytest.mark.parametrize("counts", ["uniform", "zeros", "skewed"])
def test_an_entry_of_counts_for_each_peer(counts, run, tmp_path):
    given = ("op=all_to_all_v", "algorithms=[push,own/kernels.yaml:exchanged]", f"counts={counts}", "check.races=true")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "exchange.ptx").write_text(EXCHANGE)
    assert run(*given, "sizes=[96]", exchanged=EXCHANGED) == 0
    found = records_in(tmp_path / "records").values()
    assert [(one.case.algorithm, one.status) for one in found] == [
        ("push", Status.PASSED),
        ("exchanged", Status.PASSED),
    ]


OWNED = """	rem.u32		%r18, %r13, %r2;
	mov.u32		%r15, 0;
next_rank:
	add.u32		%r18, %r18, 1;
	rem.u32		%r18, %r18, %r2;
	mul.wide.u32	%rd20, %r18, 8;
	add.s64		%rd16, %rd1, %rd20;
"""
"""Contributions from the rank behind an element's owner on, who is index % world_size."""


def test_an_entry_says_who_adds_an_element(run, tmp_path):
    (tmp_path / "own").mkdir()
    text = (OWN / "one_shot.ptx").read_text()
    before = "	mov.u32		%r15, 0;\n	mov.u64		%rd16, %rd1;\nnext_rank:\n"
    assert before in text
    (tmp_path / "own" / "owned.ptx").write_text(text.replace(before, OWNED))
    right = changed(SUM, kernel="owned.ptx:one_shot", fold="from_next_rank", owner="index % world_size")
    names = "algorithms=[own/kernels.yaml:right,own/kernels.yaml:wrong,own/kernels.yaml:other]"
    wrong, other = changed(right, owner="rank"), changed(right, fold="rank_order", owner=None)
    assert run(names, "sizes=[3K]", right=right, wrong=wrong, other=other) == 1
    found = {one.case.algorithm: one for one in records_in(tmp_path / "records").values()}
    assert {name: str(one.status) for name, one in found.items()} == {
        "right": "PASSED",
        "wrong": "WRONG",
        "other": "WRONG",
    }
    assert found["right"].check.method == "bitwise_fold"


@needs("speed")
def test_brought_kernels_are_predicted(run, capsys):
    given = ("algorithms=[one_shot,own/kernels.yaml:sum,own/kernels.yaml:added]", "fabric.gpu=h200", "sizes=[3K,3M]")
    assert run(*given, verb="predict", sum=SUM, added=ADDED) == 0
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert next(row for row in rows if row[:1] == ["size"]) == ["size", "one_shot", "sum", "added"]
    assert [row[0] for row in rows if row and row[0] in ("3K", "3M")] == ["3K", "3M"]
    assert "a kernel of your own: constants and interval are those of the catalogue's kernels" in said


WRONG = {
    "an unknown op": ("algorithms=[own/kernels.yaml:sum]", {"op": "all_redcue"}),
    "another op": ("algorithms=[own/kernels.yaml:sum]", {"op": "broadcast"}),
    "no such entry": ("algorithms=[own/kernels.yaml:total]", {}),
    "no such file": ("algorithms=[own/kernel.yaml:sum]", {}),
    "no name": ("algorithms=[own/kernels.yaml]", {}),
    "a wrong argument": ("algorithms=[own/kernels.yaml:sum]", {"arguments": ["inputs"]}),
    "a wrong expression": ("algorithms=[own/kernels.yaml:sum@all]", {"launch": {"grid": "blocks / 2", "block": 256}}),
    "the catalogue's name": ("algorithms=[own/kernels.yaml:one_shot]", {}),
    "twice": ("algorithms=[own/kernels.yaml:sum,own/kernels.yaml:sum@blocks4]", {}),
    "no value": ("algorithms=[own/kernels.yaml:sum@blocks7]", {}),
    "no dtype of it": ("algorithms=[own/kernels.yaml:sum] dtype=float16 accumulator=native", {"dtypes": ["float32"]}),
    "no size of it": ("algorithms=[own/kernels.yaml:sum]", {"requires": ["numel > 1000000"]}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_entry_ends_the_command_in_one_line(what, run, tmp_path, capsys):
    overrides, changes = WRONG[what]
    entry = changed(SUM, **changes)
    assert run(*overrides.split(), sum=entry, one_shot=entry) == 2
    (line,) = capsys.readouterr().err.splitlines()
    same_text(line)
    assert not (tmp_path / "records").exists()


def test_the_api_takes_an_entry_by_its_place(tmp_path):
    place = f"{write_entries(tmp_path, sum=SUM)}:sum"
    case = symlab.case(place, size_bytes="4K", ranks=4)
    assert (case.name, symlab.run(case, kernel=place).status) == ("all_reduce/sum", Status.PASSED)
    assert symlab.compile(case, kernel=place).launch.block == (256, 1, 1)
    with refused():
        symlab.kernel(str(tmp_path / "kernels.yaml"))


def test_explore_takes_an_entry(run, capsys):
    """Of a kernel without barriers an order is found that gives wrong sums."""
    given = ("algorithms=[own/kernels.yaml:added]", "sizes=[96]", "world_size=2")
    assert run(*given, "--seeds", "20", "--shrink", "1", "--processes", "1", verb="explore", added=ADDED) == 1
    assert "all_reduce-added-" in capsys.readouterr().out
