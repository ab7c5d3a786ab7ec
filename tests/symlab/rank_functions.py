"""What ranks in processes of their own run in tests: they import it, hence a module."""

import torch

from tests.runner.rank_programs import SEND


def sent_on(rank, first):
    """What the previous rank's kernel stored here."""
    with rank.pool() as pool:
        source = pool.tensor(4, torch.int32, name="source", fill=rank.rank + first)
        target = pool.tensor(4, torch.int32, name="target", fill=0)
        rank.barrier()
        following = target.peer((rank.rank + 1) % rank.world_size)
        rank.launch(SEND, grid=1, block=1, arguments=[following, source, ("u64", source.size_bytes)])
        rank.synchronize()
        rank.barrier()
        return [int(one) for one in target.read()]


def divided(rank, at):
    """An exception on one rank, with symmetric memory held there and on the others."""
    with rank.pool() as pool:
        pool.tensor(4, torch.int32, name="held", fill=0)
        share = 1 / (rank.rank - at)
        rank.barrier()
        return share


def left_behind(rank, argument):
    """Symmetric memory that is allocated past the pool, and never released."""
    rank.fabric.allocate(16, 16, "flags")
