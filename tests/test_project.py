"""The project as a whole: whose packages these are, what is locked, imports, the wheel.

What is checked file by file is in tests/lint.py.
"""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.lint import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def is_installed():
    """Into this environment: the checkout itself may hold the metadata of another one's installation."""
    folder = [sysconfig.get_path("purelib")]
    return any(one.metadata["Name"] == "symlab" for one in importlib.metadata.distributions(path=folder))


installed = pytest.mark.skipif(not is_installed(), reason="symlab is not installed here: make test installs it")


@pytest.mark.parametrize("name", PACKAGES)
def test_the_imported_packages_are_this_projects(name):
    assert Path(importlib.import_module(name).__path__[0]).resolve() == ROOT / name


@installed
def test_they_are_this_projects_from_any_folder(tmp_path):
    code = f"import {', '.join(PACKAGES)}\nfor one in ({', '.join(PACKAGES)}): print(*one.__path__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert [Path(line).resolve() for line in found.stdout.split()] == [ROOT / name for name in PACKAGES]


@installed
@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_installed_distribution_has_the_name(name):
    assert set(importlib.metadata.packages_distributions().get(name, ["symlab"])) == {"symlab"}


def locks(file="constraints.txt"):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), "every line is name==version"
    return {name: version for name, version in pairs}


def closure(wanted):
    """Name and version of all installed distributions that the requirements bring, directly or not."""
    found = {}
    seen = set()
    todo = [(Requirement(text), "") for text in wanted]
    while todo:
        requirement, extra = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(key)
        distribution = importlib.metadata.distribution(requirement.name)
        found[key[0]] = distribution.version
        for text in distribution.requires or []:
            todo += [(Requirement(text), one) for one in ("", *requirement.extras)]
    return found


@installed
def test_constraints_lock_every_installed_version():
    project = PROJECT["project"]
    brought = closure(project["dependencies"] + project["optional-dependencies"]["dev"])
    assert {"torch", "mlflow", "cuda-bindings", "jinja2", "pytest"} <= set(brought)
    brought.pop("nvidia-nvshmem-cu13", None)  # torch for CUDA pins its own
    locked = locks()
    assert {name: version.split("+")[0] for name, version in brought.items()} == {
        name: locked.get(name, "not locked") for name in brought
    }


def test_constraints_are_whole_and_in_order():
    locked = locks()
    assert list(locked) == sorted(locked)
    assert all(name == canonicalize_name(name) and Version(version) for name, version in locked.items())
    assert locked["torch"] == "2.13.0"
    assert "nvshmem4py-cu13" in locked
    assert "nvidia-nvshmem-cu13" not in locked, "each torch for CUDA pins its own"
    assert PROJECT["build-system"]["requires"] == [f"setuptools=={locked['setuptools']}"]


def test_the_foreign_environment_is_locked_by_itself():
    """Every package of the extra is there, CuTe DSL as in our own environment, and no torch."""
    locked = locks("tests/foreign/constraints.txt")
    assert list(locked) == sorted(locked)
    assert all(name == canonicalize_name(name) and Version(version) for name, version in locked.items())
    extra = {canonicalize_name(Requirement(one).name) for one in PROJECT["project"]["optional-dependencies"]["foreign"]}
    assert extra <= set(locked)
    assert {"nvidia-nccl-cu13", "nvidia-nvshmem-cu13"} <= set(locked), "they have the device functions' bitcode"
    assert locked["nvidia-cutlass-dsl"] == locks()["nvidia-cutlass-dsl"]
    assert "torch" not in locked


