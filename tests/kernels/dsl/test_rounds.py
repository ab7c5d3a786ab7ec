"""Kernels that poll their inboxes: launches of other sizes and roots in a row, how far a rank may be ahead of others,
what becomes of them without their grants, halves that come apart, who never came, and bits.

What holds for all kernels (results, memory, launches in a row by many seeds) is tested with all kernels.
"""

import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from cases.case import Case
from cases.dtypes import DTYPES
from cases.ops import collective
from kernels.catalogue import retuned
from kernels.dsl import slots
from kernels.dsl.status import DATA, EXIT, PHASES, RESULT, describe
from kernels.numeric import numerics
from kernels.numeric.formats import same_bits
from kernels.tuning import Step, Tuning
from kernels.ways.one_way import LAMPORT, LL, one_way
from kernels.ways.two_shot import unit_owner
from memory.fabric import Deadlock, Executable
from tests.golden import refused
from tests.kernels.launching import PATTERN, Bound, Found, Launches, as_int32, numbers, random_bytes, some_slow
from tests.kernels.sabotaged import IN_ROUNDS

RANKS = 3
SMALL = Tuning((Step(threads=96, blocks=4, loads_in_flight=2, reason="small data"),))
REDUCED = ("all_reduce/lamport", "all_reduce/ll", "all_reduce/two_shot_lamport")
NAMES = (*IN_ROUNDS, *REDUCED)
SPECS = {name: retuned(name, SMALL) for name in NAMES}
SENDERS = ("broadcast/ll", "broadcast/ll128", "reduce/ll", "reduce/lamport")
"""Where some rank sends and gets no data: only grants stop it. (In send_recv data comes back around the ring, so that
on 3 ranks none gets further ahead than its banks allow.)"""

SET_BACK = ("reduce_scatter/lamport", "reduce/lamport", "all_reduce/lamport", "all_reduce/two_shot_lamport")
FORMS = {"lamport": slots.SET_BACK, "ll": slots.FLAGGED, "ll128": slots.IN_LINES}
ROUNDS = {name: FORMS[name.partition("/")[2]] for name in IN_ROUNDS}
OTHERS = tuple(slots.Rounds(*values) for values in ((8, 4, 2), (2, 1, 2), (4, 1, 1), (8, 2, 1)))
SEEDS = range(8)
QUICK = ("broadcast/ll", "reduce/lamport")
PATIENCE_NS = 3_000_000


def with_choices(spec, **choices):
    """The spec, built with other choices than its own."""

    def build(case):
        kernel = spec.build(case)
        kernel.choices.update(choices)
        return kernel

    name = "_".join(f"{key}_{value}" for key, value in choices.items())
    name = name.replace("-", "minus_")  # part of an identifier
    return replace(spec, algorithm=f"{spec.algorithm}_{name}", build=build, files=(*spec.files, __file__))


