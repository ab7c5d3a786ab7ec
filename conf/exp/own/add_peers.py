"""What add_peers.ptx must give: on every rank the sum of all ranks' inputs, added in rank order from +0."""

import torch


def expected(inputs):
    total = torch.zeros_like(inputs[0]["input"])
    for contents in inputs:
        total = total + contents["input"]
    return [{"output": total} for _ in inputs]
