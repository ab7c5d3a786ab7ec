"""Kernels whose data goes one way, without barriers: launches of other sizes and roots in a row, how far a rank may be
ahead of others, what becomes of them without their grants, and bits.

What holds for all kernels (results, memory, launches in a row by many seeds) is tested with all kernels.
"""

from __future__ import annotations

import functools
import importlib
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from kernels_launching import PATTERN, Bound, Found, Launches, as_int32, numbers, random_bytes, some_slow
from kernels_sabotaged import IN_ROUNDS

from kernels.catalogue import collective
from kernels.dsl import slots
from kernels.dsl.status import DATA, EXIT, PHASES
from kernels.numeric import numerics
from kernels.numeric.dtypes import DTYPES
from kernels.numeric.formats import same_bits
from kernels.spec import Case, KernelSpec
from kernels.tuning import Step, Tuning
from memory.fabric import Deadlock, Executable
from simulator.fabric import SimulatorFabric

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]

RANKS = 3
SMALL = Tuning((Step(threads=96, blocks=4, loads_in_flight=2, reason="small data"),))
NAMES = IN_ROUNDS
SPECS = {name: importlib.import_module(f"kernels.{name.replace('/', '.')}").spec_of(SMALL) for name in NAMES}
SENDERS = ("broadcast/ll", "broadcast/ll128", "reduce/ll", "reduce/lamport")
"""Where some rank sends and gets no data: only grants stop it. (In send_recv data comes back around the ring, so that
on 3 ranks none gets further ahead than its banks allow.)"""

FORMS = {"lamport": slots.SET_BACK, "ll": slots.FLAGGED, "ll128": slots.IN_LINES}
ROUNDS = {name: FORMS[name.partition("/")[2]] for name in NAMES}
OTHERS = tuple(slots.Rounds(*values) for values in ((8, 4, 2), (2, 1, 2), (4, 1, 1), (8, 2, 1)))
SEEDS = range(8)
QUICK = ("broadcast/ll", "reduce/lamport")
PATIENCE_NS = 3_000_000


def with_choices(spec: KernelSpec, **choices: Any) -> KernelSpec:
    """The spec, built with other choices than its own."""

    def build(case: Case) -> Any:
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

    def _rank(self, fabric: SimulatorFabric) -> Found:
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
            assert executable is not None
            fabric.launch(executable, self.spec.launch(case), given)
        fabric.synchronize()
        content = fabric.read(regions[1], 0, strides[1] * len(self.cases)).clone()
        fabric.barrier()
        workspaces = {name: bound.payload(name).view(torch.int32) for name in ("epochs", "status")}
        return Found(tuple(content.view(len(self.cases), strides[1])), workspaces, (), dict(bound.regions))

    def seen(self) -> str:
        """ "right", "wrong", or an error's name."""
        for error in self.errors.values():
            return type(error).__name__
        right = all(self.holds(rank, launch) for rank in self.found for launch in range(len(self.cases)))
        return "right" if right else "wrong"

    def holds(self, rank: int, launch: int) -> bool:
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
def queued(fit_case: FitCase, compiled: Compiled) -> Callable[..., Queued]:
    """queued(spec, sizes, ..): launches of so many bytes on 3 ranks, the root another each time unless given."""

    def make(spec: KernelSpec, sizes: Sequence[int], root: int | None = None, **values: Any) -> Queued:
        rooted = collective(spec.op).rooted
        plain = {"root": 0} if rooted else {}
        largest = fit_case(spec, size_bytes=max(sizes), **plain)
        executable = compiled(spec, largest, "sm_90a")
        absent = values.pop("absent", ())
        every = [None if rank in absent else executable for rank in range(RANKS)]
        roots = [(launch if root is None else root) % RANKS if rooted else 0 for launch in range(len(sizes))]
        cases = [fit_case(spec, size_bytes=size, root=one) for size, one in zip(sizes, roots, strict=True)]
        return Queued(spec, largest, every, cases=cases, **values)

    return make


