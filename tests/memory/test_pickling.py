"""Pickles of tensors: every data type, views, empty ones."""

import pickle

import pytest
import torch

from cases.dtypes import ITEMSIZES
from memory.pickling import dumps


@pytest.mark.parametrize("name", ITEMSIZES)
def test_a_tensor_comes_back_bit_for_bit(name):
    content = torch.arange(48 * ITEMSIZES[name], dtype=torch.int64).to(torch.uint8)
    tensor = content.view(getattr(torch, name)).reshape(6, 8)[:, ::2]
    (found,) = pickle.loads(dumps({"a": [tensor]}))["a"]
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert found.contiguous().view(torch.uint8).equal(tensor.contiguous().view(torch.uint8))


def test_scalars_and_empty_tensors_keep_their_shape():
    scalar, empty = pickle.loads(dumps((torch.tensor(3.5), torch.empty(0, 3))))
    assert (scalar.item(), scalar.shape, empty.shape) == (3.5, (), (0, 3))