@dataclass(slots=True)
class Queued(Launches):
    """Launches of other sizes and roots on one set of workspaces, all queued at once, each on an input and an output of
    its own. cases has one a launch; none is larger than the case."""

    cases: Sequence[Case] = ()
    touched: Callable[[Bound], None] = lambda bound: None
    """What a rank's host does before the first."""

    def _rank(self, fabric):
        executable = self.executables if isinstance(self.executables, Executable) else self.executables[fabric.rank]
        bound = Bound(fabric, self.case, self.spec, self.collective, self.epoch)
        strides = [-(-bound.sizes[name] // 16) * 16 for name in ("input", "output")]
        regions = [
            fabric.allocate(max(stride * len(self.cases), 16), 256, name)
            for name, stride in zip(("inputs", "outputs"), strides, strict=True)
        ]
        fabric.write(regions[1], 0, torch.full((strides[1] * len(self.cases),), PATTERN, dtype=torch.uint8))
        for launch, case in enumerate(self.cases):
            if case.numel:
                data = numbers(case, launch, fabric.rank).view(torch.uint8)
                fabric.write(regions[0], strides[0] * launch, data)
        self.touched(bound)
        tables = {one.of: bound.argument(one, 0) for one in self.spec.parameters if one.kind == "peers"}
        fabric.barrier()
        for launch, case in enumerate(self.cases if executable else ()):
            own = {"numel": case.numel, "root": case.root}
            places = {"input": (0, strides[0]), "output": (1, strides[1])}
            given = []
            for one in self.spec.parameters:
                if one.kind == "peers":
                    value = tables[one.of]
                elif one.of in places:
                    number, stride = places[one.of]
                    value = regions[number].address + stride * launch
                else:
                    value = own[one.kind] if one.kind in own else bound.argument(one, self.patience)
                given.append(one.argument(value))
            fabric.launch(executable, self.spec.launch(case), given)
        fabric.synchronize()
        content = fabric.read(regions[1], 0, strides[1] * len(self.cases)).clone()
        fabric.barrier()
        names = [name for name in ("epochs", "status", "turns") if name in bound.regions]
        workspaces = {name: bound.payload(name).view(torch.int32) for name in names}
        return Found(tuple(content.view(len(self.cases), strides[1])), workspaces, (), dict(bound.regions))

    def seen(self):
        """ "right", "wrong", or an error's name."""
        for error in self.errors.values():
            return type(error).__name__
        right = all(self.holds(rank, launch) for rank in self.found for launch in range(len(self.cases)))
        return "right" if right else "wrong"

    def holds(self, rank, launch):
        """Whether a launch's output is what the op wants, and nothing beyond it was written."""
        case, content = self.cases[launch], self.found[rank].outputs[launch]
        inputs = [numbers(case, launch, one) for one in range(case.world_size)] if case.numel else []
        parts = self.collective.outputs(inputs, rank, case.root) if inputs else None
        size = 0
        if parts is not None:
            wanted = functools.reduce(operator.add, parts)
            size = wanted.numel() * case.itemsize
            if not torch.equal(content[:size].view(DTYPES[case.dtype]), wanted):
                return False
        return bool((content[size:] == PATTERN).all())


@pytest.fixture
def queued(fit_case, compiled):
    """queued(spec, sizes, ..): launches of so many bytes on 3 ranks, the root another each time unless given."""

    def make(spec, sizes, root=None, ranks=RANKS, **values):
        rooted = collective(spec.op).rooted
        plain = {"root": 0} if rooted else {}
        largest = fit_case(spec, world_size=ranks, size_bytes=max(*sizes, 16), **plain)
        executable = compiled(spec, largest, "sm_90a")
        absent = values.pop("absent", ())
        every = [None if rank in absent else executable for rank in range(ranks)]
        roots = [(launch if root is None else root) % ranks if rooted else 0 for launch in range(len(sizes))]
        cases = [
            fit_case(spec, world_size=ranks, size_bytes=size, root=one) for size, one in zip(sizes, roots, strict=True)
        ]
        return Queued(spec, largest, every, cases=cases, **values)

    return make


def outcomes(work, seeds=SEEDS, **how):
    """What is seen in fair order and by each seed."""
    for seed in (None, *seeds):
        one = work()
        one.run(**({} if seed is None else {"schedule": "random", "seed": seed, **how}))
        yield one.seen()


BETWEEN = (900, 6, 6, 900, 84, 0, 0, 0, 18, 600)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_by_every_seed_and_under_the_adversary(queued, name):
    assert set(outcomes(lambda: queued(SPECS[name], BETWEEN), SEEDS)) == {"right"}
    for seed in range(2):
        for memory in ("strong", "weak"):
            work = queued(SPECS[name], BETWEEN)
            work.run(schedule="adversarial", seed=seed, memory=memory)
            assert work.seen() == "right"


def launches_alone(work):
    """How many launches in a row end on rank 0 though the others never launch."""
    for count in range(1, 20):
        one = work(count)
        one.run()
        if one.errors:
            assert isinstance(one.errors[0], Deadlock)
            return count - 1
    raise AssertionError("nothing stops it")


AHEAD = {
    **{"broadcast/ll": 14, "broadcast/ll128": 6, "reduce/ll": 14, "reduce/lamport": 13},
    **{"all_reduce/ll": 14, "all_reduce/lamport": 13, "all_reduce/two_shot_lamport": 5},
}
"""Launches that end on rank 0 alone, where it is not 0."""


@pytest.mark.parametrize("name", some_slow(NAMES, quick=REDUCED.__contains__))
def test_a_rank_ends_so_many_launches_before_others_begin_theirs(queued, name):
    """Rank 0 sends to a root, or is one: it can end as many launches as leave a bank free of what others have not read.
    Where it gets data it ends none, unless there are no elements."""
    root = {"broadcast": 0, "reduce": 1}.get(SPECS[name].op)
    size_bytes = 0 if name in REDUCED else 48
    found = launches_alone(lambda count: queued(SPECS[name], [size_bytes] * count, root, absent=(1, 2)))
    assert found == AHEAD.get(name, 0)


@pytest.mark.parametrize("name", some_slow(SENDERS, quick=QUICK.__contains__))
def test_a_rank_that_only_sends_waits_for_the_grants_alone(queued, name):
    """The report says so, and whom it waits for."""
    root = {"broadcast": 0, "reduce": 1}[SPECS[name].op]
    work = queued(SPECS[name], [48] * ROUNDS[name].banks, root, absent=(2,), patience=PATIENCE_NS)
    work.run()
    status = work.found[0].workspaces["status"].tolist()
    assert (PHASES[status[3]], status[4]) == (PHASES[EXIT], 2)


@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_who_never_came_is_named_by_who_gets_its_data(queued, name):
    """In two halves rank 1 may miss what rank 0 makes of it, or get that: rank 0 has reported that it is worthless."""
    root = {"broadcast": 2, "reduce": 0}.get(SPECS[name].op)
    work = queued(SPECS[name], [16] if name in REDUCED else [48], root, absent=(2,), patience=PATIENCE_NS, epoch=6)
    work.run()
    assert work.errors == {}
    texts = [describe(work.found[rank].workspaces["status"].tolist(), rank) for rank in range(2)]
    wanted = "rank {}, block [0-9]+: {}: waited 3 ms for rank {}: epoch 7, nothing at byte [0-9]+"
    assert re.fullmatch(wanted.format(0, PHASES[DATA], 2), texts[0])
    if name in REDUCED:
        others = (PHASES[RESULT], 0) if name.endswith("two_shot_lamport") else (PHASES[DATA], 2)
        assert re.fullmatch(wanted.format(1, *others), texts[1]) or (others[1] == 0 and texts[1] == "")


EMPTY_BETWEEN = [16, *[*[0] * 15, 16] * 6]
"""Without elements only the grants keep ranks together; 16 launches on is the same bank again."""

LEFT_OUT = [
    *((name, {"all_clear": False}, [48] * 5 * ROUNDS[name].banks) for name in SENDERS),
    *((name, {"clears": False}, [600] * (slots.SET_BACK.banks + 2)) for name in SET_BACK[:2]),
    *((name, {"clears": False}, [1000] * 18) for name in SET_BACK[2:]),
    ("all_reduce/lamport", {"banks": 2}, [16] * 40),
    ("all_reduce/lamport", {"all_clear": False}, EMPTY_BETWEEN),
    ("all_reduce/ll", {"banks": 1}, [80] * 20),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "choices", "sizes"), LEFT_OUT, ids=lambda one: str(one) if isinstance(one, str | dict) else ""
)
def test_what_is_left_out_is_missed(queued, name, choices, sizes):
    spec = with_choices(SPECS[name], **choices)
    assert any(one != "right" for one in outcomes(lambda: queued(spec, sizes, 1)))


@pytest.mark.parametrize("name", some_slow(SET_BACK, quick=lambda name: name == "all_reduce/lamport"))
def test_a_negative_zero_that_is_sent_as_it_is_would_never_come(queued, name):
    work = queued(with_choices(SPECS[name], safe_zeros=False), [1_800], 1)
    work.run()
    assert Deadlock in {type(error) for error in work.errors.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(SENDERS, quick=lambda name: name == "broadcast/ll"))
def test_a_grant_of_one_launch_too_early_is_not_enough(queued, name):
    """One grant earlier: where there is one in every fourth launch, four launches."""
    rounds = ROUNDS[name]
    spec = with_choices(SPECS[name], behind=(3 if rounds.is_set_back else 2) - rounds.grant_every)
    seen = set()
    for late in range(RANKS):
        work = queued(spec, [48] * 3 * rounds.banks, 1)
        work.world = behind_world(late)
        work.run()
        seen.add(work.seen())
    assert seen != {"right"}


def behind_world(late):
    """A world in which a rank is slower than the others."""
    from tests.mutants.mutant_runs import Behind, late_world

    return late_world(late, Behind)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(SENDERS, quick=lambda name: name == "reduce/lamport"))