def lint_imports(folder):
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("file", "line", "rule"),
    [
        ("memory/pool.py", "import kernels.spec", "symlab is on top"),
        ("reports/commands.py", "import symlab.command", "symlab is on top"),
        ("kernels/__main__.py", "import symlab.verbs", "symlab is on top"),
        ("runner/world/world.py", "import runner.command.job", "rooms of runner import downwards only"),
        ("cases/record/record.py", "import reports.table.table", "cases knows nothing"),
        ("kernels/numeric/formats.py", "import kernels.matrix.matrix", "rooms of kernels import downwards only"),
        ("simulator/ptx/ir.py", "import simulator.run.machine", "rooms of simulator import downwards only"),
        ("reports/table/text.py", "import reports.html.blocks", "rooms of reports import downwards only"),
        ("kernels/numeric/formats.py", "import kernels.numeric.numerics", "no circle, between rooms or between files"),
        ("simulator/ptx/parse.py", "import kernels.spec", "symlab is on top"),
        ("cases/record/record.py", "import torch", "reports and audits read records"),
        ("cases/record/record.py", "import memory.fabric", "reports and audits read records"),
        ("reports/table/table.py", "import matplotlib", "only reports.figures imports matplotlib"),
        ("kernels/spec.py", "import cutlass", "import cutlass"),
        ("runner/case/program.py", "import mlflow", "only runner.track.send imports mlflow"),
        ("runner/world/world.py", "import nvshmem.core", "only memory.library and memory.driver import nvshmem"),
        ("simulator/fabric.py", "import omegaconf", "only the runner reads configurations"),
    ],
)
def test_each_import_rule_can_break(tmp_path, file, line, rule):
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = re.findall(r"^(.*(?:\n.*)?) BROKEN", result.stdout, re.MULTILINE)
    assert any(rule in " ".join(one.split()) for one in broken), result.stdout


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("cases.record.record", {"torch", "numpy", "mlflow", "cutlass"}),
        ("runner.__main__", {"mlflow", "cutlass"}),
        ("runner.case.program", {"mlflow", "cutlass", "hydra"}),
        ("simulator.fabric", {"mlflow", "cutlass", "hydra", "kernels", "runner"}),
        ("kernels.catalogue", {"mlflow", "cutlass", "hydra", "simulator"}),
    ],
)
def test_what_is_not_needed_is_not_imported(module, unwanted):
    code = f"import sys, {module}; print(*sorted({unwanted!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_the_tree_names_every_room():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = page[page.index("\n# The tree") :].split("```")[1]
    rooms = {path.parent.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    named = set()
    above = []
    for line in tree.strip().splitlines():
        folders = re.findall(r"(?<!\S)(\w+)/", line)
        above = above[: (len(line) - len(line.lstrip())) // 2]
        named |= {"/".join([*above, folder]) for folder in (folders if above else folders[:1])}
        above.append(folders[0])
    assert rooms - named == set(), "folders that the tree of CONTRIBUTING.md does not name"
    assert [name for name in named if not (ROOT / name).is_dir()] == [], "folders that are not there"


def copied(folder):
    """A copy of the checkout in a folder: what setuptools builds from."""
    for name in (*PACKAGES, "conf", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A wheel of a copy of the checkout, built without network and unpacked."""
    pytest.importorskip("setuptools", reason="setuptools is not installed here: it builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(folder)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", code], cwd=copied(folder / "checkout"), capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(folder / built.stdout.splitlines()[-1]) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_a_wheel_holds_packages_and_their_data_and_nothing_else(unpacked):
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    tops = {name.partition("/")[0] for name in held}
    assert tops == {*PACKAGES, "conf", f"symlab-{PROJECT['project']['version']}.dist-info"}
    assert {"kernels/proven/simulator.json", "kernels/dsl/frame.py", "conf/exp/allreduce_bf16.yaml"} <= held
    here = {
        path.relative_to(ROOT).as_posix()
        for top in (*PACKAGES, "conf")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and not path.name.startswith(".")
    }
    left_out = {name for name in here if name.startswith(("reports/published/", "reports/screenshots/"))}
    left_out |= {name for name in here if name.endswith(".md")}  # pages belong to the repository
    assert {name for name in held if ".dist-info/" not in name} == here - left_out


def test_a_wheel_knows_what_is_proven(unpacked):
    code = "from kernels.matrix import proofs; print(proofs.PLACE, *(len(one.specs) for one in proofs.proofs()))"
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, env=environment, capture_output=True, text=True, check=True
    )
    place, *counts = found.stdout.split()
    assert Path(place) == (unpacked / "kernels" / "proven").resolve()
    assert len(counts) == len(list((ROOT / "kernels" / "proven").glob("*.json")))
    assert all(map(int, counts))


def test_an_editable_installation_is_found_beside_the_clone(tmp_path):
    """The folder that holds the clone has a folder symlab, which is the checkout and not the package."""
    pytest.importorskip("setuptools", reason="setuptools is not installed here: it builds the wheel")
    clone = copied(tmp_path / "parent" / "symlab")
    code = f"from setuptools import build_meta; print(build_meta.build_editable({str(tmp_path)!r}))"
    built = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / built.stdout.splitlines()[-1]) as archive:
        archive.extractall(tmp_path / "site")
    code = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import symlab; print(symlab.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=clone.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [str(clone / "symlab" / "__init__.py")]


def test_programs_that_the_makefile_starts_are_there():
    named = re.findall(r"\btests/[\w/]+\.py", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert named
    assert [one for one in named if not (ROOT / one).is_file()] == []


def test_the_changelog_begins_with_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+?),? ", changelog, re.MULTILINE)
    assert first[1] == PROJECT["project"]["version"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
