"""Tests are collected without optional packages, as on a machine that was given what GPUs need and no more."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.patience import PATIENCE_S

OPTIONAL = ("hydra_plugins.hydra_joblib_launcher", "hydra_plugins.hydra_submitit_launcher", "joblib", "submitit")
OPTIONAL += ("playwright",)
"""What a test may import within itself only, after pytest.importorskip."""

HIDING = f"""
import sys
import pytest

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {OPTIONAL!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}} (hidden)", name=name)

sys.meta_path.insert(0, Hidden())
sys.exit(pytest.main(sys.argv[1:]))
"""


def at_import(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """The line and the name of each module that is imported as soon as a module is: not in functions, not for types."""
    for one in body:
        if isinstance(one, ast.Import):
            yield from ((one.lineno, alias.name) for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
            yield from ((one.lineno, f"{one.module}.{alias.name}") for alias in one.names)
        elif not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            types_only = isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"
            for field in () if types_only else ("body", "orelse", "handlers", "finalbody"):
                yield from at_import(getattr(one, field, []))


def needing(folder: Path) -> list[str]:
    """Where Python files below a folder import an optional package as soon as they are imported."""
    return [
        f"{path.relative_to(folder)}:{line}: {name}"
        for path in sorted(folder.rglob("*.py"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        for line, name in at_import(ast.parse(path.read_text(encoding="utf-8")).body)
        if any(f"{name}.".startswith(f"{one}.") for one in OPTIONAL)
    ]


def test_no_module_needs_an_optional_package_to_be_imported() -> None:
    packages = ("tests", "symlab", "runner", "kernels", "memory", "simulator", "reports", "cases")
    assert {package: found for package in packages if (found := needing(ROOT / package))} == {}


def test_an_import_that_would_break_collection_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import joblib\n"
        "def late():\n    import submitit\n"
        "try:\n    from hydra_plugins.hydra_joblib_launcher.config import JobLibLauncherConf\n"
        "except OSError:\n    import playwright.sync_api\n"
    )
    assert needing(tmp_path) == [
        "test_one.py:7: hydra_plugins.hydra_joblib_launcher.config.JobLibLauncherConf",
        "test_one.py:9: playwright.sync_api",
    ]


@pytest.mark.slow
def test_the_tests_for_gpus_are_collected_without_them() -> None:
    """All of them, as pytest itself sees it."""
    done = subprocess.run(
        [sys.executable, "-c", HIDING, "-q", "-m", "gpu", "--collect-only", "-p", "no:cacheprovider", "-n", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " tests collected" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
