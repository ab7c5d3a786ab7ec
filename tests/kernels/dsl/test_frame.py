"""What every kernel of the catalogue contains, read from its PTX: accesses of memory, barriers, parameters."""

import re

import pytest

from cases.ops import collective
from kernels.catalogue import SPECS, find
from kernels.dsl.status import STATUS_WORDS
from kernels.multimem import SIGNAL
from kernels.sources import sources_of
from tests.kernels.launching import SAMPLE, count_opcodes, some_slow
from tests.kernels.sabotaged import POLLED, barriers_of

NAMES = [spec.name for spec in SPECS]
REPORTING = {"atom.relaxed.sys.global.cas.b32", "st.release.sys.global.u32"}
WHOLE = {"ld.global.b32", "ld.global.b64", "ld.global.v4.b32", "st.global.b32", "st.global.v4.b32"}
"""Epochs and status, addresses, vectors."""

ELEMENTS = {1: "u8", 2: "u16", 4: "b32", 8: "v2.b32"}
BULK = {
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
    "cp.async.bulk.global.shared::cta.bulk_group",
    *(f"cp.async.bulk.{what}" for what in ("commit_group", "wait_group.read", "wait_group")),
}
"""What kernels of bulk copies have beside; tests/kernels/dsl/test_bulk.py says how often."""

IN_ROUNDS = {"reduce_scatter/bulk", "reduce_scatter/push_rounds", "reduce/bulk"}
"""Kernels of kernels/dsl/pieces.py."""

SYNCHRONIZATIONS = {"entry": 1, "middle": 2, "exit": 1}
"""bar.sync of a barrier over peers: one after the wait, one before the signal, where there is work on that side."""


TOKENS = {
    **{"ld.global.b32": 2, "ld.global.b64": 1, "st.global.b32": 10, "fence.acq_rel.sys": 1, "bar.sync": 1},
    **{"st.relaxed.sys.global.b64": 1, "ld.acquire.sys.global.b64": 4, "ld.acquire.sys.global.u32": 1},
    **{"atom.relaxed.sys.global.cas.b32": 1, "st.release.sys.global.u32": 1},
}
"""All of barrier/push: epoch and token, an address, the token that came, the epoch, the report; a store and a poll."""


def accessed(found):
    """Return the opcodes that access memory other than parameters."""
    accesses = {one for one in found if re.match(r"(ld|st|atom|red|multimem|cp)\.", one)}
    return {one for one in accesses if not one.startswith("ld.param")}


def check_accesses(spec, case, ptx):
    """Memory is accessed in the written ways only, and waits are as many as they are said to be.

    A barrier signals once, looks at its flag in three places (first look, spin, wait with patience) and at the status
    in one, and reports in one. What polls an inbox has one signal and one wait, the all-clear, and beside them places
    that poll: each looks at the status in one, and reports in one.
    """
    found, barriers = count_opcodes(ptx), barriers_of(spec)
    if spec.name == "barrier/push":
        assert {opcode: found[opcode] for opcode in TOKENS} == TOKENS
        assert accessed(found) == {one for one in TOKENS if re.match(r"(ld|st|atom)\.", one)}
        return
    element = ELEMENTS[case.itemsize]
    plain = WHOLE | {f"ld.global.{element}", f"st.global.{element}"}
    signals = {SIGNAL} if spec.needs_multicast else {"st.release.sys.global.u32"}
    allowed = plain | signals | REPORTING | {"ld.acquire.sys.global.u32"} | spec.multimem(case)
    polls = 0
    if spec.name in POLLED and case.world_size > 1:
        allowed |= {"ld.relaxed.sys.global.v2.b64", "st.relaxed.sys.global.v2.b64"}
        polls = found["atom.relaxed.sys.global.cas.b32"] - 1
        assert polls >= 1
    # Lines are stored weakly: kernels/dsl/inbox.py says why.
    allowed |= {"st.global.v2.b64"} if "warp_128" in spec.assumptions else set()
    allowed |= BULK if spec.algorithm.startswith("bulk") else set()
    has_counts = spec.op == "all_to_all_v"  # rows of them are stored, and a barrier of the block follows what is found
    allowed |= {"st.global.b64"} if has_counts else set()
    assert accessed(found) <= allowed
    if spec.name in IN_ROUNDS:
        # One wait for rounds and one at the exit, however often the compiler has unrolled the signals.
        waits = 0 if case.world_size == 1 else 2
        assert found["ld.acquire.sys.global.u32"] == 4 * waits
        assert found["atom.relaxed.sys.global.cas.b32"] == ptx.count("%globaltimer") == waits
        assert found["st.release.sys.global.u32"] > waits or not waits
        assert not [word for word in (".local", ".nc") if word in ptx]
        return
    count = len(barriers) or min(polls, 1)
    for signal in signals:
        assert found[signal] == count + (count + polls if signal in REPORTING else 0)
    for reporting in REPORTING - signals:
        assert found[reporting] == count + polls
    assert found["ld.acquire.sys.global.u32"] == 4 * count + polls
    assert ptx.count("%globaltimer") == count + polls
    assert found["mov.u64"] >= count
    over_peers = sum(SYNCHRONIZATIONS[barrier] for barrier in barriers) or count
    assert found["bar.sync"] >= (2 * count if spec.needs_multicast else over_peers)
    assert found["fence.proxy.alias"] == (2 * count if spec.needs_multicast else 0)
    for word in (".local", ".nc"):
        assert word not in ptx
    if not spec.algorithm.startswith("bulk"):
        assert ".shared" not in ptx
        assert found["bar.sync"] == (2 * count if spec.needs_multicast else over_peers + has_counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world_size"),
    [
        *((name, 9) for name in NAMES if not name.startswith("all_reduce/")),
        *((name, ranks) for name in NAMES if name.startswith("all_reduce/") for ranks in (1, 2, 8, 9, 72)),
    ],
)
def test_memory_is_accessed_only_in_the_written_ways(fit_case, compiled, name, world_size):
    spec = find(name)
    case = fit_case(spec, world_size=world_size)
    ptx = compiled(spec, case, "sm_90a").ptx
    check_accesses(spec, case, ptx)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float8_e5m2", "uint64", "uint8"])
