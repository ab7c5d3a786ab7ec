"""The vectors of clusters, of copies and of mbarriers on a GPU: it leaves what they expect, byte for byte."""

import numpy as np
import pytest
import torch

from memory.driver import CudaDriver
from memory.fabric import Argument, Launch
from tests.simulator.harness import executable
from tests.simulator.isa.families import CLUSTERS, bench_of


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["cluster", "bulk", "within_shared", "lane_copies", "mbarriers"])
def test_a_gpu_leaves_what_the_vectors_expect(family):
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(0)[0] != 9:
        pytest.skip("there is no GPU of sm_90")
    bench = bench_of(family)
    blobs = bench.blobs or [np.zeros(1, np.uint8)]  # mbarriers' programs read nothing
    given = torch.from_numpy(np.concatenate(blobs)).to("cuda:0")
    out = torch.full((bench.output_bytes,), 0xFF, dtype=torch.uint8, device="cuda:0")
    arguments = [Argument("address", given.data_ptr()), Argument("address", out.data_ptr())]
    driver = CudaDriver(0, 0)
    launch = Launch(8, 128, cluster=CLUSTERS.get(family, 1))
    driver.launch(executable(bench.ptx, "bench"), launch, (*arguments, Argument("u32", 0), Argument("u32", 0)))
    driver.wait(None)
    memory = out.cpu().numpy()
    wrong = []
    for vector, stores in zip(bench.vectors, bench.stores, strict=True):
        for name, (at, store) in stores.items():
            expected = np.full(store.size_bytes, 0xFF, np.uint8)
            expected[store.offsets[:, None] + np.arange(store.rows.shape[1])] = store.rows
            found = memory[at : at + store.size_bytes]
            if vector.key.endswith(".add.f64"):  # a NaN's bits are the GPU's own
                same = np.array_equal(expected.view("f8"), found.view("f8"), equal_nan=True)
            else:
                same = np.array_equal(expected, found)
            wrong += [] if same else [f"{vector.id}: {name}"]
    assert wrong == []
