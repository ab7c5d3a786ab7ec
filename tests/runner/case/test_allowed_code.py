"""Which files a record may have run, told from paths alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernels.brought import module_files
from kernels.sources import ROOT
from runner.case.allowed_code import allowed_code, files_of


def allows(file: Path, records: str = "", named: str = "", folder: Path | None = None) -> bool:
    places = [Path(records)] if records else []
    names = [Path(named)] if named else []
    return not allowed_code(places, names, folder).refuses([file.resolve()])


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a file, records of its own, and a stranger's folder."""
    for name in ("work/my/a.py", "work/records/x/case.json", "work/stranger/records/case.json", "outside/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("file", "records", "named", "expected"),
    [
        ("my/a.py", "records/x", "", True),
        ("my/a.py", "records/x/case.json", "", True),
        ("my/a.py", "", "", True),
        ("a.py", "records", "", True),
        ("records/x/a.py", "records/x", "", False),
        ("records/x/a.py", "records/x/case.json", "", False),
        ("records/a.py", "records/x", "", False),
        ("stranger/records/a.py", "stranger/records", "", False),
        ("stranger/a.py", "stranger/records", "", False),
        ("stranger/a.py", "stranger/records", "stranger", True),
        ("my/a.py", ".", "", False),
        ("my/a.py", "..", "", False),
        ("../outside/a.py", "records/x", "", False),
        ("../outside/a.py", "records/x", "../outside", True),
        ("venv/lib/python3/site-packages/a.py", "", "", False),
    ],
)
def test_files_of_the_working_folder(work: Path, file: str, records: str, named: str, expected: bool) -> None:
    assert allows(work / file, records, named) is expected


def test_a_record_file_takes_its_folder_with_it_a_bundle_does_not(work: Path) -> None:
    (work / "case.json").write_text("")
    (work / "case.jsonl.xz").write_text("")
    assert not allows(work / "my" / "a.py", "case.json")
    assert allows(work / "my" / "a.py", "case.jsonl.xz")


def test_a_link_is_where_it_leads(work: Path) -> None:
    (work / "my" / "link.py").symlink_to(work.parent / "outside" / "a.py")
    assert not allows(work / "my" / "link.py")


def test_the_projects_files_count_from_anywhere(work: Path) -> None:
    ring = ROOT / "conf" / "exp" / "own" / "ring.py"
    assert allows(ring, "records/x")
    assert allows(ring, str(ROOT)), "where the root itself holds the records"
    assert not allows(ROOT / "conf" / "ring.py", str(ROOT / "conf"))


def test_installed_files_and_pythons_library_do_not() -> None:
    for file in (Path(pytest.__file__), Path(sys.modules["json"].__file__ or "")):
        assert not allows(file)
        assert not allows(file, folder=file.parents[3]), "even if the working folder holds them"
        assert allows(file, named=str(file.parent))


def test_modules_are_found_without_importing_them(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "packed").mkdir()
    (work / "packed" / "__init__.py").write_text("raise SystemExit('imported')")
    (work / "packed" / "one.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(work)
    assert module_files("packed.one") == (work / "packed" / "__init__.py", work / "packed" / "one.py")
    assert files_of("packed.one:f", None) == module_files("packed.one")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("posix", "the module posix has no Python file of its own"),
        ("json.no_such", "there is no module json.no_such"),
        ("no.such", "there is no module no"),
        ("", "there is no module"),
    ],
)
def test_modules_without_a_file(module: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        module_files(module)