def test_whole_kernels_are_right_with_a_slow_rank(queued, name):
    for late in range(RANKS):
        work = queued(SPECS[name], [48] * 3 * ROUNDS[name].banks, 1)
        work.world = behind_world(late)
        work.run()
        assert work.seen() == "right"


@pytest.mark.parametrize("epoch", [-3, (1 << 31) - 3, (1 << 30) - 3])
@pytest.mark.parametrize("name", some_slow(NAMES, quick=lambda name: name == "broadcast/ll"))
def test_epochs_wrap_and_all_blocks_keep_the_same(queued, name, epoch):
    work = queued(SPECS[name], [1_800, 6, 1_800, 6, 1_800, 1_800, 6], epoch=epoch)
    work.run(schedule="random", seed=1)
    assert work.seen() == "right"
    for found in work.found.values():
        assert found.workspaces["epochs"].tolist() == [as_int32(epoch + 7)] * SMALL.max_blocks
        assert not found.workspaces["status"].any()
        if name in SET_BACK:
            assert found.workspaces["turns"].tolist() == [1] * SMALL.max_blocks


KINDS = [
    ("float64", "native", "avg", "in_place"),
    ("float32", "native", "min", "out_of_place"),
    ("bfloat16", "float32", "sum", "in_place"),
    ("float16", "native", "avg", "out_of_place"),
    ("float8_e4m3fn", "float16", "sum", "in_place"),
    ("float8_e5m2", "native", "max", "out_of_place"),
    ("uint64", "native", "xor", "in_place"),
]


