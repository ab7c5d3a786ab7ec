"""clusterlaunchcontrol: the answer comes to each block, with the bytes that its mbarrier counts, and is no."""

import subprocess

import pytest

from simulator.ptx.assembler import find_ptxas
from tests.simulator.isa.vectors_cluster_launch_control import FORMS, TARGET, answers, ptx_of

ORDERS = [{}, {"schedule": "random", "seed": 1}, {"schedule": "adversarial", "seed": 2}, {"memory": "weak", "seed": 3}]


@pytest.mark.parametrize(("space", "cast"), FORMS)
def test_each_block_hears_that_there_is_no_other_work(space, cast):
    for options in ORDERS:
        found, _ = answers(space, cast, **options)
        assert found == [[0] + [0xFFFFFFFF] * 3] * 4
    _, world = answers(space, cast, races=True)
    assert world.findings == ()


PTXAS = find_ptxas()


@pytest.mark.skipif(PTXAS is None, reason="needs ptxas (PyPI: nvidia-cuda-nvcc)")
@pytest.mark.parametrize(("space", "cast"), FORMS)
def test_the_forms_assemble(space, cast, tmp_path):
    (tmp_path / "one.ptx").write_text(ptx_of(space, cast).replace(".version 8.0", ".version 8.8"))
    command = [str(PTXAS), "-arch", TARGET, str(tmp_path / "one.ptx"), "-o", str(tmp_path / "one.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
