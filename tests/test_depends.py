"""What a file of tests depends on is found without importing anything: too much rather than too little."""

import pytest

from tests.depends import TEXTS, WRITTEN_BY_RUNS, Depends, fixtures, imported


@pytest.fixture
def project(tmp_path):
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
        "tests/simulator/bench.py": "",
        "tests/kernels/test_spec.py": "from kernels import spec\n",
        "tests/kernels/test_world.py": "def test_it(world): pass\n",
        "tests/kernels/test_bench.py": "import tests.simulator.bench\n",
        "tests/reports/test_program.py": "run([python, '-m', 'reports', 'x'])\n",
        "tests/golden/__init__.py": "",
        "tests/golden/texts.txt": "tests/x/test_a.py::test\n    one\n\n    two\ntests/x/test_b.py::test\n    three\n",
        "tests/pages.py": "",
        "tests/test_pages.py": "from tests.pages import PAGES\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("test", "has", "lacks"),
    [
        ("kernels/test_spec.py", {"kernels/spec.py", "kernels/__init__.py", "memory/fabric.py"}, "runner/alone.py"),
        ("kernels/test_spec.py", {"memory/driver.py"}, "reports/table.py"),  # imported in a function
        ("kernels/test_spec.py", {"kernels/data.json", "kernels/texts/one.ptx"}, "README.md"),  # data beside code
        ("kernels/test_spec.py", {"tests/conftest.py"}, "runner/__init__.py"),  # none of whose fixtures is named
        ("kernels/test_world.py", {"tests/conftest.py", "runner/alone.py"}, "kernels/spec.py"),
        ("kernels/test_bench.py", {"tests/simulator/bench.py"}, "kernels/spec.py"),
        ("reports/test_program.py", {"reports/__main__.py", "reports/table.py"}, "runner/alone.py"),  # named in texts
        ("test_pages.py", {"README.md", "runner/alone.py", "kernels/texts/one.ptx"}, "reports/published/x/table.md"),
    ],
)
def test_what_a_test_depends_on(project, test, has, lacks):
    found = Depends(project).of_test(f"tests/{test}")
    assert has <= found
    assert lacks not in found


def test_a_file_depends_on_its_own_texts(project):
    found = Depends(project)
    own = "tests/x/test_a.py::test\n    one\n\n    two\n"
    assert [found.texts_of(f"tests/x/test_{name}.py") for name in "ac"] == [own, ""]


def test_what_runs_write_makes_no_test_run_again():
    """tests/full_layer.json once did: whatever passed ran again."""
    found = Depends().of_test("tests/cases/record/test_record.py")
    assert not found & {TEXTS, *WRITTEN_BY_RUNS}
    assert "tests/reports/examples/schema2.json" in found


def test_a_digest_is_of_names_and_contents(project):
    files = ["kernels/spec.py", "memory/driver.py"]
    before = Depends(project).digest(files)
    assert before == Depends(project).digest(reversed(files))
    assert before != Depends(project).digest(files[:1])
    assert before != Depends(project).digest(files, "code")
    (project / "memory" / "driver.py").write_text("X = 1\n")
    assert before != Depends(project).digest(files)


def test_relative_imports_and_fixtures():
    text = "from . import a\nfrom .b import c\nfrom ..d import e\nimport f.g\n"
    assert list(imported(text, "runner/x/y.py")) == ["runner.x.a", "runner.x.b.c", "runner.d.e", "f.g"]
    assert list(fixtures("@pytest.fixture(scope='session')\ndef one(): pass\ndef two(): pass\n")) == ["one"]


def test_of_this_project():
    """The chains that matter: from a command's test to kernels that the catalogue loads by their names."""
    depends = Depends()
    found = depends.of_test("tests/runner/case/test_promises_kept.py")
    assert {"kernels/ways/pull.py", "kernels/dsl/frame.py", "simulator/run/decode.py"} <= found
    of_simulator = depends.of_test("tests/symlab/checks/litmus/test_meet.py")
    assert not [one for one in of_simulator if one.startswith(("runner/", "reports/"))]