@pytest.mark.parametrize(
    ("name", "dtype", "accumulator", "reduction", "placement"),
    some_slow(
        [
            (name, *kind)
            for name in NAMES
            if name.startswith(("reduce", "all_reduce"))
            for kind in KINDS
            if kind[0] in SPECS[name].dtypes
        ],
        quick=lambda made: made[:2] == ("reduce/lamport", "bfloat16"),
    ),
)
def test_every_bit_pattern_gives_the_bits_of_the_fold(
    fit_case, compiled, name, dtype, accumulator, reduction, placement
):
    spec = SPECS[name]
    values = {"dtype": dtype, "accumulator": accumulator, "reduction": reduction, "placement": placement}
    root = {"root": 1} if collective(spec.op).rooted else {}
    case = fit_case(spec, size_bytes=8 * 153, offset=1, **values, **root)

    def inputs(launch, rank):
        bits = random_bytes(case.size_bytes, launch, rank)
        bits[: 8 * 21] = torch.frombuffer(bytearray(slots.sentinel(case.itemsize) * 21), dtype=torch.uint8)
        return bits.roll(24 * rank)

    work = Launches(spec, case, compiled(spec, case, "sm_90a"), inputs=inputs, count=2)
    for rank, found in enumerate(work.succeed()):
        assert found.changed == ()
        for launch, output in enumerate(found.outputs):
            whole = [inputs(launch, one).view(DTYPES[dtype]) for one in range(RANKS)]
            parts = collective(spec.op).outputs(whole, rank, case.root)
            if parts is None:
                continue
            first = None if spec.owner is None else (spec.owner(case, rank) + 1) % RANKS
            wanted = numerics.fold(parts, accumulator, reduction, first, spec.positive_zero)
            assert bool(same_bits(output.view(DTYPES[dtype]), wanted).all())


