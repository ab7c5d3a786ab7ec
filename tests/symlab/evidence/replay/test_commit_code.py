"""What the code of a commit writes into records: read from its files, by today's rules or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernels.catalogue import NAMES, NVSHMEM_FILES, find
from kernels.compile import source_digest
from symlab.evidence.replay.commit_code import CommitCode, code_of

ROOT = Path(__file__).parents[4]

SAID = 'SCHEMA_VERSION = 6\nDIGESTED = ("conf", "kernels")\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of this project's kernels, and of the nouns."""
    for name in ("kernels", "cases"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "matrix"))
    return tmp_path


def test_schema_and_folders_are_what_the_modules_say(tmp_path: Path) -> None:
    assert code_of(SAID, tmp_path) == CommitCode(6, ("conf", "kernels"), {})
    assert code_of("", tmp_path) == CommitCode()


@pytest.mark.parametrize(
    "said",
    [
        "SCHEMA_VERSION = 6\nSCHEMA_VERSION = 2\n",
        "SCHEMA_VERSION = OTHER\n",
        "SCHEMA_VERSION = '6'\n",
        "DIGESTED = 3\n",
    ],
)
def test_what_is_said_twice_or_not_as_a_value_is_unknown(said: str, tmp_path: Path) -> None:
    assert code_of(said, tmp_path) == CommitCode()


def test_nothing_of_a_commit_runs(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    for name in ("__init__.py", "sources.py", "family.py"):
        (tmp_path / "kernels" / name).write_text("raise SystemExit('it ran')\n", encoding="utf-8")
    said = "SCHEMA_VERSION = __import__('os').abort()\n"
    assert code_of(said, tmp_path) == CommitCode()


def test_the_digest_of_every_kernel_is_the_one_that_records_have(project: Path) -> None:
    code = code_of(SAID, project)
    found = code.kernels
    assert code.names == NAMES
    assert {name: found[name] for name in NAMES} == {name: f"sha256:{source_digest(find(name))}" for name in NAMES}


@pytest.mark.slow
def test_a_changed_file_changes_the_digests_of_the_kernels_that_import_it(project: Path) -> None:
    before = code_of(SAID, project).kernels
    path = project / "kernels" / "ways" / "pull.py"
    path.write_text(f"{path.read_text(encoding='utf-8')}\n# more\n", encoding="utf-8")
    after = code_of(SAID, project).kernels
    changed = {name for name in NAMES if before[name] != after[name]}
    assert "all_reduce/one_shot" in changed
    assert "all_gather/push" not in changed


@pytest.mark.parametrize("name", ["sources.py", "family.py"])
def test_by_other_rules_no_digest_is_known(name: str, project: Path) -> None:
    path = project / "kernels" / name
    text = path.read_text(encoding="utf-8").replace("files=(", "files=(*(), ")
    path.write_text(f"{text}\n# changed\n", encoding="utf-8")
    assert code_of(SAID, project) == CommitCode(6, ("conf", "kernels"), {}, NAMES, tuple(NVSHMEM_FILES))