def outcomes(work: Callable[[], Queued], seeds: Sequence[int] = SEEDS, **how: Any) -> Iterator[str]:
    """What is seen in fair order and by each seed."""
    for seed in (None, *seeds):
        one = work()
        one.run(**({} if seed is None else {"schedule": "random", "seed": seed, **how}))
        yield one.seen()


BETWEEN = (900, 6, 6, 900, 84, 0, 0, 0, 18, 600)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_launches_of_other_sizes_and_roots_may_come_between(queued: Callable[..., Queued], name: str) -> None:
    work = queued(SPECS[name], BETWEEN)
    work.run(schedule="random", memory="weak")
    assert work.seen() == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_by_every_seed_and_under_the_adversary(queued: Callable[..., Queued], name: str) -> None:
    assert set(outcomes(lambda: queued(SPECS[name], BETWEEN), SEEDS)) == {"right"}
    for seed in range(2):
        for memory in ("strong", "weak"):
            work = queued(SPECS[name], BETWEEN)
            work.run(schedule="adversarial", seed=seed, memory=memory)
            assert work.seen() == "right"


def launches_alone(work: Callable[[int], Queued]) -> int:
    """How many launches in a row end on rank 0 though the others never launch."""
    for count in range(1, 20):
        one = work(count)
        one.run()
        if one.errors:
            assert isinstance(one.errors[0], Deadlock)
            return count - 1
    raise AssertionError("nothing stops it")


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_a_rank_ends_so_many_launches_before_others_begin_theirs(queued: Callable[..., Queued], name: str) -> None:
    """Rank 0 sends to a root, or is one: it can end as many launches as leave a bank free of what others have not read.
    Where it gets data it ends none."""
    root = {"broadcast": 0, "reduce": 1}.get(SPECS[name].op)
    found = launches_alone(lambda count: queued(SPECS[name], [48] * count, root, absent=(1, 2)))
    assert found == {"broadcast/ll": 14, "broadcast/ll128": 6, "reduce/ll": 14, "reduce/lamport": 13}.get(name, 0)


@pytest.mark.parametrize("name", some_slow(SENDERS, quick=QUICK.__contains__))
def test_a_rank_that_only_sends_waits_for_the_grants_alone(queued: Callable[..., Queued], name: str) -> None:
    """The report says so, and whom it waits for."""
    root = {"broadcast": 0, "reduce": 1}[SPECS[name].op]
    work = queued(SPECS[name], [48] * ROUNDS[name].banks, root, absent=(2,), patience=PATIENCE_NS)
    work.run()
    status = work.found[0].workspaces["status"].tolist()
    assert (PHASES[status[3]], status[4]) == (PHASES[EXIT], 2)


@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_who_never_came_is_named_by_who_gets_its_data(queued: Callable[..., Queued], name: str) -> None:
    root = {"broadcast": 2, "reduce": 0}.get(SPECS[name].op)
    work = queued(SPECS[name], [48], root, absent=(2,), patience=PATIENCE_NS)
    work.run()
    assert work.errors == {}
    status = work.found[0].workspaces["status"].tolist()
    assert (PHASES[status[3]], status[4]) == (PHASES[DATA], 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(SENDERS, quick=lambda name: name == "reduce/lamport"))
