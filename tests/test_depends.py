"""What a file of tests depends on is found without importing anything: too much rather than too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.depends import Depends, fixtures, imported


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "kernels/__init__.py": "",
        "kernels/spec.py": "import memory.fabric\n",
        "kernels/data.json": "{}",
        "kernels/texts/one.ptx": "",
        "memory/__init__.py": "",
        "memory/fabric.py": "def f():\n    from memory import driver\n",
        "memory/driver.py": "",
        "reports/__main__.py": "VERBS = 'reports.table:verb'\n",
        "reports/table.py": "",
        "reports/published/x/table.md": "",
        "runner/__init__.py": "",
        "runner/alone.py": "",
        "README.md": "",
        "pyproject.toml": "",
        "tests/conftest.py": "import pytest\nimport runner.alone\n@pytest.fixture\ndef world(): pass\n",
        "tests/simulator/deep/bench.py": "",
        "tests/kernels/test_spec.py": "from kernels import spec\n",
        "tests/kernels/test_world.py": "def test_it(world): pass\n",
        "tests/kernels/test_bench.py": "import simulator_bench\n",
        "tests/reports/test_program.py": "run([python, '-m', 'reports', 'x'])\n",
        "tests/pages.py": "",
        "tests/test_pages.py": "from tests.pages import PAGES\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed_in_functions_and_packages_too(project: Path) -> None:
    found = Depends(project).closure(["tests/kernels/test_spec.py"])
    assert {"kernels/spec.py", "kernels/__init__.py", "memory/fabric.py", "memory/driver.py"} <= found
    assert "runner/alone.py" not in found


def test_what_a_text_starts_or_names_counts(project: Path) -> None:
    found = Depends(project).closure(["tests/reports/test_program.py"])
    assert {"reports/__main__.py", "reports/table.py"} <= found


def test_modules_of_the_tests_that_conftests_load_are_found(project: Path) -> None:
    assert "tests/simulator/deep/bench.py" in Depends(project).of_test("tests/kernels/test_bench.py")


def test_a_conftest_counts_with_its_imports_if_a_fixture_of_it_is_named(project: Path) -> None:
    depends = Depends(project)
    assert "tests/conftest.py" in depends.of_test("tests/kernels/test_spec.py")
    assert "runner/alone.py" not in depends.of_test("tests/kernels/test_spec.py")
    assert "runner/alone.py" in depends.of_test("tests/kernels/test_world.py")


def test_data_beside_code_counts(project: Path) -> None:
    found = Depends(project).of_test("tests/kernels/test_spec.py")
    assert {"kernels/data.json", "kernels/texts/one.ptx"} <= found


def test_pages_depend_on_everything_but_published_records(project: Path) -> None:
    found = Depends(project).of_test("tests/test_pages.py")
    assert {"README.md", "runner/alone.py", "kernels/texts/one.ptx"} <= found
    assert not [one for one in found if one.startswith("reports/published/x")]


def test_a_digest_is_of_names_and_contents(project: Path) -> None:
    files = ["kernels/spec.py", "memory/driver.py"]
    before = Depends(project).digest(files)
    assert before == Depends(project).digest(reversed(files))
    assert before != Depends(project).digest(files[:1])
    assert before != Depends(project).digest(files, "code")
    (project / "memory" / "driver.py").write_text("X = 1\n")
    assert before != Depends(project).digest(files)


def test_relative_imports_and_fixtures() -> None:
    text = "from . import a\nfrom .b import c\nfrom ..d import e\nimport f.g\n"
    assert list(imported(text, "runner/x/y.py")) == ["runner.x.a", "runner.x.b.c", "runner.d.e", "f.g"]
    assert list(fixtures("@pytest.fixture(scope='session')\ndef one(): pass\ndef two(): pass\n")) == ["one"]


def test_of_this_project() -> None:
    """The chains that matter: from a command's test to kernels that the catalogue loads by their names."""
    depends = Depends()
    found = depends.of_test("tests/runner/case/test_promises_kept.py")
    assert {"kernels/all_gather/pull.py", "kernels/dsl/frame.py", "simulator/run/decode.py"} <= found
    of_simulator = depends.of_test("tests/simulator/litmus/test_meet.py")
    assert not [one for one in of_simulator if one.startswith(("runner/", "reports/"))]
