"""Clusters from Python and from YAML: symlab.simulate, World.launch and op=custom hand them to the launch."""

import pytest
import torch

import symlab
from runner.__main__ import main
from tests.golden import refused

SUM = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry total(.param .u64 x, .param .u64 y) {
  .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .pred %p<3>;
  .shared .align 4 .b32 word;
  ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d3, %r1, 4;
  add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3; ld.global.u32 %r2, [%d1]; st.shared.u32 [word], %r2;
  barrier.cluster.arrive; barrier.cluster.wait;
  mov.u32 %r3, 0; mov.u32 %r4, %cluster_nctarank; mov.u32 %r5, 0;
NEXT: mapa.shared::cluster.u32 %r6, word, %r3; ld.shared::cluster.u32 %r7, [%r6]; add.u32 %r5, %r5, %r7;
  add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r4; @%p1 bra NEXT;
  st.global.u32 [%d2], %r5; barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""
"""Each block stores the sum of its cluster's numbers."""
GIVEN = torch.arange(8, dtype=torch.int32)


def buffers():
    return {"x": GIVEN, "y": (8, torch.int32)}


def totals(size):
    return [sum(range(block // size * size, block // size * size + size)) for block in range(8)]


@pytest.mark.parametrize("cluster", [1, 2, (4, 1, 1), 8])
def test_simulate_takes_a_cluster(cluster):
    done = symlab.simulate(
        SUM, ranks=2, grid=8, block=1, buffers=buffers(), arguments=["x", "y"], cluster=cluster, seeds=3
    )
    wanted = totals(cluster if isinstance(cluster, int) else cluster[0])
    assert [one.tolist() for one in done.outputs["y"]] == [wanted] * 2


def test_a_world_launches_clusters_and_refuses_what_can_not_be():
    with symlab.world(ranks=2) as world:
        done = world.launch(SUM, grid=8, block=1, buffers=buffers(), arguments=["x", "y"], cluster=4)
        assert done.outputs["y"][1].tolist() == totals(4)
        with refused():
            world.launch(SUM, grid=8, block=1, buffers=buffers(), arguments=["x", "y"], cluster=3)
        with refused():
            world.launch(SUM, grid=16, block=1, buffers=buffers(), arguments=["x", "y"], cluster=16)


EXPERIMENT = """# @package _global_
op: custom
world_size: 2
custom:
  kernel: own/total.ptx:total
  launch: {grid: 8, block: 1, cluster: CLUSTER}
  buffers:
    x: {dtype: int32, shape: [8], fill: own/total.py:numbers}
    y: {dtype: int32, shape: [8]}
  arguments: [{address: x}, {address: y}]
  reference: own/total.py:expected
  tolerance: bitwise
"""
REFERENCE = """import torch


def numbers(rank, world_size):
    return torch.arange(8, dtype=torch.int32)


def expected(inputs):
    return [{"y": one["x"].view(2, 4).sum(1).repeat_interleave(4).int()} for one in inputs]
"""


@pytest.mark.parametrize(
    ("cluster", "code", "said"),
    [("4", 0, ""), ("[4, 1, 1]", 0, ""), ("2", 1, "WRONG"), ("3", 2, "not a multiple of the cluster (3, 1, 1)")],
)
def test_a_custom_kernel_in_yaml_has_clusters(cluster, code, said, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "conf" / "exp"
    (folder / "own").mkdir(parents=True)
    (folder / "mine.yaml").write_text(EXPERIMENT.replace("CLUSTER", cluster))
    (folder / "own" / "total.ptx").write_text(SUM)
    (folder / "own" / "total.py").write_text(REFERENCE)
    monkeypatch.chdir(tmp_path)
    assert main(["--config-dir", "conf", "+exp=mine", "fabric=simulator", "track=none"]) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
