"""The kernels of bulk copies: what they load and store, and that they are right. tests/mutants has each wait missed."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import find, retuned
from kernels.spec import refuses
from kernels.tuning import Step, Tuning
from memory.fabric import Traits
from tests.golden import refused, same_text
from tests.kernels.launching import Launches

OPS = ("all_gather", "broadcast", "all_to_all")
PIECE_BYTES = 96 * 16
SMALL = Tuning(
    (
        Step(threads=96, blocks=3, loads_in_flight=3, up_to_ranks=3, reason="pieces of 1,536 bytes, several a stage"),
        Step(threads=96, blocks=9, loads_in_flight=3, reason="a block for each of 9 ranks"),
    )
)
SPECS = {op: replace(retuned(f"{op}/bulk", SMALL), algorithm="bulk_small") for op in OPS}
LAUNCHES = 2


def case_of(spec, world_size, chunk_bytes, **changes):
    """uint8 unless changed; chunk_bytes is what goes from one rank to another."""
    size_bytes = chunk_bytes * (1 if spec.op == "broadcast" else world_size)
    case = Case(spec.op, spec.algorithm, "uint8", "none", "none", size_bytes, world_size)
    return replace(case, **changes)


def launches_of(compiled, spec, case):
    return Launches(spec, case, compiled(spec, case, "sm_90a"), count=LAUNCHES)


def seen(compiled, spec, case, count=LAUNCHES, **options):
    """What launches come to."""
    work = launches_of(compiled, spec, case)
    work.count = count
    work.run(**options)
    return work.seen()


SHAPES = (0, 16, 2 * PIECE_BYTES + 16, 7 * PIECE_BYTES + 80)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 9, 17])
def test_they_are_right(compiled, op, world_size):
    """Few peers, more than registers hold, more than there are groups of blocks; a piece, and rounds of all stages."""
    spec = SPECS[op]
    for number, chunk_bytes in enumerate(SHAPES if world_size < 9 else SHAPES[2:] if world_size < 17 else SHAPES[2:3]):
        case = case_of(spec, world_size, chunk_bytes, root=world_size - 1 if op == "broadcast" else 0)
        assert spec.launch(case).blocks >= 1
        options = {"schedule": "random", "seed": number} if number % 2 else {}
        assert seen(compiled, spec, case, **options) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("op", ["all_gather", "broadcast"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_in_place_a_buffer_keeps_what_is_its_own(compiled, op, world_size):
    for root in range(world_size if op == "broadcast" else 1):
        case = case_of(SPECS[op], world_size, 3 * PIECE_BYTES + 16, placement="in_place", root=root)
        for options in ({}, {"schedule": "random", "seed": root}):
            assert seen(compiled, SPECS[op], case, **options) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("dtype", "offset"), [("uint8", 1), ("bfloat16", 5), ("float64", 1)])
def test_elements_around_the_boundaries_are_copied_one_by_one(compiled, op, dtype, offset):
    case = case_of(SPECS[op], 3, 2 * PIECE_BYTES + 32, dtype=dtype, offset=offset)
    assert seen(compiled, SPECS[op], case) == "right"
    small = case_of(SPECS[op], 3, 16, dtype=dtype, offset=offset)
    assert seen(compiled, SPECS[op], small) == "right"


def test_a_broadcast_has_any_size(compiled):
    for size_bytes in (1, 15, 17, PIECE_BYTES * 4 + 7):
        case = case_of(SPECS["broadcast"], 3, size_bytes, root=1)
        assert seen(compiled, SPECS["broadcast"], case) == "right"


def test_a_chunk_is_loaded_once_and_stored_to_each_rank(compiled):
    chunk, n = 40 * PIECE_BYTES, 3
    for op, loaded, own in (("all_gather", 1, 1), ("all_to_all", n, 1)):
        launches = launches_of(compiled, SPECS[op], case_of(SPECS[op], n, chunk))
        accesses = launches.run().counters()["accesses"]
        payload = {kind: count["bytes"] // LAUNCHES for kind, count in accesses.items()}
        assert payload["peer_write"] == n * (n - 1) * chunk
        assert n * own * chunk <= payload["own_write"] < n * own * chunk + 2000
        assert n * loaded * chunk <= payload["own_read"] < n * loaded * chunk + 60_000
        assert payload["peer_read"] == 0


def test_a_broadcast_takes_the_roots_buffer_off_it_once(compiled):
    size, n = 6 * PIECE_BYTES, 3
    case = case_of(SPECS["broadcast"], n, size, root=1)
    counters = launches_of(compiled, SPECS["broadcast"], case).run().counters()
    links = {link: count // LAUNCHES for link, count in counters["links"].items()}
    # The ranks after the root have a half each: they load it from the root and store it to it and to each other.
    assert all(0 <= links[link] - size < 1000 for link in ("0->1", "2->1"))
    assert all(0 <= links[link] - size // 2 < 1000 for link in ("0->2", "2->0"))
    assert all(links[link] < 1000 for link in ("1->0", "1->2"))
    assert counters["accesses"]["peer_read"]["bytes"] == LAUNCHES * size


@pytest.mark.parametrize("op", OPS)
def test_chunks_that_begin_between_boundaries_are_refused(op):
    spec = find(f"{op}/bulk")
    traits = Traits("simulator", "sm_90a", 4, 1 << 30, True)
    for chunk_bytes, world_size in ((24, 4), (15, 4), (24, 1)):
        case = case_of(spec, world_size, chunk_bytes)
        reason = refuses(spec, collective(op), case, replace(traits, world_size=world_size))
        if op == "broadcast" or world_size == 1:
            assert reason is None
        else:
            same_text(str(reason))
    assert refuses(spec, collective(op), case_of(spec, 4, 48, offset=3), traits) is None
    assert refuses(spec, collective(op), case_of(spec, 4, 0), traits) is None


@pytest.mark.parametrize(("threads", "stages"), [(1024, 3), (512, 6), (96, 1)])
def test_a_tuning_that_does_not_fit_in_shared_memory_is_no_kernel(compiled, threads, stages):
    tuning = Tuning((Step(threads=threads, blocks=2, loads_in_flight=stages, reason="too much, or too little"),))
    spec = retuned("all_gather/bulk", tuning)
    with refused(RuntimeError, r"\.py:\d+"):
        compiled(spec, case_of(spec, 2, 4096), "sm_90a")
