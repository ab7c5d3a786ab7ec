"""Every promised name has a docstring with an example, and the examples are true."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import symlab

ROOT = Path(symlab.__file__).resolve().parents[1]
NAMES = [name for name in symlab.__all__ if hasattr(symlab, name)]  # without a room its names are not there


def examples_of(value, name):
    return doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {}, name, None, None)


def failures(test):
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_an_example_and_it_is_true(name, tmp_path, monkeypatch):
    value = getattr(symlab, name)
    test = examples_of(value, name)
    uses = any(re.search(rf"symlab\.{name}\b", example.source) for example in test.examples)
    assert uses or inspect.isclass(value), f"{name}: the docstring has no example of it"
    assert test.examples
    if name == "experiment":
        monkeypatch.chdir(tmp_path)  # it writes records
    else:
        monkeypatch.chdir(ROOT)
    assert failures(test) == ""


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isfunction(getattr(symlab, name))])
def test_a_functions_docstring_names_every_parameter(name):
    function = getattr(symlab, name)
    text = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"\b{parameter}\b", text), f"{name}: the docstring does not say what {parameter} is"


def test_modules_have_no_functions_name():
    modules = {path.stem for path in (ROOT / "symlab").glob("*.py")}
    assert not modules & set(symlab.__all__)
    for module in modules - {"__init__", "__main__"}:
        importlib.import_module(f"symlab.{module}")
    assert all(callable(getattr(symlab, name)) for name in NAMES)
