"""One Slurm of two nodes for all tests here: it takes seconds to start."""

import pytest

from tests.runner.launch.slurm_cluster import cluster


@pytest.fixture(scope="package")
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm") / "cluster") as made:
        yield made
