"""A GPU leaves of every form of matrix products the bits that an H100 left: hardware/h100.json.xz has their digests."""

import pytest
import torch

from memory.driver import CudaDriver
from tests.simulator.isa.products import digest, forms, hardware_digests, inputs_of
from tests.simulator.isa.products_on_gpu import on_gpu


@pytest.mark.gpu
def test_a_gpu_leaves_the_bits_of_an_h100():
    if not torch.cuda.is_available() or torch.cuda.get_device_capability(0)[0] != 9:
        pytest.skip("there is no GPU of sm_90")
    driver, kept = CudaDriver(0, 0), hardware_digests()
    wrong = [
        f"{form.name}, {category}"
        for form in forms()
        for category in form.categories
        if digest(on_gpu(driver, form, *inputs_of(form, category))) != kept[form.name][category][1]
    ]
    assert wrong == []
