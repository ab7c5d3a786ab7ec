"""Kernels with a defect each, kept to prove that the checks see it. Never in the catalogue.

Each is a KernelSpec like the right one but for its algorithm's name and what it builds.
"""

from dataclasses import replace
from pathlib import Path

from kernels.catalogue import SPECS, find, retuned
from kernels.tuning import Step, Tuning

HERE = str(Path(__file__).resolve())


def _nothing(*_):
    """What becomes of a barrier."""


def _without_entry(frame):
    frame.arrive = frame.wait = _nothing


def _without_middle(frame):
    frame.meet = _nothing


def _without_rounds(frame):
    frame.kernel.choices["awaits_rounds"] = False


def _without_exit(frame):
    frame.leave = frame.keep_epoch


BARRIERS = {"entry": _without_entry, "middle": _without_middle, "rounds": _without_rounds, "exit": _without_exit}
"""How a frame loses a barrier."""


PUSHED = replace(
    retuned("all_reduce/two_shot", Tuning((Step(96, 3, 8, "small data, too", push=True),))), algorithm="two_shot_pushed"
)
"""No defect: two_shot as the catalogue has it for large buffers."""


def _small(spec):
    """The same algorithm with three small blocks whose threads take one vector after another: a few KB of data go round
    more than once, and ranks have time to run ahead of each other."""
    least = 2 if spec.algorithm == "bulk" else 1  # stages of shared memory
    return retuned(spec.name, Tuning((Step(96, 3, least, "small data"),)))


KERNELS = (*(_small(spec) for spec in SPECS), PUSHED)
"""All of the catalogue, and the pushed two_shot, with small launches: what loses barriers, and is right with them."""

IN_ROUNDS = (
    "reduce_scatter/ll",
    "reduce_scatter/lamport",
    "all_gather/ll",
    "broadcast/ll",
    "reduce/ll",
    "reduce/lamport",
    "all_to_all/ll",
    "send_recv/ll",
    *(f"{op}/ll128" for op in ("reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv")),
)
"""Kernels that poll inboxes, with grants of earlier launches; tests/kernels/dsl/test_rounds.py has more of them."""

CLEARED = ("all_reduce/lamport", "all_reduce/ll", "all_reduce/ll128", "all_reduce/two_shot_lamport", *IN_ROUNDS)
POLLED = (*CLEARED, "barrier/push")
"""Kernels that poll inboxes instead; tests/kernels/dsl/test_rounds.py has what else can be wrong with them."""

OTHER_BARRIERS = {
    **dict.fromkeys(POLLED, ()),
    "all_reduce/two_shot_pushed": ("middle", "exit"),
    "reduce_scatter/push": ("middle", "exit"),
    # Without the exit's they are wrong only where a rank adds a whole launch later than its peers, which few orders do.
    "reduce_scatter/bulk": ("rounds",),
    "reduce_scatter/push_rounds": ("rounds",),
    "reduce/bulk": ("rounds", "exit"),
    "barrier/peers": ("middle",),
    "barrier/multimem": ("middle",),
}


def barriers_of(spec):
    """A kernel's barriers over ranks in their order: one at entry and one at exit, unless it is listed.

    "rounds" are the waits of kernels/dsl/pieces.py.
    """
    return OTHER_BARRIERS.get(spec.name, ("entry", "exit"))


def _sabotaged(spec, defect, sabotage):
    """sabotage is given the kernel that is built."""

    def build(case):
        kernel = spec.build(case)
        sabotage(kernel)
        return kernel

    said = {"algorithm": f"{spec.algorithm}_{defect}", "summary": f"{spec.summary}, with a defect: {defect}"}
    return replace(spec, **said, build=build, files=(*spec.files, HERE))


def _with_frame(spec, defect, change):
    """change is given the frame before the body is."""

    def sabotage(kernel):
        whole = kernel.body

        def body(frame):
            change(frame)
            whole(frame)

        kernel.body = body

    return _sabotaged(spec, defect, sabotage)


def _one_element_short(frame):
    frame.size -= frame.itemsize * frame.world_size  # of each chunk, where there are chunks


def _all_are_root(frame):
    frame.root = frame.rank


def _rank_0_is_root(frame):
    frame.root = frame.root * 0


def _with_choices(**choices):
    return lambda kernel: kernel.choices.update(choices)


def _drops_last_rank(kernel):
    kernel.choices["contributors"] = kernel.choices["world_size"] - 1


SABOTAGED = {
    spec.name: spec
    for spec in (
        PUSHED,
        *(
            _with_frame(spec, f"no_{barrier}_barrier", BARRIERS[barrier])
            for spec in KERNELS
            for barrier in barriers_of(spec)
        ),
        *(_sabotaged(spec, "no_all_clear", _with_choices(all_clear=False)) for spec in KERNELS if spec.name in CLEARED),
        *(_sabotaged(spec, "one_bank", _with_choices(banks=1)) for spec in KERNELS if spec.name in CLEARED),
        *(
            _sabotaged(find(name), "drops_last_rank", _drops_last_rank)
            for name in ("all_reduce/one_shot", "reduce_scatter/pull", "reduce/two_shot")
        ),
        *(
            _with_frame(find(name), "short", _one_element_short)
            for name in ("all_gather/push", "broadcast/two_shot", "all_to_all/pull", "send_recv/push")
        ),
        _with_frame(find("reduce/pull"), "for_all", _all_are_root),
        _with_frame(find("broadcast/pull"), "of_rank_0", _rank_0_is_root),
        _sabotaged(find("barrier/push"), "no_fence", _with_choices(fences=False)),
        _sabotaged(find("all_reduce/one_shot"), "accumulates_natively", _with_choices(accumulator="native")),
        _sabotaged(find("all_reduce/multimem_one_shot"), "no_wide_accumulator", _with_choices(accumulator="native")),
    )
}
"""By name: "all_reduce/one_shot_no_entry_barrier" and so on. Who loses a barrier is of KERNELS, with small launches."""
