"""ptxas, where it is installed, and how its answers are read."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from simulator.ptx.assembler import Problem, assembled, find_ptxas, version_of

SUM = (Path(__file__).parents[2] / "symlab" / "sum.ptx").read_text(encoding="utf-8")
FOUND = find_ptxas()
needs_ptxas = pytest.mark.skipif(FOUND is None, reason="ptxas is not installed")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@needs_ptxas
def test_a_legal_module_assembles():
    verdict = assembled(FOUND, SUM, "sm_90")
    assert verdict.problems == ()
    assert verdict.arch == "sm_90"
    assert verdict.version == version_of(FOUND) != ""


@needs_ptxas
def test_all_that_is_illegal_is_named_with_its_line():
    text = SUM.replace("mov.f32 %f1, 0f00000000;", "mov.f32 %f9, 0f00000000;").replace("sub.s32", "sub.x32")
    verdict = assembled(FOUND, text, "sm_90")
    lines = text.splitlines()
    wanted = {number for number, line in enumerate(lines, 1) if "%f9" in line or "sub.x32" in line}
    assert wanted & {one.line for one in verdict.problems}
    assert all(one.text for one in verdict.problems)
    assert "due to errors" not in " ".join(one.text for one in verdict.problems)


@needs_ptxas
def test_an_architecture_that_is_too_old_is_a_problem():
    assert assembled(FOUND, SUM, "sm_75").problems


def test_an_answer_of_another_form_is_not_taken_for_a_yes(tmp_path):
    silent = script(tmp_path / "silent", "exit 3")
    assert assembled(silent, SUM, "sm_90").problems == (Problem(0, "ended with exit code 3"),)
    odd = script(tmp_path / "odd", "echo no license; exit 1")
    assert assembled(odd, SUM, "sm_90").problems == (Problem(0, "no license"),)
    assert version_of(odd) == ""


def test_ptxas_is_found_on_path_before_an_installed_package(tmp_path, monkeypatch):
    on_path = script(tmp_path / "bin" / "ptxas", "exit 0")
    in_wheel = script(tmp_path / "site" / "nvidia" / "cu13" / "bin" / "ptxas", "exit 0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    importlib.invalidate_caches()
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_ptxas() == on_path
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() == in_wheel
    in_wheel.unlink()
    assert find_ptxas() != in_wheel
    assert shutil.which("ptxas") is None
