"""Inboxes that are polled: halves that come apart, launches of other sizes between, banks, turns, who never came.

What holds for all kernels (results, launches in a row by many seeds) is tested with all kernels.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from kernels_launching import PATTERN, Bound, Found, Launches, as_int32, random_bytes, some_slow

from kernels.all_reduce import lamport, ll, two_shot_lamport
from kernels.catalogue import collective
from kernels.dsl import slots
from kernels.dsl.status import DATA, PHASES, RESULT, describe
from kernels.numeric import numerics
from kernels.numeric.dtypes import DTYPES
from kernels.numeric.formats import same_bits
from kernels.spec import Case, KernelSpec, refuses
from kernels.tuning import Step, Tuning
from memory.fabric import Deadlock, Executable, Traits
from simulator.fabric import SimulatorFabric

Compiled = Callable[[KernelSpec, Case, str], Executable]
CaseOf = Callable[..., Case]

HERE = __file__
SMALL = Tuning((Step(threads=96, blocks=3, loads_in_flight=4, reason="small data"),))
SPECS = {module.SPEC.algorithm: module.spec_of(SMALL) for module in (lamport, ll, two_shot_lamport)}
ALGORITHMS = list(SPECS)
SEEDS = range(5)
PATIENCE_NS = 3_000_000


def with_choices(spec: KernelSpec, **choices: Any) -> KernelSpec:
    """The spec, built with other choices than its own."""

    def build(case: Case) -> Any:
        kernel = spec.build(case)
        kernel.choices.update(choices)
        return kernel

    name = "_".join(f"{key}_{value}" for key, value in choices.items())
    return replace(spec, algorithm=f"{spec.algorithm}_{name}", build=build, files=(*spec.files, HERE))


def numbers(case: Case, launch: int, rank: int) -> torch.Tensor:
    """Small integers, some of them -0.0, 16 in a row, too; others for every launch and rank."""
    made = (torch.arange(case.numel) * 7 + launch * 13 + rank * 31) % 61 - 30.0
    made[launch % 7 :: 7] = -0.0
    made[32:48] = -0.0
    return made.to(DTYPES[case.dtype])


def summed(case: Case, launch: int) -> torch.Tensor:
    inputs = [numbers(case, launch, rank) for rank in range(case.world_size)]
    return functools.reduce(torch.add, inputs)


@dataclass(slots=True)
class Sizes(Launches):
    """Launches of other sizes than the case's on its workspaces, all queued at once, each on an input and an output of
    its own: numels has one a launch; touched is what a rank's host does before the first."""

    numels: Sequence[int] = ()
    touched: Callable[[Bound], None] = lambda bound: None

    def _rank(self, fabric: SimulatorFabric) -> Found:
        case, count = self.case, len(self.numels)
        bound = Bound(fabric, case, self.spec, self.collective, self.epoch)
        stride = -(-case.size_bytes // 16) * 16
        regions = {name: fabric.allocate(stride * count, 256, f"{name}s") for name in ("input", "output")}
        fabric.write(regions["output"], 0, torch.full((stride * count,), PATTERN, dtype=torch.uint8))
        for launch in range(count):
            fabric.write(regions["input"], stride * launch, numbers(case, launch, fabric.rank).view(torch.uint8))
        self.touched(bound)
        fixed = {one.of: bound.argument(one, 0) for one in self.spec.parameters if one.kind == "peers"}
        fabric.barrier()
        executable = self.executables if isinstance(self.executables, Executable) else self.executables[fabric.rank]
        for launch, numel in enumerate(self.numels if executable else ()):
            arguments = []
            for parameter in self.spec.parameters:
                if parameter.kind == "peers":
                    arguments.append(fixed[parameter.of])
                elif parameter.of in regions:
                    arguments.append(regions[parameter.of].address + stride * launch)
                else:
                    arguments.append(numel if parameter.kind == "numel" else bound.argument(parameter, self.patience))
            shape = self.spec.launch(replace(case, size_bytes=numel * case.itemsize))
            given = [one.argument(value) for one, value in zip(self.spec.parameters, arguments, strict=True)]
            fabric.launch(executable, shape, given)
        fabric.synchronize()
        content = fabric.read(regions["output"], 0, stride * count)
        outputs = tuple(one[: case.size_bytes] for one in content.clone().view(count, stride))
        fabric.barrier()
        names = [name for name in ("epochs", "status", "turns") if name in bound.regions]
        workspaces = {name: bound.payload(name).view(torch.int32) for name in names}
        return Found(outputs, workspaces, (), dict(bound.regions))

    def seen(self) -> str:
        """ "right", "wrong", or an error's name."""
        for error in self.errors.values():
            return type(error).__name__
        for found in self.found.values():
            for launch, numel in enumerate(self.numels):
                size = numel * self.case.itemsize
                values = found.outputs[launch][:size].view(DTYPES[self.case.dtype])
                if not torch.equal(values, summed(self.case, launch)[:numel]):
                    return "wrong"
                if not bool((found.outputs[launch][size:] == PATTERN).all()):
                    return "wrong"
        return "right"


@pytest.fixture
def launches(case_of: CaseOf, compiled: Compiled) -> Callable[..., Sizes]:
    """launches(spec, numels, ..): on 3 ranks, of bfloat16 unless told otherwise."""

    def make(spec: KernelSpec, numels: Sequence[int], case: Case | None = None, **values: Any) -> Sizes:
        largest = case or case_of(spec.algorithm, world_size=3, size_bytes=2 * max(*numels, 1))
        executable = compiled(spec, largest, "sm_90a")
        every = [None if rank in values.get("absent", ()) else executable for rank in range(largest.world_size)]
        values.pop("absent", None)
        return Sizes(spec, largest, every, inputs=lambda launch, rank: torch.empty(0), numels=numels, **values)

    return make


def outcomes(work: Callable[[], Sizes]) -> Iterator[str]:
    """What is seen in fair order and by each seed."""
    for seed in (None, *SEEDS):
        one = work()
        one.run(**({} if seed is None else {"schedule": "random", "seed": seed}))
        yield one.seen()


@pytest.mark.slow
@pytest.mark.parametrize("numels", [[900, 3, 3, 900, 40, 41, 900, 8], [500, 0, 0, 500, 0, 500, 0, 500]], ids=str)
@pytest.mark.parametrize("algorithm", some_slow(ALGORITHMS, quick=lambda algorithm: algorithm == "lamport"))
def test_launches_of_other_sizes_may_come_between(
    launches: Callable[..., Sizes], algorithm: str, numels: list[int]
) -> None:
    assert set(outcomes(lambda: launches(SPECS[algorithm], numels))) == {"right"}


EMPTY_BETWEEN = [8, *[*[0] * 15, 8] * 6]
"""Without elements only the grants keep ranks together; 16 launches on is the same bank again."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "choices", "numels"),
    [
        ("lamport", {"clears": False}, [500] * 18),
        ("lamport", {"safe_zeros": False}, [500]),
        ("lamport", {"banks": 2}, [8] * 40),
        ("lamport", {"all_clear": False}, EMPTY_BETWEEN),
        ("ll", {"banks": 1}, [40] * 20),
        ("two_shot_lamport", {"clears": False}, [500] * 10),
        ("two_shot_lamport", {"safe_zeros": False}, [500]),
    ],
    ids=lambda one: str(one) if isinstance(one, str | dict) else "",
)
def test_what_is_left_out_is_missed(
    launches: Callable[..., Sizes], algorithm: str, choices: dict[str, object], numels: list[int]
) -> None:
    spec = with_choices(SPECS[algorithm], **choices)
    assert any(one != "right" for one in outcomes(lambda: launches(spec, numels)))


def test_data_that_is_all_negative_zeros_would_never_come(launches: Callable[..., Sizes]) -> None:
    work = launches(with_choices(SPECS["lamport"], safe_zeros=False), [500])
    work.run()
    assert {type(error) for error in work.errors.values()} == {Deadlock}


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [-3, (1 << 31) - 3, (1 << 30) - 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_epochs_wrap_and_all_blocks_keep_the_same_turn(
    launches: Callable[..., Sizes], algorithm: str, epoch: int
) -> None:
    work = launches(SPECS[algorithm], [900, 2, 900, 2, 900, 900, 2], epoch=epoch)
    work.run(schedule="random", seed=1)
    assert work.seen() == "right"
    for found in work.found.values():
        assert found.workspaces["epochs"].tolist() == [as_int32(epoch + 7)] * SMALL.max_blocks
        if algorithm != "ll":
            assert found.workspaces["turns"].tolist() == [1] * SMALL.max_blocks
        assert not found.workspaces["status"].any()


@pytest.mark.slow
@pytest.mark.parametrize("come", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("algorithm", ["lamport", "ll"])
def test_each_half_of_a_slot_is_awaited(
    launches: Callable[..., Sizes], case_of: CaseOf, algorithm: str, come: tuple[int, ...]
) -> None:
    """Rank 1 never launches; halves of its contribution are written by hand. Where all have come, nothing is missed:
    the next launch needs no grant of this one."""
    spec, flagged = SPECS[algorithm], algorithm == "ll"
    case = case_of(algorithm, world_size=2, size_bytes=16)
    bank, rows = 1, 2

    def touched(bound: Bound) -> None:
        if bound.fabric.rank != 0:
            return
        theirs = numbers(case, 0, 1) + 0.0  # no -0.0
        words = theirs.view(torch.int32)
        halves = torch.stack([words, torch.full_like(words, 3)], 1).flatten() if flagged else words
        row_bytes = slots.TILE_BYTES * (2 if flagged else 1)
        begin = bound.start("inbox", 0) + (bank * rows + 1) * row_bytes
        for slot in range(2 if flagged else 1):
            for half in come:
                content = halves[4 * slot + 2 * half :][:2].view(torch.uint8)
                bound.fabric.write(bound.regions["inbox"], begin + slot * slots.TILE_BYTES + 8 * half, content)

    work = launches(spec, [8], case, absent=(1,), patience=PATIENCE_NS, touched=touched)
    work.run()
    assert work.errors == {}
    status = work.found[0].workspaces["status"].tolist()
    phase, peer = status[3], status[4]
    if come == (0, 1):
        assert not any(status)
        assert torch.equal(work.found[0].outputs[0].view(torch.bfloat16), summed(case, 0))
    else:
        assert (PHASES[phase], peer) == (PHASES[DATA], 1)


@pytest.mark.slow
def test_who_never_came_is_named(launches: Callable[..., Sizes]) -> None:
    """Of a single unit rank 0 is the owner: it misses rank 2's contribution. Rank 1 may miss what rank 0 makes of it,
    or get that: rank 0 ends its launch, and has reported by then that it is worthless."""
    expected = {
        "lamport": [(DATA, 2), (DATA, 2)],
        "ll": [(DATA, 2), (DATA, 2)],
        "two_shot_lamport": [(DATA, 2), (RESULT, 0)],
    }
    for algorithm, ranks in expected.items():
        work = launches(SPECS[algorithm], [8], absent=(2,), patience=PATIENCE_NS, epoch=6)
        work.run()
        assert work.errors == {}
        for rank, (phase, peer) in enumerate(ranks):
            found = work.found[rank].workspaces["status"].tolist()
            text = f"rank {rank}, block 0: {PHASES[phase]}: waited 3 ms for rank {peer}: epoch 7, nothing at byte 0"
            assert describe(found, rank) in ((text, "") if phase == RESULT else (text,))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_patience_a_missing_rank_is_a_deadlock(launches: Callable[..., Sizes], algorithm: str) -> None:
    work = launches(SPECS[algorithm], [100], absent=(2,))
    work.run()
    assert isinstance(work.errors[0], Deadlock)
    assert re.search(r"spins: sees \d+ at .*(inbox|contributions|results)", str(work.errors[0]))


KINDS = [
    ("float64", "native", "avg", "in_place"),
    ("float32", "native", "min", "out_of_place"),
    ("bfloat16", "float32", "sum", "in_place"),
    ("float16", "native", "avg", "out_of_place"),
    ("float8_e4m3fn", "float16", "sum", "in_place"),
    ("float8_e5m2", "native", "max", "out_of_place"),
    ("uint64", "native", "xor", "in_place"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "dtype", "accumulator", "reduction", "placement"),
    some_slow(
        [(one, *kind) for one in ALGORITHMS for kind in KINDS if kind[0] in SPECS[one].dtypes],
        quick=lambda made: made[0] == "lamport",
    ),
)
def test_every_bit_pattern_gives_the_bits_of_the_fold(
    case_of: CaseOf,
    compiled: Compiled,
    algorithm: str,
    dtype: str,
    accumulator: str,
    reduction: str,
    placement: str,
) -> None:
    spec = SPECS[algorithm]
    values = {"dtype": dtype, "accumulator": accumulator, "reduction": reduction, "placement": placement}
    case = case_of(algorithm, world_size=3, size_bytes=8 * 151, offset=1, **values)

    def inputs(launch: int, rank: int) -> torch.Tensor:
        bits = random_bytes(case.size_bytes, launch, rank)
        bits[: 8 * 21] = torch.frombuffer(bytearray(slots.sentinel(case.itemsize) * 21), dtype=torch.uint8)
        return bits.roll(24 * rank)

    work = Launches(spec, case, compiled(spec, case, "sm_90a"), inputs=inputs, count=2)
    for rank, found in enumerate(work.succeed()):
        assert found.changed == ()
        for launch, output in enumerate(found.outputs):
            parts = [inputs(launch, one).view(DTYPES[dtype]) for one in range(3)]
            first = None if spec.owner is None else (spec.owner(case, rank) + 1) % 3
            wanted = numerics.fold(parts, accumulator, reduction, first, spec.positive_zero)
            assert bool(same_bits(output.view(DTYPES[dtype]), wanted).all())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_rank_keeps_its_bits_and_needs_no_inbox(
    case_of: CaseOf, compiled: Compiled, opcodes: Callable[[str], Any], algorithm: str
) -> None:
    spec, case = SPECS[algorithm], case_of(algorithm, world_size=1, size_bytes=2 * 77)
    executable = compiled(spec, case, "sm_90a")
    assert not [opcode for opcode in opcodes(executable.ptx) if ".relaxed.sys." in opcode]
    data = torch.arange(0, 154, dtype=torch.uint8)
    data.view(torch.bfloat16)[5] = -0.0
    (found,) = Launches(spec, case, executable, inputs=lambda launch, rank: data).succeed()
    assert torch.equal(found.outputs[0], data)


def ended_alone(work: Callable[[int], Sizes]) -> int:
    """How many launches without elements in a row end on rank 0 though the others never launch."""
    for count in range(1, 20):
        one = work(count)
        one.run()
        if one.errors:
            assert isinstance(one.errors[0], Deadlock)
            return count - 1
    raise AssertionError("nothing stops it")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_elements_grants_alone_keep_ranks_together(launches: Callable[..., Sizes], algorithm: str) -> None:
    found = ended_alone(lambda count: launches(SPECS[algorithm], [0] * count, absent=(1, 2)))
    assert found == {"ll": 14, "lamport": 13, "two_shot_lamport": 5}[algorithm]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_data_is_loaded_before_an_epoch_or_an_address_is_used(
    case_of: CaseOf, compiled: Compiled, algorithm: str
) -> None:
    """So all loads are under way together: none comes after a value of another, and at most one branch, that around the
    data's, before the first store to a peer's inbox."""
    ptx = compiled(SPECS[algorithm], case_of(algorithm, world_size=2, size_bytes=1_536), "sm_90a").ptx
    before = ptx[: ptx.index("st.relaxed.sys.global.v2.b64")]
    loads = re.findall(r"ld\.global\.(\S+) \{?(%\w+)[^\[]*\[(%\w+)\]", before)
    addresses = 1 if algorithm == "two_shot_lamport" else 2
    assert [kind for kind, _, _ in loads if kind != "b32"] == ["v4.b32", *["b64"] * addresses]
    assert sum(kind == "b32" for kind, _, _ in loads) == 1
    assert len(re.findall(r"\bbra\b", before)) == 2
    loaded = {register for _, register, _ in loads}
    assert not loaded & {address for _, _, address in loads}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size_bytes", [1 << 10, 3 << 10, 4 << 10, 12 << 10])
def test_small_messages_leave_the_last_threads_to_the_signals(case_of: CaseOf, algorithm: str, size_bytes: int) -> None:
    """Also where units fill blocks of 96, 128 or 192 threads."""
    for world_size in (2, 3, 8, 72):
        for threads in (96, 128, 192):
            step = Step(threads=threads, blocks=128, loads_in_flight=1, reason="small blocks")
            module = {"lamport": lamport, "ll": ll, "two_shot_lamport": two_shot_lamport}[algorithm]
            case = case_of(algorithm, world_size=world_size, size_bytes=size_bytes)
            spec = module.spec_of(Tuning((step,)))
            units = slots.units(case)
            sent = -(-units // world_size) if algorithm == "two_shot_lamport" else units
            groups = spec.choices(case).get("groups", 1)
            assert spec.launch(case).blocks // groups * threads >= sent + world_size


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world_size", [2, 8, 9])
def test_inboxes_are_accessed_in_64_bit_elements_at_system_scope(
    case_of: CaseOf, compiled: Compiled, opcodes: Callable[[str], Any], algorithm: str, world_size: int
) -> None:
    spec = SPECS[algorithm]
    ptx = compiled(spec, case_of(algorithm, world_size=world_size, size_bytes=4096), "sm_90a").ptx
    found = opcodes(ptx)
    accesses = {one for one in found if re.match(r"(ld|st|atom|red)\.", one) and not one.startswith("ld.param")}
    inboxes = {"ld.relaxed.sys.global.v2.b64", "st.relaxed.sys.global.v2.b64"}
    buffers = {"ld.global.v4.b32", "st.global.v4.b32", "ld.global.u16", "st.global.u16"}
    state = {"ld.global.b32", "st.global.b32", "ld.global.b64"}  # epochs, turns, status, tables
    signals = {"ld.acquire.sys.global.u32", "st.release.sys.global.u32", "atom.relaxed.sys.global.cas.b32"}
    assert accesses == inboxes | buffers | state | signals
    assert found["bar.sync"] == 1
    assert not any(word in ptx for word in (".local", ".shared", ".nc", "multimem"))


def test_integers_are_refused_where_no_value_is_spare(case_of: CaseOf) -> None:
    traits = Traits("some", "sm_90a", 8, 1 << 40, True)
    for algorithm, spec in SPECS.items():
        case = case_of(algorithm, dtype="int32", accumulator="native", size_bytes=1024)
        reason = refuses(spec, collective("all_reduce"), case, traits)
        assert (reason is None) == (algorithm == "ll"), reason
        assert spec.max_size_bytes is not None
        large = case_of(algorithm, size_bytes=2 * spec.max_size_bytes)
        assert "is for small messages" in str(refuses(spec, collective("all_reduce"), large, traits))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_an_inbox_begins_with_negative_zeros(itemsize: int) -> None:
    kind = {1: torch.float8_e5m2, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[itemsize]
    begin = torch.frombuffer(bytearray(slots.sentinel(itemsize)), dtype=torch.uint8)
    values = begin.view(kind).to(torch.float64)
    assert values.numel() == 8 // itemsize
    assert bool((values == 0).all() & values.signbit().all())


def test_workspaces_grow_with_the_message_only(case_of: CaseOf) -> None:
    """Sixteen banks of n rows, of twice the size with flags, or eight of the slices and of the message: in whole tiles.
    Fewer banks in larger worlds."""
    size, n = 1 << 16, 8
    both = 8 * (n - 1) * size // n + 8 * size
    expected = {"lamport": 16 * n * size, "ll": 16 * 2 * n * size, "two_shot_lamport": both}
    for algorithm, wanted in expected.items():
        found = SPECS[algorithm].workspaces(case_of(algorithm, world_size=n, size_bytes=size))
        inboxes = [one for one in found if one.name in ("inbox", "contributions", "results")]
        assert sum(4 * one.numel for one in inboxes) == wanted
        largest = case_of(algorithm, world_size=72, size_bytes=lamport.SPEC.max_size_bytes)
        assert sum(4 * one.numel for one in SPECS[algorithm].workspaces(largest)) < 200 << 20


@pytest.mark.parametrize("numel", [0, 1, 8, 9, 17, 1000])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_slices_have_whole_units_but_for_the_last(case_of: CaseOf, world_size: int, numel: int) -> None:
    case = case_of("two_shot_lamport", world_size=world_size, size_bytes=2 * numel)
    owner = two_shot_lamport.owner(case, 0)
    assert owner.shape == (numel,)
    assert bool((owner[1:] >= owner[:-1]).all())
    counts = torch.bincount(owner[::8], minlength=world_size)
    assert int(counts.max() - counts.min()) <= 1
    for start in range(0, numel, 8):
        assert len(set(owner[start : start + 8].tolist())) == 1
