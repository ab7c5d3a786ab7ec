"""What a shadow of several ranks keeps, accesses in pieces, and up to when somebody knows everything, in each proxy."""

import numpy as np
import pytest

from simulator.happens_before.clocks import RANK_SHIFT
from simulator.happens_before.extras import ALIAS, ASYNC, GENERIC
from simulator.happens_before.order import SYS, Order
from simulator.happens_before.running import Held, Lanes, Many, Running
from simulator.happens_before.shadow import READ, WRITE, Kept, Shadow, Tiles, piece_of, put, taken
from simulator.happens_before.spare import Spare
from simulator.observe.lanes import Clusters, Launched
from symlab.checks.races.accesses import Accesses
from symlab.checks.races.report import ALIAS_PROXY, ASYNC_PROXY, GENERIC_PROXY, Findings, Info
from tests.symlab.checks.races.race_programs import about_data, found, missing, poll

LANES = 1024
AT = "mul.wide.u32 %d1, %r9, 4; add.u64 %d1, {}, %d1;"
MULTICAST = AT.format("%all") + "multimem.st.relaxed.sys.global.b32 [%d1], %r1;"
OWN = AT.format("%data")
TOLD = "st.relaxed.sys.global.b32 [%peerflag], %r1;"
RELEASED = "fence.proxy.alias; bar.sync 0; fence.acq_rel.sys; st.relaxed.sys.global.b32 [%peerflag], %r1;"
ACQUIRED = poll() + "fence.proxy.alias;"


class TestReplicas:
    """Relaxed multicast stores of many lanes in a row are checked and entered in each replica."""

    def test_a_plain_store_before_them_races(self):
        code = [poll("relaxed.sys") + MULTICAST, "", OWN + "st.global.b32 [%d1], %r1;" + TOLD]
        findings = about_data(*code, block=LANES)
        assert {(one.first.rank, one.second.rank, one.severity) for one in findings} == {(2, 0, "race")}
        assert sum(one.count for one in findings) == LANES

    def test_a_plain_store_before_them_that_they_know_does_not(self):
        code = [ACQUIRED + MULTICAST, "", OWN + "st.global.b32 [%d1], %r1;" + RELEASED]
        assert missing(found(code, block=LANES)) == set()

    @pytest.mark.parametrize("is_known", [False, True])
    @pytest.mark.parametrize("reader", [1, 2])
    def test_a_plain_load_after_them_of_any_replica_races(self, reader, is_known):
        load = OWN + "ld.global.b32 %r3, [%d1];"
        code = [MULTICAST + (RELEASED if is_known else TOLD)]
        if reader == 1:
            code += [(ACQUIRED if is_known else poll("relaxed.sys")) + load, ""]
        else:
            code += [(ACQUIRED + RELEASED) if is_known else poll("relaxed.sys") + TOLD]
            code += [(ACQUIRED if is_known else poll("relaxed.sys")) + load]
        findings = about_data(*code, block=LANES)
        assert {(one.first.rank, one.second.rank) for one in findings} == (set() if is_known else {(0, reader)})

    def test_a_store_of_a_gpu_scope_after_them_races(self):
        code = [MULTICAST + TOLD, poll("relaxed.sys") + OWN + "st.relaxed.gpu.global.b32 [%d1], %r1;"]
        findings = about_data(*code, block=LANES)
        assert {(one.severity, one.missing) for one in findings} == {("race", "a wider scope")}


