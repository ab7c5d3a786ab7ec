"""The command line from end to end on stub worlds: what it prints, what it keeps, how it ends."""

import builtins
import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from cases.record.record import load
from memory.held_interrupts import uninterrupted
from reports.record.seal import digest_of
from runner.command.means import usual_means
from runner.interrupt import Interrupted, interruptible
from runner.world.world import WorldFailure
from tests.golden import same_text
from tests.patience import PATIENCE_S, until
from tests.runner.conftest import BAD, TWO, Script, record_files, started


def test_a_run_says_what_it_does_and_keeps_every_case(symlab):
    done = symlab("+exp=allreduce_bf16")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "symlab: all_reduce bfloat16/float32 sum, 8 ranks, 6 sizes x 4 algorithms = 24 cases"
    assert lines[1].startswith("fabric: simulator (")
    assert lines[2] == "[1/24] one_shot 1K n8 PASSED"
    assert "24 cases: 24 passed; races: not looked for" in lines
    assert done.statuses == ["PASSED"] * 24
    (folder,) = (done.folder / "records").iterdir()
    assert lines[-1] == f"records: records/{folder.name} ({digest_of(folder)})"
    assert "\x1b" not in done.out
    assert [path.name for path in done.folder.iterdir()] == ["records"]


def test_what_a_record_says_about_the_request(symlab):
    done = symlab("-m", "+exp=allreduce_fp16", "world_size=2,4", "sizes=[8]", "algorithms=[one_shot]")
    first, second = (record["request"] for record in done.records)
    assert first["command"] == second["command"]
    assert (first["job"], second["job"], first["jobs"], first["experiment"]) == (0, 1, 2, "allreduce_fp16")
    assert first["command_line"][:4] == ["symlab", "run", "-m", "+exp=allreduce_fp16"]
    lines = "+exp=allreduce_fp16 world_size=4 sizes.list=[8] algorithms=[one_shot] track=none"
    assert second["overrides"] == lines.split()
    assert second["configuration"]["world_size"] == 4
    written = sorted((done.folder / "records" / first["command"]).glob("*.yaml"))
    assert [path.name for path in written] == ["00-configuration.yaml", "01-configuration.yaml"]
    assert yaml.safe_load(written[1].read_text()) == second["configuration"]
    again = symlab(*second["overrides"])
    assert again.records[-1]["request"]["configuration"] == second["configuration"], "it can be run again"


def test_a_failed_job_does_not_stop_the_others_and_every_failure_is_listed(symlab, script):
    script.outcomes = {
        "one_shot-float32-float32-sum-n2": WorldFailure("DEADLOCK", None, "no rank can go on\nrank 0 waits"),
        "two_shot-float32-float32-sum-n3": BAD,
    }
    done = symlab("-m", "world_size=2,3,4", "sizes=[8]")
    assert done.code == 1
    assert done.statuses == ["DEADLOCK"] + ["PASSED"] * 4 + ["WRONG"]
    assert "told under 'failed', on standard error" in done.out
    assert "below" not in done.out, "where stdout is a file, nothing is below it"
    same_text(done.err, r"\d{8}T\d{6}Z-\w+-[0-9a-f]{8}")
    assert (done.out + done.err).count("first at rank 1") == 1, "a story is told once"
    assert done.out.count("all_reduce-two_shot-float32-float32-sum-n3-8B") == 2, "elsewhere it has its id"
    assert "6 cases: 4 passed, 1 deadlock, 1 wrong" in done.out


@pytest.mark.slow
def test_a_world_is_kept_between_jobs_of_one_size_and_always_closed(symlab, script):
    assert symlab("-m", "world_size=2,3", "seed=1,2", "sizes=[8]").code == 0
    assert [world.world_size for world in script.worlds] == [2, 3]
    assert all(world.closed for world in script.worlds)
    assert script.captures == 1


@pytest.mark.slow
def test_some_refused_is_fine_and_all_refused_is_not(symlab):
    some = symlab("algorithms=[one_shot,multimem_one_shot]", "sizes=[8]", "fabric.multicast=false")
    assert some.code == 0
    assert "2 cases: 1 passed, 1 refused" in some.out
    assert some.out.count("no multicast here") == 1, "each reason is said once"
    every = symlab("algorithms=[multimem_one_shot]", "sizes=[8]", "fabric.multicast=false")
    assert every.code == 2
    same_text(every.err)


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Interrupted(signal.SIGTERM), 143)])
def test_an_interrupt_keeps_and_shows_what_is_done(symlab, script, error, code):
    script.outcomes = {"two_shot-float32-float32-sum-n3": error}
    done = symlab("-m", "world_size=2,3,4", "sizes=[8]")
    assert done.code == code
    assert done.statuses == ["PASSED"] * 3
    assert "interrupted" in done.err
    assert "6 cases: 3 passed, 3 not run" in done.out
    (folder,) = (done.folder / "records").iterdir()
    assert done.out.endswith(f"\nsymlab resume records/{folder.name} runs the 3 cases that are left\n")
    assert "one_shot" in done.out.rpartition("] ")[2], "the table of what was done"
    assert all(world.closed for world in script.worlds)


