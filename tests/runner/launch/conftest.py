"""One Slurm of two nodes for all tests here: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runner.launch.slurm_cluster import Cluster, cluster


@pytest.fixture(scope="package")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm") / "cluster") as made:
        yield made
