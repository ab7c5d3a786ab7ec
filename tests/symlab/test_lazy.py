"""`import symlab` costs nothing, and its names are there for people, tools and type checkers."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import symlab
from tests.golden import refused

ROOT = Path(symlab.__file__).resolve().parents[1]
HEAVY = ("torch", "numpy", "hydra", "omegaconf", "mlflow", "click", "rich", "pandas", "cutlass")
OURS = ("runner", "kernels", "memory", "reports", "simulator", "cases")


def modules_after(code):
    """The top-level packages that a new interpreter has imported after the code."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    said = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(json.loads(said.splitlines()[-1]))


def test_importing_symlab_imports_nothing_else():
    before, after = modules_after(""), modules_after("import symlab; dir(symlab); symlab.__all__")
    assert after - before <= {"symlab", "importlib", "typing", "__future__"} | sys.stdlib_module_names
    assert not after & {*HEAVY, *OURS}


def test_a_name_brings_what_it_needs():
    assert {"kernels", "memory"} <= modules_after("import symlab; symlab.catalogue()")


@pytest.mark.slow
def test_describing_a_case_imports_no_torch():
    code = "import symlab; symlab.case('all_reduce/one_shot', size_bytes='4K')"
    assert not modules_after(code) & {"torch", "mlflow", "cutlass", "pandas"}


def test_names_are_listed_once_and_load():
    assert dir(symlab) == sorted(symlab.__all__)
    assert set(symlab.__all__) == set(symlab._MODULES)
    found = [name for name in symlab.__all__ if hasattr(symlab, name)]
    assert all(getattr(symlab, name) is getattr(symlab, name) for name in found)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(symlab.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == symlab._MODULES


def test_an_unknown_name_lists_those_that_there_are():
    with refused(AttributeError):
        _ = symlab.wrld
