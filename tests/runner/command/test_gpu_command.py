"""fabric.gpu on the command line: planned, run, recorded, replayed, audited, and refused before anything runs."""

import dataclasses

import pytest

from reports.mlflow_values import parameters_of
from reports.record.bundle import read
from runner.__main__ import main
from runner.gpu.reading import gpu_type
from simulator.ptx.assembler import find_ptxas
from tests.golden import same_text
from tests.runner.custom.own_ptx import write_experiment

H100 = dataclasses.asdict(gpu_type("h100").limits)
MINE = "like: h100\nlimits: {{multiprocessors: {{value: {}, source: 'assumed: for a test'}}}}\n"
SMALL = ["fabric=simulator", "algorithms=[two_shot]", "sizes=[4K]", "track=none"]

TWO_PHASES = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry two_phases(.param .u64 count) {
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [count];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
  mov.u32 %r2, %nctaid.x; atom.add.release.gpu.global.u32 %r3, [%d1], 1;
SPIN:
  ld.acquire.gpu.global.u32 %r4, [%d1]; setp.lt.u32 %p2, %r4, %r2; @%p2 bra SPIN;
MEET:
  bar.sync 0; ret;
}
"""


@pytest.fixture
def custom(tmp_path, monkeypatch):
    """custom(*arguments, launch=..): the exit code of a command that runs TWO_PHASES in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments, launch):
        section = {
            "kernel": "two_phases.ptx:two_phases",
            "buffers": {"count": {"dtype": "int32", "shape": [1], "fill": "zeros"}},
            "arguments": [{"address": "count"}],
            "reference": None,
        }
        write_experiment(tmp_path / "conf", **section, launch=launch)
        (tmp_path / "conf" / "exp" / "two_phases.ptx").write_text(TWO_PHASES)
        given = ["--config-dir", "conf", "+exp=mine", "fabric=simulator", "track=none", "check=false", *arguments]
        return main(given)

    return go


@pytest.mark.slow
def test_a_record_says_whose_limits_held(tmp_path):
    assert main([*SMALL, "fabric.gpu=h100", f"records={tmp_path}"]) == 0
    (record,) = read([tmp_path])
    assert record.fabric.settings["gpu"] == H100
    assert "GPU h100, registers " in record.fabric.description
    assert record.request.configuration["fabric"]["gpu"] == H100
    found = record.counters["residency"]["all_reduce/two_shot"]
    assert set(found) == {"registers", "blocks_at_once", "limits"}
    if find_ptxas() is not None:
        assert (found["registers"] > 32, found["limits"].endswith("limited by registers")) == (True, True)
    assert parameters_of(record)["fabric.gpu"] == "h100"
    assert main(["--plan", *SMALL, "fabric.gpu=h100", f"records={tmp_path}"]) == 0


@pytest.fixture
def tiny(tmp_path):
    """tiny(n): the override that names a GPU of so many multiprocessors."""

    def written(multiprocessors):
        (tmp_path / "tiny.yaml").write_text(MINE.format(multiprocessors))
        return f"fabric.gpu={tmp_path}/tiny.yaml"

    return written


def test_what_the_plan_says(capsys, tiny):
    assert main(["--plan", *SMALL, "fabric.gpu=h100"]) == 0
    assert "fabric: simulator, limits of h100, 132 multiprocessors (asked for)\n" in capsys.readouterr().out
    assert main(["--plan", *SMALL, tiny(1), "sizes=[4M]"]) == 2
    said = capsys.readouterr()
    assert "this GPU has 1 multiprocessors to run them on" in said.out + said.err


@pytest.mark.slow
def test_a_replay_has_the_same_limits_also_if_the_gpu_is_described_otherwise_by_now(tmp_path, monkeypatch, capsys):
    """The record's own numbers count."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "gpu").mkdir(parents=True)
    (tmp_path / "conf" / "gpu" / "mine.yaml").write_text(MINE.format(7))
    assert main(["-cd", "conf", *SMALL, "fabric.gpu=mine", "records=first"]) == 0
    (tmp_path / "conf" / "gpu" / "mine.yaml").write_text(MINE.format(99))
    capsys.readouterr()
    assert main(["replay", "first", "--records", "again"]) == 0, capsys.readouterr()
    (folder,) = {path.parent for path in (tmp_path / "again").rglob("command.json")}
    for record in [*read([tmp_path / "first"]), *read([folder])]:
        assert record.fabric.settings["gpu"] == {**H100, "name": "mine", "multiprocessors": 7}


@pytest.mark.parametrize(
    "launch", [{"grid": 5, "block": 1024, "cooperative": True}, {"grid": 1, "block": 1024, "shared_bytes": 240_000}]
)
def test_what_never_fits_is_refused_before_anything_runs(custom, tiny, tmp_path, capsys, launch):
    assert custom(tiny(2), launch=launch) == 2
    same_text(capsys.readouterr().err)
    assert not list(tmp_path.rglob("*.json"))
