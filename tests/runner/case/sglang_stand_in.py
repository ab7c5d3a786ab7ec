"""A stand-in for the C functions around SGLang's kernels: ranks are threads, and device memory is the host's.

It follows the kernels' protocol on the same buffers, by addresses, and checks what they rest on: inboxes that are empty
when a call begins, whole vectors, flags and epochs that begin at zero, a grid that stays the same. It adds in float32
in the order of ranks.
"""

import ctypes
import threading

import torch

from cases.dtypes import DTYPES
from kernels.sglang import DTYPES as TYPES
from tests.patience import PATIENCE_S
from tests.runner.case.flashinfer_stand_in import bytes_at

BANKS, EPOCH_BYTES, FLAG_BYTES, TABLE_BYTES = 2, 4, 128, 64


class StandIn:
    """Both modules, for all ranks of a world of threads; calls has what each call was given."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.meeting = threading.Barrier(ranks)
        self.lock = threading.Lock()
        self.local = threading.local()
        self.shown = {}
        self.status = 0
        self.calls = []
        self.held = []

    def symmetric_buffer(self, fabric, dtype, numel):
        """runner.case.library_slots.symmetric_buffer among threads; fresh memory is full of ones."""
        memory = (ctypes.c_uint8 * (numel * dtype.itemsize + 256))()
        ctypes.memset(memory, 0xFF, len(memory))
        address = -(-ctypes.addressof(memory) // 256) * 256
        with self.lock:
            self.held.append(memory)
            self.shown[fabric.rank] = address
        self.meeting.wait(PATIENCE_S)
        addresses = tuple(self.shown[rank] for rank in range(self.ranks))
        self.meeting.wait(PATIENCE_S)
        return bytes_at(address, numel * dtype.itemsize).view(dtype), "the group", addresses

    def symlab_banks(self):
        return BANKS

    def symlab_epoch_bytes(self):
        return EPOCH_BYTES

    def symlab_flag_bytes(self):
        return FLAG_BYTES

    def symlab_table_bytes(self):
        return TABLE_BYTES

    def symlab_push(
        self, type_, ranks, rank, inboxes, epochs, source, target, numel,
        inbox_bytes, blocks, threads, stream):  # fmt: skip
        dtype = DTYPES[TYPES[type_]]
        size_bytes = numel * dtype.itemsize
        assert source.value == target.value, "SGLang pushes in place"
        assert size_bytes % 16 == 0
        assert size_bytes <= inbox_bytes
        own = bytes_at(epochs.value, blocks * EPOCH_BYTES).view(torch.int32)
        epoch = int(own[0])
        assert own.eq(epoch).all(), "every launch has all blocks"
        bank = epoch * ranks * inbox_bytes
        sent = bytes_at(source.value, size_bytes).view(dtype).clone()
        sent[sent == 0] = -0.0
        for peer in range(ranks):
            inbox = bytes_at(inboxes[peer] + bank + rank * inbox_bytes, size_bytes)
            assert not inbox.any(), "an inbox is not empty"
            inbox.copy_(sent.view(torch.uint8))
        self.meeting.wait(PATIENCE_S)
        found = [bytes_at(inboxes[rank] + bank + peer * inbox_bytes, size_bytes) for peer in range(ranks)]
        self.add(bytes_at(target.value, size_bytes).view(dtype), [one.view(dtype) for one in found])
        for one in found:
            one.zero_()
        own.copy_((own + 1) % BANKS)
        return self.done("push", rank, blocks, threads)

    def symlab_pull(
        self, type_, ranks, rank, shots, flags, table, target, numel,
        blocks, threads, stream):  # fmt: skip
        dtype = DTYPES[TYPES[type_]]
        size_bytes = numel * dtype.itemsize
        own = bytes_at(flags[rank], blocks * FLAG_BYTES)
        row = bytes_at(table.value, TABLE_BYTES).view(torch.int64).tolist()
        assert row[ranks:] == [0] * (8 - ranks)
        if not any(one["rank"] == rank for one in self.calls):
            assert not own.any(), "a rank waits for ever: its flags begin elsewhere"
        inputs = [bytes_at(address, size_bytes).view(dtype).clone() for address in row[:ranks]]
        self.meeting.wait(PATIENCE_S)
        assert (target.value is None) == (shots == 2)
        result = bytes_at(row[rank] if shots == 2 else target.value, size_bytes).view(dtype)
        self.add(result, inputs)
        own.fill_(1)
        return self.done(f"pull {shots}", rank, blocks, threads)

    def add(self, target, inputs):
        total = torch.zeros(target.shape)
        for one in inputs:
            total = total + one.float()
        target.copy_(total.to(target.dtype))

    def done(self, what, rank, blocks, threads):
        self.meeting.wait(PATIENCE_S)
        with self.lock:
            self.calls.append({"what": what, "rank": rank, "grid": (blocks, threads)})
        return self.status