class TestOfAllRanks:
    """Tensors that are alike on all ranks have one shadow, with a part for each rank."""

    @pytest.mark.parametrize(("address", "ranks"), [("%data", set()), ("%peer", {(0, 1)})])
    def test_only_accesses_to_the_tensor_of_one_rank_meet(self, address, ranks):
        code = [f"st.global.b32 [{address}+8], %r1; {TOLD}", poll("relaxed.sys") + "ld.global.b32 %r3, [%data+8];"]
        findings = about_data(*code)
        assert {(one.first.rank, one.second.rank) for one in findings} == ranks
        assert {one.first.element for one in findings} == ({8} if ranks else set())

    @pytest.mark.parametrize(("wait", "is_clean"), [("cp.async.wait_group 0;", True), ("", False)])
    def test_who_waits_for_a_copy_of_a_peers_tensor_has_read_it(self, wait, is_clean):
        copy = "mov.u32 %r6, buffer; cp.async.ca.shared.global [%r6], [%peer], 16; cp.async.commit_group;"
        told = "st.release.sys.global.b32 [%peerflag], %r1; cp.async.wait_all;"
        code = [copy + wait + told, poll() + "st.global.b32 [%data], %r1;"]
        assert bool(found(code, before=".shared .align 16 .b8 buffer[16];")) != is_clean


PIECES = 4


@pytest.mark.parametrize("silent", [None, *range(PIECES)])
@pytest.mark.parametrize("how", ["one load", "two loads", "a word"])
def test_readers_of_several_blocks_are_kept(how, silent):
    """Blocks of one rank read the same units; a rank that hears of all but one of them may not write there."""
    if how == "one load":
        load = OWN + "ld.global.b32 %r3, [%d1];"
    elif how == "a word":
        load = "ld.global.b32 %r3, [%data];"
    else:  # pieces of 32 words with a hole between them: blocks 0 and 2, 1 and 3 read the same ones
        load = """and.b32 %r8, %ctaid.x, 1; mul.lo.u32 %r8, %r8, 64; add.u32 %r8, %r8, %r9;
        mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; setp.gt.u32 %p2, %ctaid.x, 1; @%p2 bra SECOND;
        ld.global.b32 %r3, [%d1]; bra READ; SECOND: ld.global.b32 %r3, [%d1]; READ:"""
    skip = "" if silent is None else f"setp.eq.u32 %p3, %ctaid.x, {silent}; @%p3 ret;"
    count = PIECES - (silent is not None)
    told = f"bar.sync 0; {skip} setp.ne.u32 %p3, %r9, 0; @%p3 ret; red.release.sys.global.add.u32 [%peerflag], 1;"
    heard = f"""setp.ne.u32 %p3, %ctaid.x, 0; @%p3 ret;
    HEARD: ld.acquire.sys.global.b32 %r2, [%flag]; setp.ne.u32 %p2, %r2, {count}; @%p2 bra HEARD;"""
    writes = "".join(f"st.global.b32 [%d1+{byte}], %r1;" for byte in (0, 256))
    code = [load + told, heard + AT.format("%peer") + writes]
    findings = about_data(*code, grid=PIECES, block=32)
    assert {one.first.block for one in findings} == (set() if silent is None else {silent})


def _info(number, is_write, proxy):
    return Info(number, None, None, is_write, False, False, False, False, SYS, proxy, 16, "an access")


@pytest.mark.parametrize("who", ["single", "many", "lanes"])
@pytest.mark.parametrize(("proxy", "part"), [(ALIAS_PROXY, ALIAS), (ASYNC_PROXY, ASYNC), (GENERIC_PROXY, GENERIC)])
def test_what_all_know_in_the_generic_proxy_they_may_not_know_in_another(proxy, part, who):
    """A row that knows everything up to a stamp in part GENERIC, and less in the others."""
    order, findings = Order(2), Findings()
    order.clocks.fit(1, True)
    accesses, shadow = Accesses(order, findings), Shadow("x", 0, 64 * 16)
    writing, reading = _info(0, True, GENERIC_PROXY), _info(1, False, proxy)
    accesses.note(writing)
    accesses.note(reading)
    accesses.stamp = 30
    low, high = order.clocks.new(2).tolist()
    order.clocks.rows[low], order.clocks.rows[high] = 1, 1
    order.clocks.rows[high, GENERIC] = 100
    order.clocks.seal(np.array([low, high]))
    launched = Launched("kernel", (0, 1), (0, 0), 1, 64, Clusters((1, 1, 1), (1, 1, 1), False))
    run = Running(launched, order.clocks.parts, 1, 0, [0, 0])
    run.set_rows(slice(0, 64), low)
    run.set_rows(slice(64, 128), high)
    order.running.append(run)
    offsets, first, second = np.arange(64) * 16, np.arange(64), np.arange(64, 128)
    accesses.tick(writing)
    accesses.touch(shadow, Lanes(run, first), offsets, 16, True, writing, run.actors[first])
    accesses.tick(reading)
    held = Held.of(run, second, accesses.stamp)
    choices = {"single": Many(held.some(slice(0, 1)), np.zeros(64, np.int64)), "many": Many(held, first)}
    actors = np.full(64, 1 << RANK_SHIFT) if who == "single" else run.actors[second]
    accesses.touch(shadow, choices.get(who, Lanes(run, second)), offsets, 16, True, reading, actors)
    assert {one.severity for one in findings.found.values()} == (set() if part == GENERIC else {"proxy"})
    assert order.floor_of(Lanes(run, second), 64, GENERIC + 1) == 100
    assert order.floor_of(Lanes(run, second), 64, ASYNC + 1) == 1