def test_without_grants_a_rank_that_only_sends_overwrites_what_was_not_read(
    queued: Callable[..., Queued], name: str
) -> None:
    spec = with_choices(SPECS[name], all_clear=False)
    assert any(one != "right" for one in outcomes(lambda: queued(spec, [48] * 5 * ROUNDS[name].banks, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(SENDERS, quick=lambda name: name == "broadcast/ll"))
def test_a_grant_of_one_launch_too_early_is_not_enough(queued: Callable[..., Queued], name: str) -> None:
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


def behind_world(late: int) -> Any:
    """A world in which a rank is slower than the others."""
    from tests.mutants.mutant_runs import Behind, late_world

    return late_world(late, Behind)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(SENDERS, quick=lambda name: name == "reduce/lamport"))
def test_whole_kernels_are_right_with_a_slow_rank(queued: Callable[..., Queued], name: str) -> None:
    for late in range(RANKS):
        work = queued(SPECS[name], [48] * 3 * ROUNDS[name].banks, 1)
        work.world = behind_world(late)
        work.run()
        assert work.seen() == "right"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "choices"),
    [("reduce_scatter/lamport", {"clears": False}), ("reduce/lamport", {"clears": False})],
    ids=str,
)
def test_a_bank_that_is_not_set_back_is_missed(
    queued: Callable[..., Queued], name: str, choices: dict[str, Any]
) -> None:
    spec = with_choices(SPECS[name], **choices)
    assert any(one != "right" for one in outcomes(lambda: queued(spec, [600] * (ROUNDS[name].banks + 2), 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reduce_scatter/lamport", "reduce/lamport"])
def test_a_negative_zero_that_is_sent_as_it_is_would_never_come(queued: Callable[..., Queued], name: str) -> None:
    work = queued(with_choices(SPECS[name], safe_zeros=False), [1_800], 1)
    work.run()
    assert Deadlock in {type(error) for error in work.errors.values()}


@pytest.mark.parametrize("epoch", [-3, (1 << 31) - 3, (1 << 30) - 3])
@pytest.mark.parametrize("name", some_slow(NAMES, quick=lambda name: name == "broadcast/ll"))
def test_epochs_wrap_and_all_blocks_keep_the_same(queued: Callable[..., Queued], name: str, epoch: int) -> None:
    work = queued(SPECS[name], [1_800, 6, 1_800, 6, 1_800, 1_800, 6], epoch=epoch)
    work.run(schedule="random", seed=1)
    assert work.seen() == "right"
    for found in work.found.values():
        assert found.workspaces["epochs"].tolist() == [as_int32(epoch + 7)] * SMALL.max_blocks
        assert not found.workspaces["status"].any()


KINDS = [
    ("float64", "native", "avg", "in_place"),
    ("float32", "native", "min", "out_of_place"),
    ("bfloat16", "float32", "sum", "in_place"),
    ("float8_e4m3fn", "float16", "sum", "in_place"),
    ("uint64", "native", "xor", "in_place"),
]


@pytest.mark.parametrize(
    ("name", "dtype", "accumulator", "reduction", "placement"),
    some_slow(
        [
            (name, *kind)
            for name in NAMES
            if name.startswith("reduce")
            for kind in KINDS
            if kind[0] in SPECS[name].dtypes
        ],
        quick=lambda made: made[:2] == ("reduce/lamport", "bfloat16"),
    ),
)
def test_every_bit_pattern_gives_the_bits_of_the_fold(
    fit_case: FitCase, compiled: Compiled, name: str, dtype: str, accumulator: str, reduction: str, placement: str
) -> None:
    spec = SPECS[name]
    values = {"dtype": dtype, "accumulator": accumulator, "reduction": reduction, "placement": placement}
    root = {"root": 1} if collective(spec.op).rooted else {}
    case = fit_case(spec, size_bytes=8 * 153, offset=1, **values, **root)

    def inputs(launch: int, rank: int) -> torch.Tensor:
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
            assert spec.owner is not None
            first = (spec.owner(case, rank) + 1) % RANKS
            wanted = numerics.fold(parts, accumulator, reduction, first, spec.positive_zero)
            assert bool(same_bits(output.view(DTYPES[dtype]), wanted).all())


@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_one_rank_needs_no_inbox(
    fit_case: FitCase, compiled: Compiled, opcodes: Callable[[str], Any], name: str
) -> None:
    spec, case = SPECS[name], fit_case(SPECS[name], world_size=1, size_bytes=154)
    executable = compiled(spec, case, "sm_90a")
    assert not [opcode for opcode in opcodes(executable.ptx) if ".sys." in opcode]
    data = torch.arange(0, 154, dtype=torch.uint8)
    data.view(torch.bfloat16)[5] = -0.0
    (found,) = Launches(spec, case, executable, inputs=lambda launch, rank: data).succeed()
    assert torch.equal(found.outputs[0], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(NAMES, quick=QUICK.__contains__))
def test_a_launch_loads_its_data_before_it_uses_its_epoch_or_an_address(
    fit_case: FitCase, compiled: Compiled, name: str
) -> None:
    """So the three loads are under way together: no load comes after a value of another, and at most one branch, that
    around the data's, before the first store to a peer's inbox."""
    ptx = compiled(SPECS[name], fit_case(SPECS[name], world_size=2, size_bytes=1_536), "sm_90a").ptx
    units = 2 if name.endswith("ll128") else 1
    before = re.split(r"st\.(?:relaxed\.sys\.)?global\.v2\.b64", ptx)[0]
    loads = re.findall(r"ld\.global\.(\S+) \{?(%\w+)[^\[]*\[(%\w+)\]", before)
    assert [kind for kind, _, _ in loads if kind != "b32"] == [*["v4.b32"] * units, "b64"]
    assert units + 2 <= len(loads) <= units + 3  # and the units of the last message, where banks are set back
    assert len(re.findall(r"\bbra\b", before)) == units + 1
    loaded = {register for _, register, _ in loads}
    assert not loaded & {address for _, _, address in loads}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((3, 1, 2), "banks of rounds is 3: give a power of two"),
        ((4, 3, 2), "grant_every of rounds is 3: give a power of two"),
        ((0, 1, 2), "banks of rounds is 0: give a power of two"),
        ((2, 2, 2), "rounds with a grant in every 2. launch take 3 banks, not 2"),
        ((2, 1, 1), "rounds with a grant in every 1. launch take 3 banks, not 2"),
        ((4, 4, 2), "rounds with a grant in every 4. launch take 5 banks, not 4"),
    ],
)
def test_rounds_that_could_not_work_are_refused(values: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        slots.Rounds(*values)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", OTHERS, ids=str)
def test_other_banks_and_grants_are_right_too(queued: Callable[..., Queued], rounds: slots.Rounds) -> None:
    name = "reduce/lamport" if rounds.is_set_back else "broadcast/ll"
    module = importlib.import_module(f"kernels.{name.replace('/', '.')}")
    spec = module.spec_of(SMALL, rounds)
    assert set(outcomes(lambda: queued(spec, [600, 6, 48] * 7), SEEDS[:2])) == {"right"}


def test_workspaces_grow_with_what_is_sent_only(fit_case: FitCase) -> None:
    """Sixteen banks, of twice the size with flags, or eight of 1 KiB for 960 bytes in lines: of n - 1 chunks, of one
    message, or at a root of n - 1 messages. Fewer banks on more than eight ranks."""
    for n, size, flagged, set_back, in_lines in ((8, 1 << 16, 32, 16, 8), (9, 9 << 13, 8, 8, 4)):
        chunks, tiles = (n - 1) * size // n, -(-size // n // 960)
        expected = {
            **dict.fromkeys(("reduce_scatter/ll", "all_gather/ll", "all_to_all/ll"), flagged * chunks),
            "reduce_scatter/lamport": set_back * chunks,
            **dict.fromkeys(("broadcast/ll", "send_recv/ll"), flagged * size),
            "reduce/ll": flagged * (n - 1) * size,
            "reduce/lamport": set_back * (n - 1) * size,
            **dict.fromkeys(
                ("reduce_scatter/ll128", "all_gather/ll128", "all_to_all/ll128"), in_lines * (n - 1) * tiles * 1024
            ),
            **dict.fromkeys(("broadcast/ll128", "send_recv/ll128"), in_lines * -(-size // 960) * 1024),
        }
        assert set(expected) == set(NAMES)
        for name, wanted in expected.items():
            case = fit_case(SPECS[name], world_size=n, size_bytes=size)
            found = sum(4 * one.numel for one in SPECS[name].workspaces(case) if one.name == "inbox")
            assert found == wanted