@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_one_rank_needs_no_inbox(fit_case, compiled, opcodes, name):
    spec, case = SPECS[name], fit_case(SPECS[name], world_size=1, size_bytes=154)
    executable = compiled(spec, case, "sm_90a")
    assert not [opcode for opcode in opcodes(executable.ptx) if ".sys." in opcode]
    data = torch.arange(0, 154, dtype=torch.uint8)
    data.view(torch.bfloat16)[5] = -0.0
    (found,) = Launches(spec, case, executable, inputs=lambda launch, rank: data).succeed()
    assert torch.equal(found.outputs[0], data)


@pytest.mark.parametrize("name", some_slow(NAMES, quick=REDUCED.__contains__))
def test_a_launch_loads_its_data_before_it_uses_its_epoch_or_an_address(fit_case, compiled, name):
    """So all loads are under way together: no load comes after a value of another, and at most one branch, that
    around the data's, before the first store to a peer's inbox."""
    ptx = compiled(SPECS[name], fit_case(SPECS[name], world_size=2, size_bytes=1_536), "sm_90a").ptx
    units = 2 if name.endswith("ll128") else 1
    addresses = 2 if name in REDUCED[:2] else 1
    before = re.split(r"st\.(?:relaxed\.sys\.)?global\.v2\.b64", ptx)[0]
    loads = re.findall(r"ld\.global\.(\S+) \{?(%\w+)[^\[]*\[(%\w+)\]", before)
    assert [kind for kind, _, _ in loads if kind != "b32"] == [*["v4.b32"] * units, *["b64"] * addresses]
    fewest = units + addresses + 1
    assert fewest <= len(loads) <= fewest + (name not in REDUCED)  # the units of the last message, set back
    assert len(re.findall(r"\bbra\b", before)) == units + 1
    loaded = {register for _, register, _ in loads}
    assert not loaded & {address for _, _, address in loads}


@pytest.mark.parametrize("values", [(3, 1, 2), (4, 3, 2), (0, 1, 2), (2, 2, 2), (2, 1, 1), (4, 4, 2)])
def test_rounds_that_could_not_work_are_refused(values):
    with refused():
        slots.Rounds(*values)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", OTHERS, ids=str)
def test_other_banks_and_grants_are_right_too(queued, rounds):
    op = "reduce" if rounds.is_set_back else "broadcast"
    spec = one_way(op, LAMPORT if rounds.is_set_back else LL, SMALL, rounds)
    assert set(outcomes(lambda: queued(spec, [600, 6, 48] * 7), SEEDS[:2])) == {"right"}


