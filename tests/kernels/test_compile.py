import hashlib
import json
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from kernels import compile as compile_module
from kernels.catalogue import find
from kernels.compile import cache_key, executable, with_relative_paths
from kernels.sources import ROOT, sources_of
from memory.fabric import Executable
from tests.golden import refused, same_text
from tests.processes import ran

ONE_SHOT = find("all_reduce/one_shot")
PROGRAM = """
import sys
from pathlib import Path
from kernels.catalogue import find
from kernels.compile import executable
from cases.case import Case
case = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 1024, 2)
print(executable(find(case.name), case, "sm_90a", Path(sys.argv[1])).digest)
print("cutlass" in sys.modules)
"""


@pytest.fixture
def case(case_of):
    return case_of("one_shot", world_size=2)


@pytest.fixture
def warm(case, tmp_path):
    """A cache folder with one good entry."""
    folder = tmp_path / "cache"
    executable(ONE_SHOT, case, "sm_90a", folder)
    return folder


@pytest.mark.slow
def test_the_second_time_nothing_is_compiled_or_imported(tmp_path):
    cache, folder = tmp_path / "cache", tmp_path / "elsewhere"
    folder.mkdir()

    def run():
        command = [sys.executable, "-c", PROGRAM, str(cache)]
        environment = {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    digest, imported = run()
    assert imported == "True"
    assert run() == [digest, "False"]
    assert list(folder.iterdir()) == []
    assert [path.suffix for path in cache.iterdir()] == [".json"]


def test_an_executable_names_itself_and_its_files(warm, case):
    found = executable(ONE_SHOT, case, "sm_90a", warm)
    assert found.name == "all_reduce/one_shot"
    assert found.digest == "sha256:" + hashlib.sha256(found.ptx.encode()).hexdigest()
    files = re.findall(r'^\s*\.file\s+\d+\s+"([^"]*)"', found.ptx, flags=re.MULTILINE)
    assert {"kernels/dsl/peers.py", "kernels/dsl/frame.py", "kernels/dsl/rank_barriers.py"} <= set(files)
    assert set(files) <= {source.name for source in sources_of(ONE_SHOT.files)}
    assert ".loc\t" in found.ptx
    assert str(ROOT) not in found.ptx


def test_what_decides_the_code_decides_the_key(case, monkeypatch):
    spec = ONE_SHOT
    keys = {cache_key(spec, case, "sm_90a"), cache_key(spec, replace(case, size_bytes=64), "sm_90a")}
    assert len(keys) == 1
    keys.add(cache_key(spec, case, "sm_100a"))
    keys.add(cache_key(spec, replace(case, accumulator="native"), "sm_90a"))
    keys.add(cache_key(spec, replace(case, reduction="avg"), "sm_90a"))
    keys.add(cache_key(replace(spec, files=(*spec.files, __file__)), case, "sm_90a"))
    keys.add(cache_key(replace(spec, algorithm="other"), case, "sm_90a"))
    with monkeypatch.context() as patch:
        patch.setattr(compile_module, "compiler_versions", lambda: {"nvidia-cutlass-dsl": "0"})
        keys.add(cache_key(spec, case, "sm_90a"))
    with monkeypatch.context() as patch:
        patch.setenv("CUTE_DSL_ENABLE_ASSERTIONS", "1")
        keys.add(cache_key(spec, case, "sm_90a"))
    assert len(keys) == 8


@pytest.mark.slow
def test_sources_that_change_in_the_meantime_are_not_compiled_as_they_were(tmp_path, case_of):
    edited, cache = tmp_path / "tools.py", tmp_path / "cache"
    edited.write_text("THREADS = 512\n")
    spec = replace(ONE_SHOT, files=(*ONE_SHOT.files, str(edited)))
    executable(spec, case_of(world_size=2), "sm_90a", cache)
    edited.write_text("THREADS = 256\n")
    with refused(RuntimeError):
        executable(spec, case_of(world_size=3), "sm_90a", cache)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", ["cut", "flip", "garbage", "shape", "digest", "deep", "deep part", "huge", "types", "parts"]
)
def test_a_corrupt_entry_is_replaced_with_a_warning(warm, case, caplog, damage):
    (path,) = warm.iterdir()
    good = path.read_text()
    bad = {
        "cut": good[: len(good) // 2],
        "flip": good.replace("ld.global.v4", "ld.global.v2", 1),
        "garbage": "\ufffd\x00",
        "shape": '["list"]',
        "digest": good.replace('"digest": "sha256:', '"digest": "sha256:0', 1),
        "deep": "[" * 100_000,
        "deep part": '{"executable": {"ptx": ' + "[" * 900 + "]" * 900 + '}, "checksum": ""}',
        "huge": "1" + "0" * 5000,
        "types": '{"executable": 1e400, "checksum": 10}',
        "parts": json.dumps({**json.loads(good), "executable": {"ptx": 1}}),
    }[damage]
    assert bad != good
    path.write_text(bad)
    with caplog.at_level(logging.INFO, logger="kernels.compile"):
        found = executable(ONE_SHOT, case, "sm_90a", warm)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    assert "\n" not in warnings[0]
    assert path.read_text() == good
    assert found.digest.startswith("sha256:")


@pytest.mark.slow
def test_an_entry_under_the_name_of_another_is_not_taken(warm, case, caplog):
    (ours,) = warm.iterdir()
    other = replace(case, reduction="max")
    wanted = executable(ONE_SHOT, other, "sm_90a", warm)
    (theirs,) = set(warm.iterdir()) - {ours}
    assert wanted.digest != executable(ONE_SHOT, case, "sm_90a", warm).digest
    shutil.copy(ours, theirs)
    found = executable(ONE_SHOT, other, "sm_90a", warm)
    assert found == wanted
    (message,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert str(theirs) in message
    assert "another kernel, variant or version" in message
    assert executable(ONE_SHOT, other, "sm_90a", warm) == wanted
    assert len(caplog.records) == 1


def test_a_cache_that_cannot_be_written_is_done_without_and_told_once(case, caplog, tmp_path):
    folder = tmp_path / "file"
    folder.write_text("in the way")
    for reduction in ("sum", "max"):
        found = executable(ONE_SHOT, replace(case, reduction=reduction, accumulator="native"), "sm_90a", folder)
        assert found.entry == "all_reduce_one_shot_0"
    (message,) = [record.getMessage() for record in caplog.records]
    same_text(message)
    assert folder.read_text() == "in the way"


def test_threads_that_want_the_same_compile_it_once(case, caplog, tmp_path):
    found: list[Executable] = []
    with caplog.at_level(logging.INFO, logger="kernels.compile"):
        threads = [
            threading.Thread(target=lambda: found.append(executable(ONE_SHOT, case, "sm_90a", tmp_path)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4
    assert len({one.digest for one in found}) == 1
    assert len([record for record in caplog.records if record.getMessage().startswith("compiled")]) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_kernel_that_does_not_compile_is_one_error(case, tmp_path):
    spec = replace(ONE_SHOT, parameters=ONE_SHOT.parameters[:-1])
    with refused(RuntimeError, r"error\[.*"):
        executable(spec, case, "sm_90a", tmp_path)
    with refused():
        executable(ONE_SHOT, case, "sm_80", tmp_path)  # for which the spec is not built
    assert list(tmp_path.iterdir()) == []


def test_paths_become_relative():
    lines = [
        f'\t.file\t1 "{ROOT}/kernels/dsl/device.py"',
        '\t.file\t2 "/opt/site-packages/nvidia/cutlass/cute/arch/x.py"',
        '\t.file\t3 "/home/somebody/kernel.py"',
    ]
    assert with_relative_paths("\n".join(lines)) == "\n".join(
        ['\t.file\t1 "kernels/dsl/device.py"', '\t.file\t2 "cutlass/cute/arch/x.py"', '\t.file\t3 "kernel.py"']
    )


def test_the_cache_is_made_for_its_user_alone_and_what_others_can_write_is_not_used(tmp_path, case, caplog):
    cache = tmp_path / "home" / "cache"
    mask = os.umask(0)
    try:
        executable(ONE_SHOT, case, "sm_90a", cache)
    finally:
        os.umask(mask)
    (entry,) = cache.iterdir()
    good = entry.read_text()
    for _ in range(2):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (cache.parent, cache, entry)}
        assert modes == {"home": 0o700, "cache": 0o700, entry.name: 0o600}
        assert entry.read_text() == good
        entry.chmod(0o666)
        with caplog.at_level(logging.INFO, logger="kernels.compile"):
            executable(ONE_SHOT, case, "sm_90a", cache)
        assert any("other users can have written it" in record.getMessage() for record in caplog.records)
    cache.chmod(0o777)
    with refused():
        executable(ONE_SHOT, case, "sm_90a", cache)


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_waits_until_the_compiler_has_returned(case, tmp_path, times):
    """It would abort the process on its way through the compiler. What was compiled is kept."""

    def interrupting(case):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return ONE_SHOT.build(case)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            executable(replace(ONE_SHOT, build=interrupting), case, "sm_90a", tmp_path / "cache")
    finally:
        signal.signal(signal.SIGINT, before)
    (entry,) = (tmp_path / "cache").iterdir()
    assert json.loads(entry.read_text())["executable"]["ptx"]


ENDED = """
import os, signal, sys, threading
from pathlib import Path

threading.Thread(target=threading.Event().wait, daemon=True).start()  # as the compiler has threads of its own

from kernels import compile
from memory.fabric import Executable

written = Path.write_text

def write_text(path, text):
    written(path, text[:100])
    os.kill(os.getpid(), signal.SIGTERM)
    return written(path, text)

Path.write_text = write_text
path = Path(sys.argv[1], "entry.json")
compile._store(path, "key", Executable("name", "entry", "sm_90a", "ptx", "sha256:0", b"cubin"))
print("it goes on")
"""
"""A process that is ended in the middle of a write to the cache, with a second thread that could take the signal."""


def test_a_process_that_is_ended_while_it_writes_leaves_a_whole_entry(tmp_path):
    done = ran("-c", ENDED, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["entry.json"]
    assert json.loads((tmp_path / "entry.json").read_text())["key"] == "key"
