"""The comparison of kernels' code with a commit's, in a repository with a commit for each kind of change."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import compare_code
from tests.compare_code import ROOT, main
from tests.patience import PATIENCE_S, until

NAMES = ("barrier/peers", "barrier/multimem")
ARGUMENTS = ("--kernel", NAMES[0], "--kernel", NAMES[1])


def git(repository: Path, *arguments: str) -> str:
    names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *names, *arguments], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.strip()


def committed(repository: Path, message: str) -> str:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of commits by what is in them: "older" has files of other names, "weaker" another instruction in one of
    the barriers, "without" not one of the kernels. The repository's path is under "path"."""
    place = tmp_path_factory.mktemp("repository")
    git(place, "init", "-q")
    for package in compare_code.PACKAGES:
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    found = {"path": str(place), "same": committed(place, "as here")}
    (place / "kernels" / "dsl" / "signals.py").rename(place / "kernels" / "dsl" / "flags.py")
    for path in (place / "kernels").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("dsl.signals", "dsl.flags").replace("dsl/signals", "dsl/flags"), encoding="utf-8")
    edit(
        place / "kernels/dsl/flags.py", "from __future__ import annotations\n", "from __future__ import annotations\n\n"
    )
    found["older"] = committed(place, "another name")
    edit(place / "kernels/dsl/device.py", 'order: str = "acquire"', 'order: str = "relaxed"')
    found["weaker"] = committed(place, "another instruction")
    edit(place / "kernels/catalogue.py", '    "barrier/multimem": "barrier",\n', "")
    found["without"] = committed(place, "without a kernel")
    edit(place / "kernels/catalogue.py", "\nfrom dataclasses", "\nimport no_such_module\nfrom dataclasses")
    found["broken"] = committed(place, "a catalogue that can't be imported")
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which is to be empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(autouse=True)
def in_the_repository(repository: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """git is asked there; what is compiled as "here" is this checkout."""
    monkeypatch.setattr(compare_code, "REPOSITORY", Path(repository["path"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commit", "code", "words"),
    [
        ("same", 0, ["barrier/peers 2 equal equal", "2 of 2 kernels have equal code"]),
        ("older", 0, ["barrier/peers 2 changed equal", "barrier/multimem 2 changed equal"]),
        (
            "weaker",
            1,
            ["barrier/peers 2 changed 2 differ: uint32-none-none-n2-4B-out_of_place-sm_90a", "0 of 2 kernels"],
        ),
        ("without", 1, ["barrier/multimem 2 changed 2 differ", "(then: no such kernel)"]),
    ],
)
def test_code_is_compared_and_not_lines(
    repository: dict[str, str],
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
    commit: str,
    code: int,
    words: list[str],
) -> None:
    assert main([repository[commit], *ARGUMENTS, "--cache", str(cache)]) == code
    said = " ".join(capsys.readouterr().out.split())
    for text in words:
        assert text in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commit", "message"),
    [
        ("0" * 40, "is not a commit of this repository"),
        ("broken", "can't be compiled: its catalogue can't be imported"),
    ],
)
def test_a_wrong_request_is_code_2(
    repository: dict[str, str], temporary: Path, capfd: pytest.CaptureFixture[str], commit: str, message: str
) -> None:
    assert main([repository.get(commit, commit), *ARGUMENTS]) == 2
    assert message in capfd.readouterr().err


def test_a_commit_without_kernels_is_code_2(
    repository: dict[str, str], temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = git(Path(repository["path"]), "commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", "empty")
    assert main([empty, *ARGUMENTS]) == 2
    assert "can't be unpacked" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_compiled_is_kept_where_asked(repository: dict[str, str], temporary: Path, tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    assert main([repository["older"], "--kernel", NAMES[0], "--cache", str(cache)]) == 0
    assert len(list(cache.iterdir())) == 4, "two variants, of two trees"


@pytest.mark.slow
def test_nothing_is_left_behind_by_a_signal(repository: dict[str, str], tmp_path: Path) -> None:
    """Killed while it compiles: the folder is gone, and so are the processes of both trees."""
    script = (
        "import signal, sys, tests.compare_code as tool; "
        "signal.signal(signal.SIGTERM, tool._ended); tool.commit_of = lambda name: name; "
        f"tool.unpacked = lambda commit, folder: tool.Path({repository['path']!r}); "
        "sys.exit(tool.main(['HEAD']))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environment)
    until(
        lambda: list(tmp_path.glob("symlab-code-*/cache/*.json")) or process.poll() is not None, "the first compilation"
    )
    assert process.poll() is None
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
    assert [one for one in children if Path(f"/proc/{one}").exists()] == []
