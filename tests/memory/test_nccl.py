"""The version that an NCCL names itself: the loaded one's, the preloaded one's, and a file's."""

import os
import shutil
import subprocess
import sys

import pytest

from memory import nccl
from memory.nccl import loaded_version, version_at, version_of_file, version_text

LIBRARY = "int ncclGetVersion(int* version) {{ *version = {number}; return {result}; }}"

ASK = "import ctypes, sys; [ctypes.CDLL(path, int(mode)) for path, mode in zip(sys.argv[1::2], sys.argv[2::2])]; \
from memory.nccl import loaded_version; print(loaded_version())"


def library(folder, number, result=0):
    """An NCCL that knows nothing but its version."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder.mkdir()
    (folder / "nccl.c").write_text(LIBRARY.format(number=number, result=result))
    path = folder / "libnccl.so.2"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(folder / "nccl.c")], check=True)
    return path


@pytest.mark.parametrize(
    ("number", "text"), [(22809, "2.28.9"), (23203, "2.32.3"), (20900, "2.9.0"), (2804, "2.8.4"), (22707, "2.27.7")]
)
def test_a_number_is_a_version(number, text):
    assert version_text(number) == text


def test_a_file_says_its_version_in_a_process_of_its_own(tmp_path):
    path = library(tmp_path / "one", 23203)
    assert version_of_file(path) == "2.32.3"
    assert str(path) not in nccl.MAPS.read_text()
    assert version_of_file(tmp_path / "one" / "nccl.c") == ""
    assert version_of_file(library(tmp_path / "failing", 23203, result=3)) == ""


def said(tmp_path, *loaded, preload=""):
    environment = os.environ | {"LD_PRELOAD": preload}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *loaded], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    return done.stdout.strip()


def test_of_two_libraries_the_one_that_calls_reach_is_named(tmp_path):
    built_with, preloaded = library(tmp_path / "one", 22809), library(tmp_path / "two", 23203)
    own, shared = str(os.RTLD_LOCAL), str(os.RTLD_GLOBAL)
    assert said(tmp_path) == ""
    assert said(tmp_path, str(built_with), own) == "2.28.9"
    assert said(tmp_path, str(built_with), shared, preload=str(preloaded)) == "2.32.3"
    assert said(tmp_path, str(built_with), own, preload=str(preloaded)) == "2.32.3"


def test_without_nccl_there_is_no_version(monkeypatch, tmp_path):
    monkeypatch.setattr(nccl, "MAPS", tmp_path / "none")
    assert version_at(str(tmp_path / "none.so")) == ""
    assert loaded_version() == ""
