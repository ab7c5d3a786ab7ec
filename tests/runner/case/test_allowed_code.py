"""Which files a record may have run, told from paths alone."""

import sys
from pathlib import Path

import pytest

from kernels.brought import module_files
from kernels.sources import ROOT
from runner.case.allowed_code import allowed_code, files_of
from tests.golden import refused


def allows(file, records="", named="", folder=None):
    places = [Path(records)] if records else []
    names = [Path(named)] if named else []
    return not allowed_code(places, names, folder).refuses([file.resolve()])


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with a file and a link out of it, records of its own, and a stranger's folder."""
    names = ["work/my/a.py", "work/records/x/case.json", "work/stranger/records/case.json", "outside/a.py"]
    for name in (*names, "work/case.json", "work/case.jsonl.xz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "work/my/link.py").symlink_to(tmp_path / "outside/a.py")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("file", "given"),
    [
        ("my/a.py", ["records/x"]),
        ("my/a.py", ["records/x/case.json"]),
        ("my/a.py", []),
        ("a.py", ["records"]),
        ("stranger/a.py", ["stranger/records", "stranger"]),
        ("../outside/a.py", ["records/x", "../outside"]),
        ("my/a.py", ["case.jsonl.xz"]),
    ],
)
def test_files_that_are_allowed(work, file, given):
    assert allows(work / file, *given)


@pytest.mark.parametrize(
    "asked",
    [
        "records/x/a.py of records/x",
        "records/x/a.py of records/x/case.json",
        "records/a.py of records/x",
        "stranger/records/a.py of stranger/records",
        "stranger/a.py of stranger/records",
        "my/a.py of .",
        "my/a.py of ..",
        "my/a.py of case.json",
        "my/link.py of records",
        "../outside/a.py of records/x",
        "venv/lib/python3/site-packages/a.py of records/x",
    ],
)
def test_files_that_are_not(work, asked):
    """A record's file takes its folder with it, where a bundle does not; a link is where it leads."""
    file, records = asked.split(" of ")
    assert not allows(work / file, records)


def test_the_projects_files_count_from_anywhere(work):
    ring = ROOT / "conf" / "exp" / "own" / "ring.py"
    assert allows(ring, "records/x")
    assert allows(ring, str(ROOT)), "where the root itself holds the records"
    assert not allows(ROOT / "conf" / "ring.py", str(ROOT / "conf"))


def test_installed_files_and_pythons_library_do_not():
    for file in (Path(pytest.__file__), Path(sys.modules["json"].__file__ or "")):
        assert not allows(file)
        assert not allows(file, folder=file.parents[3]), "even if the working folder holds them"
        assert allows(file, named=str(file.parent))


def test_modules_are_found_without_importing_them(work, monkeypatch):
    (work / "packed").mkdir()
    (work / "packed" / "__init__.py").write_text("raise SystemExit('imported')")
    (work / "packed" / "one.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(work)
    assert module_files("packed.one") == (work / "packed" / "__init__.py", work / "packed" / "one.py")
    assert files_of("packed.one:f", None) == module_files("packed.one")


def test_modules_without_a_file():
    for module in ("posix", "json.no_such", "no.such", ""):
        with refused():
            module_files(module)