@pytest.mark.parametrize("name", ["reduce_scatter/push", "broadcast/multimem"])
def test_elements_of_any_size_are_accessed_as_such(fit_case, compiled, name, dtype):
    spec = find(name)
    if dtype not in spec.dtypes:
        assert (dtype, collective(spec.op).reduces) == ("uint8", True)
        return
    changes = {"accumulator": "native"} if collective(spec.op).reduces else {}
    case = fit_case(spec, dtype=dtype, **changes)
    ptx = compiled(spec, case, "sm_90a").ptx
    check_accesses(spec, case, ptx)


def test_a_pushed_two_shot_accesses_memory_only_in_the_written_ways(fit_case, compiled, sabotaged):
    spec = sabotaged["all_reduce/two_shot_pushed"]
    for world_size in (1, 2, 8):
        case = fit_case(spec, world_size=world_size)
        ptx = compiled(spec, case, "sm_90a").ptx
        assert spec.choices(case)["push"]
        check_accesses(spec, case, ptx)


@pytest.mark.parametrize("name", NAMES)
def test_accesses_and_parameters_are_as_declared(fit_case, compiled, name):
    spec = find(name)
    case = fit_case(spec, world_size=3)
    executable = compiled(spec, case, "sm_90a")
    check_accesses(spec, case, executable.ptx)
    found = re.findall(r"^\s*\.param \.(u\d+) .*_param_(\d+),?$", executable.ptx, flags=re.MULTILINE)
    types = ["u32" if parameter.kind in ("rank", "root") else "u64" for parameter in spec.parameters]
    kinds = [(parameter.kind, parameter.of) for parameter in spec.parameters]
    own = [("address", of) for of in ("signals", "epochs", "status")]
    barrier = ("multicast" if spec.needs_multicast else "peers", "signals")
    assert kinds[-8:] == [barrier, *own, *((kind, "") for kind in ("numel", "rank", "root", "patience"))]
    assert found == [(type_, str(i)) for i, type_ in enumerate(types)]
    assert executable.entry == f"{spec.op}_{spec.algorithm}_0"
    assert f".visible .entry {executable.entry}(" in executable.ptx
    files = re.findall(r'^\s*\.file\s+\d+\s+"([^"]*)"', executable.ptx, flags=re.MULTILINE)
    assert set(files) <= {source.name for source in sources_of(spec.files)}
    assert f".reqntid {spec.launch(case).threads}, 1, 1" in executable.ptx


@pytest.mark.parametrize("name", some_slow(NAMES, quick=lambda name: name in SAMPLE))
def test_sizes_roots_offsets_and_seeds_that_a_tuning_treats_alike_share_one_ptx(fit_case, compiled, name):
    spec = find(name)
    small = fit_case(spec)
    sizes = [small.size_bytes] if spec.op == "barrier" else [0, *(2 << power for power in range(3, 30, 3))]
    sizes = [size for size in sizes if spec.max_size_bytes is None or size <= spec.max_size_bytes]
    cases = [fit_case(spec, size_bytes=size, seed=size, root=size % 3, offset=size % 7) for size in sizes]
    digests = {str(spec.choices(case)): set[str]() for case in cases}
    for case in cases:
        digests[str(spec.choices(case))].add(compiled(spec, case, "sm_90a").digest)
    assert all(len(found) == 1 for found in digests.values())
    assert len(set().union(*digests.values())) == len(digests) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_launches_and_workspaces_serve_all_sizes(fit_case, name):
    spec = find(name)
    for world_size in (1, 2, 7, 8, 16, 17, 72):
        sizes = set()
        for size_bytes in (0, 2, 1 << 10, 1 << 13, 1 << 20, 1 << 26):
            if spec.max_size_bytes is not None and size_bytes > spec.max_size_bytes:
                continue
            case = fit_case(spec, world_size=world_size, size_bytes=size_bytes)
            launch = spec.launch(case)
            workspaces = {workspace.name: workspace.numel for workspace in spec.workspaces(case)}
            groups = spec.choices(case).get("groups", 1)
            assert launch.blocks % groups == 0
            assert groups <= world_size
            assert launch.threads == spec.choices(case)["threads"] >= spec.max_world_size
            assert workspaces["status"] == STATUS_WORDS
            assert workspaces["epochs"] >= launch.blocks
            assert workspaces["signals"] >= launch.blocks * (1 if spec.needs_multicast else world_size)
            sizes.add((workspaces["signals"], workspaces["epochs"]))
        assert len(sizes) == 1
