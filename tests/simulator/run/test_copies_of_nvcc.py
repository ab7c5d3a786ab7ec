"""What nvcc makes of CUDA's pipelines and mbarriers runs and is right; with one wait too few it is not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from simulator_harness import ARCH, Outcome, get, make_world, put, run, start

from memory.fabric import Executable
from simulator.fabric import SimulatorFabric

CUDA = """
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

constexpr int TILE = 128, STAGES = 3;

extern "C" __global__ void sums(const float *x, float *out, int count) {
  __shared__ __align__(16) float stage[STAGES][TILE];
  __shared__ __mbarrier_t bar;
  int t = threadIdx.x, tiles = (count + TILE - 1) / TILE;
  auto fetch = [&](int tile) {
    if (tile < tiles) {
      int at = tile * TILE + t;
      __pipeline_memcpy_async(&stage[tile % STAGES][t], x + at, 4, at < count ? 0 : 4);
    }
    __pipeline_commit();
  };
  for (int one = 0; one < STAGES - 1; ++one) fetch(one);
  float total = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + STAGES - 1);
    __pipeline_wait_prior(PRIOR);
    total += stage[tile % STAGES][t];
  }
  __pipeline_wait_prior(0);
  stage[0][t] = total;
  if (t == 0) __mbarrier_init(&bar, TILE);
  __syncthreads();
  __mbarrier_token_t token = __mbarrier_arrive(&bar);
  while (!__mbarrier_test_wait(&bar, token)) {}
  float sum = 0;
  for (int one = 0; one < TILE; ++one) sum += stage[0][one];
  out[blockIdx.x * TILE + t] = sum;
}

extern "C" __global__ void reversed(const float4 *x, float4 *out, unsigned *pending) {
  __shared__ __align__(16) float4 stage[TILE];
  __shared__ __mbarrier_t bar;
  int t = threadIdx.x, at = blockIdx.x * TILE;
  if (t == 0) __mbarrier_init(&bar, TILE);
  __syncthreads();
  __pipeline_memcpy_async(&stage[t], x + at + t, 16);
  __pipeline_arrive_on(&bar);
  __mbarrier_token_t token = __mbarrier_arrive(&bar);
  while (!__mbarrier_test_wait(&bar, token)) {}
  out[at + t] = stage[TILE - 1 - t];
  __syncthreads();
  if (t != 0) return;
  __mbarrier_inval(&bar);
  __mbarrier_init(&bar, 9);
  __mbarrier_arrive_and_drop(&bar);
  pending[blockIdx.x] = __mbarrier_token_pending_count(__mbarrier_arrive(&bar));
}
"""
TILE = 128
COUNT = 1000
SCHEDULES = [{}, *({"schedule": "random", "seed": seed} for seed in range(6))]
pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


def compiled(folder: Path, entry: str, prior: int) -> Executable:
    """A kernel's PTX; prior: how many groups may be open when a tile is used."""
    source, target = folder / "pipelines.cu", folder / f"pipelines_{prior}.ptx"
    if not target.exists():
        source.write_text(CUDA)
        command = ["nvcc", "-ptx", "-arch=sm_90", f"-DPRIOR={prior}", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if missing := re.search(r"fatal error: (.*): No such file", done.stderr):
            pytest.skip(f"nvcc has no {missing[1]}")
        assert done.returncode == 0, done.stderr
    return Executable(f"cuda/{entry}", entry, ARCH, target.read_text(), f"sha256:{entry}{prior}")


def summed(kernel: Executable, schedule: dict[str, object]) -> tuple[Outcome, npt.NDArray[np.float32]]:
    x = np.random.default_rng(1).integers(-100, 100, COUNT).astype(np.float32)

    def program(fabric: SimulatorFabric) -> npt.NDArray[np.float32]:
        source, out = put(fabric, "x", x + fabric.rank), put(fabric, "out", np.zeros(2 * TILE, np.float32))
        start(fabric, kernel, 2, TILE, [source.address, out.address, COUNT])
        fabric.synchronize()
        return get(fabric, out, "f4").copy()

    return run(make_world(2, **schedule), program), x


def is_right(kernel: Executable, schedule: dict[str, object]) -> bool:
    outcome, x = summed(kernel, schedule)
    if any(outcome.errors):
        return False
    return all((found == (x + rank).sum()).all() for rank, found in enumerate(outcome.results))


@pytest.mark.slow
def test_a_pipeline_of_three_stages_is_right_in_every_order(folder: Path) -> None:
    kernel = compiled(folder, "sums", 2)
    assert "cp.async.wait_group" in kernel.ptx
    assert "mbarrier.test_wait.shared.b64" in kernel.ptx
    assert all(is_right(kernel, schedule) for schedule in SCHEDULES)


@pytest.mark.slow
def test_a_pipeline_that_waits_for_too_few_tiles_is_wrong(folder: Path) -> None:
    assert not all(is_right(compiled(folder, "sums", 3), schedule) for schedule in SCHEDULES)


@pytest.mark.slow
def test_copies_arrive_at_an_mbarrier_and_a_token_tells_what_is_pending(folder: Path) -> None:
    kernel = compiled(folder, "reversed", 2)
    assert "cp.async.mbarrier.arrive.shared.b64" in kernel.ptx
    x = np.random.default_rng(2).standard_normal((2 * TILE, 4)).astype(np.float32)

    def program(fabric: SimulatorFabric) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
        source, out = put(fabric, "x", x), put(fabric, "out", np.zeros_like(x))
        pending = put(fabric, "pending", np.zeros(2, np.uint32))
        start(fabric, kernel, 2, TILE, [source.address, out.address, pending.address])
        fabric.synchronize()
        return get(fabric, out, "f4").reshape(x.shape).copy(), get(fabric, pending, "u4").copy()

    for schedule in SCHEDULES:
        outcome = run(make_world(2, **schedule), program)
        assert not any(outcome.errors), outcome.errors
        for found, pending in outcome.results:
            assert np.array_equal(found, x.reshape(2, TILE, 4)[:, ::-1].reshape(x.shape))
            assert pending.tolist() == [8, 8], "the second arrival finds what the first left of nine"
