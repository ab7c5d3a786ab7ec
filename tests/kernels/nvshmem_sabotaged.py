"""Kernels on NVSHMEM's device functions with a mistake: a send_recv with one of several or none, which are one code and
a word in memory that says which, and a broadcast."""

from kernels.dsl import put_shares
from kernels.family import Work, address, spec_with
from kernels.spec import Workspace
from kernels.tuning import Step, Tuning

TUNING = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="one block"),))
UNFENCED, UNAWAITED, UNALLOWED, UNTOLD = 1, 2, 4, 8


def body(frame):
    """send_recv by a non-blocking put of the block, a fence and a signal; the mistakes leave out a part each."""
    from kernels.dsl import device
    from kernels.dsl.device_nvshmem import EQUAL, Nvshmem
    from kernels.dsl.signalled import number_of, sync_block

    shmem = Nvshmem.of(frame)
    mistakes = device.load_word(frame.address("mistakes"))
    ready = frame.address("words")
    arrived = ready + 8
    number = number_of(frame)
    after = frame.after(frame.rank, 1)
    before = frame.after(frame.rank, frame.world_size - 1)

    def unless(mistake, what):
        frame.when((frame.thread == 0) & ((mistakes & mistake) == 0), what)

    def allow():
        shmem.fence()
        shmem.signal_op(ready, number, before)
        shmem.signal_wait_until(ready, EQUAL, number)

    unless(UNALLOWED, allow)
    shmem.put(frame.address("output"), frame.address("input"), frame.size, after, nbi=True)
    sync_block()
    unless(UNFENCED, shmem.fence)
    unless(UNTOLD, lambda: shmem.signal_op(arrived, number, after))
    unless(UNAWAITED, lambda: shmem.signal_wait_until(arrived, EQUAL, number))
    sync_block()
    frame.keep_epoch()


def mistaken(name, body, words, **how):
    """A kernel without barriers; words: its workspaces, by name."""
    how |= {"placements": ("out_of_place",), "options": lambda case: {"without_barriers": True}}
    buffers = tuple(map(address, ("input", "output", *words)))
    said = f"{name.partition('/')[0]} with a mistake"
    return spec_with(name, body, TUNING, summary=said, buffers=buffers, work=Work(lambda case: 1), **how)


def spec_of(mistake):
    """The kernel with a mistake; 0: none. All share one compiled code."""

    def workspaces(case):
        return Workspace("words", 2, "uint64"), Workspace("mistakes", 1, fill=mistake.to_bytes(4, "little"))

    used = ("nvshmem_fence", "nvshmemx_signal_op", "nvshmem_signal_wait_until", "nvshmemx_putmem_nbi_block")
    return mistaken("send_recv/sabotaged", body, ("words", "mistakes"), workspaces=workspaces, nvshmem=used)


SPECS = {mistake: spec_of(mistake) for mistake in (0, UNFENCED, UNAWAITED, UNALLOWED, UNTOLD)}
RIGHT, OVERTAKEN, UNREAD, REUSED, SILENT = SPECS.values()


def hasty_body(frame):
    """broadcast/nvshmem_put_signal whose ranks tell all that they are ready, and not the root alone: one that has its
    data sets its next signal, and another that has not looked yet never sees this one."""
    from kernels.dsl.signalled import Signalled

    source, output = frame.address("input"), frame.address("output")
    exchange = Signalled(frame)
    exchange.allow()

    def give_all():
        exchange.each_rank(lambda rank: exchange.give(output, source, frame.size, rank))

    frame.when(frame.rank == frame.root, give_all)
    exchange.await_one(frame.root)
    frame.keep_epoch()


HASTY = mistaken(
    "broadcast/hasty",
    hasty_body,
    ("words",),
    workspaces=lambda case: (put_shares.words(case, TUNING.max_blocks),),
    nvshmem=put_shares.EXCHANGE,
)
