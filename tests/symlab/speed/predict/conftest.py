"""A folder of compiled kernels and profiles that the tests of one process share, and no other run."""

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    folder.chmod(0o700)
    return folder