@pytest.mark.slow
def test_ctrl_c_while_a_kernel_is_compiled(symlab, script, database, mlflow_runs, monkeypatch):
    compiled, made = Script._compiled, []

    def compiling(self, spec, case, arch, cache_dir):
        with uninterrupted():
            if spec.name.endswith("two_shot"):
                os.kill(os.getpid(), signal.SIGINT)
            made.append(spec.algorithm)
            return compiled(self, spec, case, arch, cache_dir)

    monkeypatch.setattr(Script, "_compiled", compiling)
    tracked = (f"track.uri={database}", "track.experiment=ctrl_c_compiling")
    done = symlab("sizes=[8]", *tracked, track=True)
    assert (done.code, made, done.statuses) == (130, ["one_shot", "two_shot"], ["PASSED"])
    assert "interrupted" in done.err
    runs = mlflow_runs("ctrl_c_compiling")
    assert [run.info.status for run in [*runs["parents"], *runs["children"]]] == ["KILLED", "FINISHED"]


def test_ctrl_c_while_the_libraries_are_imported(monkeypatch):
    """Torch catches whatever is raised while it imports NumPy, and goes on with half of it."""
    imported, seen = builtins.__import__, []

    def importing(name, *others):
        if name == "runner.case.program" and not seen:
            os.kill(os.getpid(), signal.SIGINT)
        seen.append(name)
        return imported(name, *others)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(KeyboardInterrupt), interruptible():
        usual_means()
    assert {"runner.case.program", "kernels.compile"} <= set(seen)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--help", ["usage:", "+exp=allreduce_bf16", "accumulator_study", "world_size", "exit codes", "--multirun"]),
        ("--cfg job +exp=allreduce_fp16", ["dtype: float16", "world_size: 8"]),
    ],
)
def test_looking_without_running(symlab, arguments, parts):
    done = symlab(*arguments.split())
    assert (done.code, done.err) == (0, "")
    assert [part for part in parts if part not in done.out] == []
    assert list(done.folder.iterdir()) == []


def test_help_imports_nothing_heavy_and_works_from_anywhere(tmp_path):
    code = """
        import sys
        from runner.__main__ import main
        for arguments in (["--help"], ["--cfg", "job"]):
            assert main(arguments) == 0
        heavy = {"torch", "mlflow", "cutlass", "numpy", "pandas"} & set(sys.modules)
        assert not heavy, heavy
    """
    run = started(tmp_path, code)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    assert list(tmp_path.iterdir()) == []


STUBBORN = """
    import os, sys, time
    sys.path.insert(0, {tests!r})
    from conftest import GOOD, Script
    from runner.__main__ import main

    class Slow(Script):
        def _run_case(self, world, contestant, request):
            self.ran.append(contestant.case.id)
            if len(self.ran) == 2:
                print("waiting", flush=True)
                ends_s = time.monotonic() + 600
                while time.monotonic() < ends_s and not os.path.exists("go"):
                    time.sleep(0.05)
            return GOOD

    class SlowToClose(Slow):
        def _world(self, fabric, world_size, say):
            world = super()._world(fabric, world_size, say)
            world.close = lambda: (print("closing", flush=True), time.sleep(3600))
            return world

    sys.exit(main(sys.argv[2:], (SlowToClose if sys.argv[1] == "slow" else Slow)().tools()))
"""


class Started:
    """A command line in a process of its own whose second case takes ten minutes, or until a file "go" is there.

    hangup is what the process finds for SIGHUP: like a command under nohup, the tests may have been started with it
    ignored, and a child inherits that.
    """

    def __init__(self, folder, *arguments, hangup=signal.SIG_DFL):
        code = textwrap.dedent(STUBBORN).format(tests=str(Path(__file__).parent))
        self.process = started(folder, code, *arguments, TWO, preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup))
        self.out = ""

    def until(self, text):
        for line in self.process.stdout:
            self.out += line
            if text in line:
                return
        raise AssertionError(f"'{text}' never came: {self.out}")

    def end(self):
        try:
            self.out += self.process.communicate(timeout=PATIENCE_S)[0]
        finally:
            self.process.kill()
        return self.process.returncode


