"""Tests are collected without optional packages, as on a machine that was given what GPUs need and no more."""

import pytest

from tests.pages import ROOT
from tests.patience import PATIENCE_S
from tests.processes import ran

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


@pytest.mark.slow
def test_the_tests_for_gpus_are_collected_without_them():
    """All of them, as pytest itself sees it."""
    words = ("-q", "-m", "gpu", "--collect-only", "-p", "no:cacheprovider", "-n", "0")
    done = ran("-c", HIDING, *words, cwd=ROOT, timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert " tests collected" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