def test_workspaces_grow_with_what_is_sent_only(fit_case):
    """Sixteen banks, of twice the size with flags, or eight of 1 KiB for 960 bytes in lines: of seven chunks, of one
    message, or at a root of seven messages. Fewer banks on more than eight ranks."""
    size, n = 1 << 16, 8
    expected = {
        "all_gather/ll": 32 * 7 * size // n,
        "reduce_scatter/lamport": 16 * 7 * size // n,
        "send_recv/ll": 32 * size,
        "reduce/ll": 32 * 7 * size,
        "broadcast/ll128": 8 * -(-size // 960) * 1024,
        "all_reduce/lamport": 16 * n * size,
        "all_reduce/two_shot_lamport": 8 * 7 * size // n + 8 * size,
    }
    for name, wanted in expected.items():
        workspaces = SPECS[name].workspaces(fit_case(SPECS[name], world_size=n, size_bytes=size))
        assert sum(4 * one.numel for one in workspaces if one.name in ("inbox", "contributions", "results")) == wanted
    for name in NAMES:
        largest = fit_case(SPECS[name], world_size=72, size_bytes=SPECS[name].max_size_bytes // 72 * 72)
        assert sum(4 * one.numel for one in SPECS[name].workspaces(largest)) < 2 << 30, name


@pytest.mark.slow
@pytest.mark.parametrize("come", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("name", REDUCED[:2])
def test_each_half_of_a_slot_is_awaited(queued, name, come):
    """Rank 1 never launches; halves of its contribution are written by hand. Where all have come, nothing is missed:
    the next launch needs no grant of this one."""
    flagged = name.endswith("/ll")
    bank, rows = 1, 2

    def touched(bound):
        if bound.fabric.rank != 0:
            return
        words = numbers(work.case, 0, 1).view(torch.int32)  # none is -0.0
        halves = torch.stack([words, torch.full_like(words, 3)], 1).flatten() if flagged else words
        row_bytes = slots.TILE_BYTES * (2 if flagged else 1)
        begin = bound.start("inbox", 0) + (bank * rows + 1) * row_bytes
        for slot in range(2 if flagged else 1):
            for half in come:
                content = halves[4 * slot + 2 * half :][:2].view(torch.uint8)
                bound.fabric.write(bound.regions["inbox"], begin + slot * slots.TILE_BYTES + 8 * half, content)

    work = queued(SPECS[name], [16], ranks=2, absent=(1,), patience=PATIENCE_NS, touched=touched)
    work.run()
    assert work.errors == {}
    status = work.found[0].workspaces["status"].tolist()
    phase, peer = status[3], status[4]
    if come == (0, 1):
        assert not any(status)
        assert work.holds(0, 0)
    else:
        assert (PHASES[phase], peer) == (PHASES[DATA], 1)


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("size_bytes", [1 << 10, 3 << 10, 4 << 10, 12 << 10])
def test_small_messages_leave_the_last_threads_to_the_signals(fit_case, name, size_bytes):
    """Also where units fill blocks of 96, 128 or 192 threads."""
    for world_size in (2, 3, 8, 72):
        for threads in (96, 128, 192):
            step = Step(threads=threads, blocks=128, loads_in_flight=1, reason="small blocks")
            spec = retuned(name, Tuning((step,)))
            case = fit_case(spec, world_size=world_size, size_bytes=size_bytes)
            units = slots.units(case)
            sent = -(-units // world_size) if name.endswith("two_shot_lamport") else units
            groups = spec.choices(case).get("groups", 1)
            assert spec.launch(case).blocks // groups * threads >= sent + world_size


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_an_inbox_begins_with_negative_zeros(itemsize):
    kind = {1: torch.float8_e5m2, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[itemsize]
    begin = torch.frombuffer(bytearray(slots.sentinel(itemsize)), dtype=torch.uint8)
    values = begin.view(kind).to(torch.float64)
    assert values.numel() == 8 // itemsize
    assert bool((values == 0).all() & values.signbit().all())


@pytest.mark.parametrize("numel", [0, 1, 8, 9, 17, 1000])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_slices_have_whole_units_but_for_the_last(fit_case, world_size, numel):
    case = replace(fit_case(SPECS[REDUCED[2]], world_size=world_size), size_bytes=2 * numel)
    owner = unit_owner(case, 0)
    assert owner.shape == (numel,)
    assert bool((owner[1:] >= owner[:-1]).all())
    counts = torch.bincount(owner[::8], minlength=world_size)
    assert int(counts.max() - counts.min()) <= 1
    for start in range(0, numel, 8):
        assert len(set(owner[start : start + 8].tolist())) == 1