@pytest.mark.slow
def test_a_second_ctrl_c_quits_at_once(tmp_path, database, mlflow_runs):
    started = Started(tmp_path, "slow", "sizes=[8]", f"track.uri={database}", "track.experiment=ctrl_c_twice")
    started.until("waiting")
    started.process.send_signal(signal.SIGINT)
    started.until("closing")
    started.process.send_signal(signal.SIGINT)
    assert started.end() == 130, "it did not wait for the world, which closes in an hour"
    assert "Traceback" not in started.out
    assert len(record_files(tmp_path)) == 1

    # The process that sends to MLflow ends the runs even when the command has gone, on a busy machine seconds later.
    def have_ended():
        runs = mlflow_runs("ctrl_c_twice")
        statuses = {run.info.status for run in [*runs["parents"], *runs["children"]]}
        return bool(statuses) and "RUNNING" not in statuses

    until(have_ended, "the end of the command's runs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "hangup", "code"),
    [
        (signal.SIGINT, signal.SIG_DFL, 130),
        (signal.SIGTERM, signal.SIG_DFL, 143),
        (signal.SIGHUP, signal.SIG_DFL, 129),
        (signal.SIGHUP, signal.SIG_IGN, 0),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "under nohup"],
)
def test_an_end_that_others_ask_for(tmp_path, number, hangup, code):
    started = Started(tmp_path, "quick", "sizes=[8]", "track=none", hangup=hangup)
    started.until("waiting")
    started.process.send_signal(number)
    if not code:
        (tmp_path / "go").touch()
    assert started.end() == code
    assert "Traceback" not in started.out
    assert len(record_files(tmp_path)) == (1 if code else 2)
    assert f"2 cases: {'1 passed, 1 not run' if code else '2 passed'}" in started.out


def test_unchecked_is_counted_apart_and_one_is_no_plural(symlab):
    assert "2 cases: 2 passed unchecked" in symlab("sizes=[8]", "check=false").out
    done = symlab("sizes=[8]", "algorithms=[one_shot]", "world_size=1")
    assert done.out.splitlines()[0].endswith("sum, 1 rank, 1 size x 1 algorithm = 1 case")


def test_jobs_of_a_sweep_are_told_apart(symlab):
    lines = symlab("-m", "seed=range(1,3)", "dtype=float32,float16", "world_size=2", "sizes=[8]").out.splitlines()
    assert "[1/8] one_shot 8 n2 (seed=1 dtype=float32) PASSED" in lines
    assert "[8/8] two_shot 8 n2 (seed=2 dtype=float16) PASSED" in lines
    headings = [line for line in lines if line.startswith("all_reduce ")]
    assert [heading.rpartition(", ")[2] for heading in headings] == ["seed=1", "seed=1", "seed=2", "seed=2"]


@pytest.mark.slow
def test_the_configurations_of_a_sweep(symlab):
    done = symlab("-m", "--cfg", "job", "+exp=allreduce_fp16,barrier")
    assert (done.code, done.err) == (0, "")
    documents = list(yaml.safe_load_all(done.out))
    assert [one["dtype"] for one in documents] == ["float16"] + ["auto"] * 3
    assert [one["world_size"] for one in documents[1:]] == [2, 4, 8]
    assert "---\n# job 2 of 4: world_size=2 +exp=barrier\n" in done.out


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("/x/runner/__main__.py", ["python", "-m", "runner"]),
        ("/x/symlab/__main__.py", ["python", "-m", "symlab", "run"]),
        ("/x/bin/symlab", ["symlab", "run"]),
    ],
)
def test_a_record_says_how_it_was_started(symlab, monkeypatch, first, expected):
    monkeypatch.setattr(sys, "argv", [first, "ignored"])
    done = symlab("sizes=[8]")
    assert done.records[0]["request"]["command_line"] == [*expected, "sizes=[8]", TWO, "track=none"]


REAL = """
    import json, sys
    from runner.__main__ import main
    code = main(sys.argv[1:])
    print(json.dumps({"code": code, "cutlass": "cutlass" in sys.modules, "mlflow": "mlflow" in sys.modules}))
"""


@pytest.mark.slow
def test_real_kernels_on_the_simulator_and_the_second_time_from_the_cache(tmp_path):
    arguments = ["dtype=bfloat16", "sizes=[2,1K]", "algorithms=[one_shot,multimem_two_shot]", "inputs=exact"]
    seen = []
    for _ in range(2):
        said, _ = started(tmp_path, REAL, *arguments, "cache_dir=cache", "track=none", "world_size=3").communicate()
        assert "4 cases: 4 passed" in said
        seen.append(json.loads(said.splitlines()[-1]))
    assert seen == [{"code": 0, "cutlass": is_compiled, "mlflow": False} for is_compiled in (True, False)]
    for path in record_files(tmp_path):
        record = load(path)
        assert record.verified
        assert record.counters["instructions"] > 0
        assert record.check.method == "bitwise"
        assert (path.parent / "ptx" / f"{record.kernel.ptx_digest.removeprefix('sha256:')}.ptx").is_file()
