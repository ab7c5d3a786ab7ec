"""Wrong requests: one line that says what, where and what would be right; exit code 2; nothing written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource

import runner
from runner.records.store import Store, StoreError
from tests.runner.conftest import Outcome, Script

ROOT = Path(runner.__file__).parent.parent
Symlab = Callable[..., Outcome]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["op=all_reduse"], ["unknown op 'all_reduse' (op)", "all_reduce"]),
        (["dtype=float61"], ["unknown dtype 'float61' (dtype)", "float16"]),
        (["algorithms=[one_shot,two_shots]"], ["unknown algorithm 'two_shots'", "(algorithms)", "two_shot"]),
        (["+exp=allreduce_bf17"], ["unknown exp 'allreduce_bf17' (exp)", "allreduce_bf16"]),
        (["world_size=0"], ["a world of 0 ranks is not possible (world_size), give 1 to 72"]),
        (["world_size=73"], ["a world of 73 ranks is not possible (world_size), give 1 to 72"]),
        (["world_size=-1"], ["(world_size), give 1 to 72"]),
        (["sizes=[-4]"], ["-4 bytes (sizes.list[0])"]),
        (["sizes.min=-1K"], ["'-1K' is not a size (sizes.min)"]),
        (["sizes=[]"], ["no sizes in the list (sizes.list)"]),
        (["sizes.min=0"], ["0 bytes (sizes.min)"]),
        (["sizes=[4K,4096]"], ["4K is listed twice (sizes.list)"]),
        (["sizes=[1K,3]"], ["3 bytes are no whole number of float32 elements (sizes)", "multiple of 4"]),
        (
            ["sizes=1G"],
            ["1G is beyond the heap of 256M a rank (sizes, fabric.heap_bytes)", "bytes fit: give sizes up to 64M or a"],
        ),
        (["fabric.heap_bytes=64K", "sizes=[1M]"], ["1M is beyond the heap of 64K a rank", "at most"]),
        (
            ["fabric.heap_bytes=16K", "sizes=[1M]"],
            ["1M is beyond the heap of 16K a rank", "nothing fits: give a larger fabric.heap_bytes"],
        ),
        (["fabric.heap_bytes=8G"], ["a heap of 8G a rank (fabric.heap_bytes), give 4K to 4G"]),
        (["fabric.heap_bytes=1K"], ["a heap of 1K a rank (fabric.heap_bytes), give 4K to 128G"]),
        (["dtype=bfloat16", "accumulator=float64"], ["bfloat16 has no accumulator 'float64' (accumulator)", "float32"]),
        (["sizes.min=1M", "sizes.max=1K"], ["the smallest size, 1M, is above the largest, 1K (sizes.min, sizes.max)"]),
        (["timing=none"], ["timing is a section and not 'none' (timing), give it keys: {mode: .., window: ..}"]),
        (["sizes.factor=1"], ["sizes would never grow with factor 1 (sizes.factor), give 2 or more"]),
        (["sizes.factor=1.5"], ["1.5", "(sizes.factor)"]),
        (["placement=inplace"], ["unknown placement 'inplace' (placement), did you mean in_place"]),
        (["inputs=ones"], ["unknown inputs 'ones' (inputs)", "exact"]),
        (["reduction=average"], ["unknown reduction 'average' (reduction)", "did you mean avg"]),
        (["seed=-1"], ["seed is -1 (seed), give 0 or more"]),
        (["launches=0"], ["0 launches of a case (launches)"]),
        (["deadline_s=0"], ["(deadline_s)", "give seconds"]),
        (["deadline_s=-3"], ["(deadline_s)", "give seconds"]),
        (["algorithms=[]"], ["'[]' is not a list of algorithms (algorithms), give auto, all, device_nvshmem or names"]),
        (["algorithms=[one_shot,one_shot]"], ["one_shot is listed twice (algorithms)"]),
        (["wurld_size=2"], ["unknown key 'wurld_size'", "world_size"]),
        (["fabric=nvshmem"], ["(fabric=nvshmem), ", "fabric=simulator"]),
        (["fabric=cuda"], ["unknown fabric 'cuda' (fabric)", "simulator"]),
        (["track.uri=mlruns"], ["'mlruns' is no tracking URI (track.uri)"]),
        (["records=/dev/null/here"], ["/dev/null is not a folder (records=/dev/null/here)"]),
        (["records=''"], ["no records given (records)"]),
        (["cache_dir=/dev/null"], ["/dev/null is not a folder (cache_dir=/dev/null)"]),
        (["--cgf", "job"], ["no such option '--cgf', did you mean '--cfg'? (see python -m runner --help)"]),
        (["--cfg", "jobs"], ["jobs"]),
        (["--cfg", "job", "-p", "nowhere"], ["no 'nowhere' in the configuration (--package)"]),
        (
            ["--config-dir", "/dev/null/here"],
            ["no folder /dev/null/here (--config-dir), give one that holds experiments in exp/"],
        ),
        (["-m", "world_size=2,99"], ["a world of 99 ranks", "in job 2 of 2: world_size=99"]),
        (["-m", "world_size=2,two"], ["(world_size)", "in job 2 of 2: world_size=two"]),
        (["fabric.arch=sm_80"], ["all_reduce is not built for 'sm_80' (fabric.arch), known: sm_90, sm_90a"]),
        (["--cfg", "job", "world_size=2,4"], ["'world_size=2,4' gives several values", "add -m"]),
        (["-m", "sizes=[8],[7]"], ["7 bytes are no whole number", "in job 2 of 2: sizes.list=[7]"]),
        (["-m", "records=a,b"], ["one value of records", "leave it out"]),
        (["+exp=/etc/passwd"], ["'/etc/passwd' is a path (exp), give the name of a file in exp/ without .yaml"]),
        (["+exp=../config"], ["'../config' is a path (exp)", "--config-dir adds a folder"]),
        (["fabric=../exp/barrier"], ["'../exp/barrier' is a path (fabric), give the name of a file in fabric/"]),
        (["-m", "+exp=barrier,/etc/passwd"], ["'/etc/passwd' is a path (exp)"]),
        (["+exp=barrier.yaml"], ["'barrier.yaml' is a path (exp)", "without .yaml"]),
        (["+exp=mine/first"], ["unknown exp 'mine/first' (exp), known: accumulator_study"]),
        (["+exp=[barrier]"], ["is a list (exp), give one name, or sweep over several: -m +exp=a,b"]),
        (["+exp=null"], ["no exp given (exp), known: accumulator_study"]),
        (["+exp={a:1}"], ["is not a name (exp), known: accumulator_study"]),
        (["fabric=[]"], ["no fabric given (fabric), known: auto, nvshmem, simulator"]),
        (["fabric=null"], ["no fabric given (fabric), known: auto, nvshmem, simulator"]),
        (["sizes=[1T]"], ["'1T' has the unknown unit 'T' (sizes.list[0]), give K, M or G: powers of 1024"]),
        (["sizes.max=1T"], ["'1T' has the unknown unit 'T' (sizes.max), give K, M or G"]),
        (["sizes=null"], ["sizes=null leaves no sizes (sizes), give sizes=[1K,4K] or a range: sizes.min=1K"]),
        (["-m", "sizes=[8],null"], ["sizes=null leaves no sizes (sizes)"]),
        (["sizes.min=null"], ["null is not a size (sizes.min), give a positive number of bytes"]),
        (["timing=null"], ["timing is a section and not null (timing), give it keys: {mode: .., window: ..}"]),
        (["timing=[1]"], ["timing is a section and not a list (timing), give it keys: {mode: .., window: ..}"]),
        (["hydra.mode=foo"], ["'foo' is an unknown word (hydra.mode), give RUN or MULTIRUN"]),
        (["hydra=null"], ["hydra is a section (hydra=null), give one of its keys, such as hydra.mode"]),
        (["hydra.sweeper.params.seed=1,2", "-m"], ["leads through a section that is null"]),
        (["hydra.sweeper.params={seed: 3}", "-m"], ["leads through a section that is null"]),
        (["inputs=random"], ["unknown inputs 'random' (inputs), known: edge, exact, normal"]),
        (["dtype=uint8"], ["all_reduce does not support uint8 (dtype), give one of float64, float32"]),
        (
            ["op=barrier", "algorithms=auto", "dtype=uint8"],
            ["barrier does not support uint8 (dtype), give one of uint32"],
        ),
        (["track.uri=sqlite:///gone/x.db"], ["there is no folder", "gone for the database (track.uri=", "create the"]),
        (["+fabric=simulator"], ["fabric has a value already (fabric), leave out the +: fabric=.."]),
        (["++fabric=simulator"], ["++ is unsupported for a group (fabric), leave it out: fabric=.."]),
        (["+timing=none"], ["the key 'timing' is there already (timing), leave out the +: timing=.."]),
        (["~exp"], ["no exp was chosen that could be removed (~exp), leave it out"]),
        (["~op=reduce"], ["no 'op' with that value to remove (~op), leave it out"]),
        (["fabric@x=simulator"], ["a package is unsupported (fabric@..), leave it out: fabric=.."]),
        (["=3"], ["'=3' has no key (command line), write overrides as key=value"]),
        (["op=null"], ["op is null (op), give a word"]),
        (["op=[1]"], ["'[1]' is not a word (op), give a word"]),
        (["world_size=two"], ["'two' is not a whole number (world_size), give a whole number"]),
        (["deadline_s=soon"], ["'soon' is not a number (deadline_s), give a number"]),
        (["check=maybe"], ["'maybe' is not true or false (check.results), give true or false"]),
        (["fabric.granularity=foo"], ["unknown granularity 'foo' (fabric.granularity), known: access, block"]),
        (["op=${nowhere}"], ["${nowhere} refers to an unknown key (op), give a value"]),
        (["op=${op}"], ["op refers to itself (op), give a value"]),
        (["seed=${oc.env:NO_SUCH_VARIABLE}"], ["'NO_SUCH_VARIABLE' not found (seed), give a value"]),
        (["seed=???"], ["seed has no value (seed), give a value"]),
    ],
)
def test_one_line_two_and_nothing_written(
    symlab: Symlab, script: Script, arguments: list[str], parts: list[str]
) -> None:
    done = symlab(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("symlab: error: ")
    assert done.err.count("\n") == 1
    assert [part for part in parts if part not in done.err] == [], done.err
    assert list(done.folder.iterdir()) == []
    assert script.ran == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "unknown exp 'nothing' (defaults in exp/bad.yaml), known: accumulator_study, "),
        ("/fabric: nothing", "unknown fabric 'nothing' (defaults in exp/bad.yaml), known: auto, nvshmem, simulator"),
    ],
)
def test_a_default_that_a_file_names_is_looked_for_in_that_file(
    name: str, message: str, symlab: Symlab, tmp_path: Path
) -> None:
    folder = tmp_path / "mine" / "exp"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text(f"# @package _global_\ndefaults:\n  - {name}\n")
    done = symlab("+exp=bad", "--config-dir", "mine", "--cfg", "job")
    assert done.code == 2
    assert done.err.startswith(f"symlab: error: {message}")
    assert done.err.count("\n") == 1


def test_an_experiment_that_this_user_may_not_read(
    symlab: Symlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine" / "exp"
    folder.mkdir(parents=True)
    (folder / "locked.yaml").write_text("# @package _global_\nop: all_reduce\n")
    real = FileConfigSource.load_config

    def refused(self: FileConfigSource, config_path: str) -> object:
        if "locked" in config_path:
            raise PermissionError(errno.EACCES, "Permission denied", config_path)
        return real(self, config_path)

    monkeypatch.setattr(FileConfigSource, "load_config", refused)  # for root no file is locked
    done = symlab("+exp=locked", "--config-dir", "mine", "--cfg", "job")
    wanted = "exp/locked.yaml: no permission to read it (exp), give this user read permission"
    assert (done.code, done.err) == (2, f"symlab: error: {wanted}\n")


def test_a_records_folder_without_permission(symlab: Symlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: False if Path(path) == locked else real(path, mode))
    done = symlab("records=locked/here")
    assert done.code == 2
    assert f"no permission to write in {locked} (records=locked/here)" in done.err
    assert list(locked.iterdir()) == []


def test_a_records_folder_that_only_fails_when_it_is_made(symlab: Symlab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(root: Path, label: str) -> Store:
        raise StoreError(f"records: can't be written in {root}: Read-only file system; name another folder")

    monkeypatch.setattr(Store, "create", refused)
    done = symlab("sizes=[8]")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "Read-only file system; name another folder (records)" in done.err


def test_a_full_disk_while_storing(symlab: Symlab, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if len(script.ran) >= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    done = symlab("-m", "world_size=2,3", "sizes=[8,16]")
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if line.startswith("symlab: error: ")]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert done.statuses == ["PASSED"]
    assert len(script.ran) == 2, "the rest stops"
    assert "8 cases: 1 passed, 7 not run" in done.out
    assert [path for path in done.folder.glob("records/*/*") if path.name.endswith(".tmp")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", [["-m", "runner"], ["-c", "from runner.__main__ import main; raise SystemExit(main())"]]
)
def test_a_process_ends_with_two_and_without_a_traceback(tmp_path: Path, module: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, *module, "world_size=two"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("symlab: error: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", ["--help", "sizes=[8] track=none", "--cfg job"])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_an_output_that_takes_nothing_is_no_traceback(tmp_path: Path, output: str, arguments: str) -> None:
    run = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m runner {arguments} {output}', sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1, run.stderr
    assert "standard output" in run.stderr


def test_before_main_nothing_is_imported_that_takes_time() -> None:
    """A Ctrl-C meanwhile would be a traceback."""
    code = "import sys, runner.__main__; print({'omegaconf', 'hydra', 'yaml', 'argparse', 'click'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
