"""A folder of compiled kernels and profiles that the tests of one process share, and no other run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    folder.chmod(0o700)
    return folder