def test_floors_follow_rows():
    order = Order(1)
    rows = order.clocks.new(2)
    order.clocks.rows[rows] = np.array([5, 9])[:, None, None]
    order.clocks.seal(rows)
    run = Running(Launched("kernel", (0,), (0,), 1, 64, Clusters((1, 1, 1), (1, 1, 1), False)), 1, 1, 0, [0])
    who = Lanes(run, np.arange(32, 64))
    run.set_rows(slice(0, 64), int(rows[1]))
    assert (order.floor_of(who, 32, 1), order.floor(run, 1)) == (9, 9)
    run.set_rows(slice(63, 64), int(rows[0]))
    assert (order.floor_of(who, 32, 1), order.floor_of(who, 31, 1), order.floor(run, 1)) == (5, 9, 5)


def test_pieces_of_accesses():
    index = (np.array([640, 0, 128, 4096])[:, None] + np.arange(32) * 4).ravel()
    assert piece_of(index, 4) == 32
    assert piece_of(index[:-1], 4) == 0  # the last one is shorter
    assert piece_of(np.arange(0, 512, 4), 4) == 0  # one row
    assert piece_of(np.arange(0, 512, 8), 4) == 0
    tiles = Tiles.split(np.array([8, 24, 64]), 16, 200)
    assert (tiles.each, tiles.are_apart, tiles.units(np.arange(48)).tolist()[14:18]) == (8, True, [22, 23, 24, 25])
    epochs = np.arange(200)
    assert taken(epochs, tiles).tolist() == [*range(8, 24), *range(24, 40), *range(64, 80)]
    put(epochs, tiles, np.arange(48))
    assert (epochs[8:40].tolist(), epochs[64:80].tolist()) == (list(range(32)), list(range(32, 48)))
    assert Tiles.split(np.array([0, 17]), 16, 200) is None


def test_arrays_that_are_used_again_are_zeros():
    spare = Spare()
    first = spare.zeros(5000)
    first[:] = 7
    spare.give(first)
    again = spare.zeros(5000)
    assert again is first
    assert not again.any()
    assert spare.zeros(5000) is not first
    large = np.ones(1 << 22, np.int64)
    spare.give(large)
    assert not spare.zeros(1 << 22).any()  # only what is meaningless is used again as it is
    spare.give(large, is_meaningless=True)
    assert spare.zeros(1 << 22) is large


def test_a_shadow_gives_its_arrays_up():
    spare = Spare()
    shadow = Shadow("x", 0, 1 << 20, spare=spare)
    shadow.epochs(Kept(WRITE, False))[:] = 3
    shadow.epochs(Kept(READ, False, 0))[:] = 3
    shadow.note(Kept(WRITE, False), 3)
    shadow.close(2)
    other = Shadow("y", 0, 1 << 20, spare=spare)
    assert not other.epochs(Kept(WRITE, False)).any()
    assert not shadow.kept
    assert not shadow.latest
