"""Events: what each kind says exactly, on small programs; and no event is made without a listener."""

import importlib
from dataclasses import fields, replace
from itertools import groupby
from types import SimpleNamespace

import numpy as np

from memory.fabric import Deadlock
from simulator.observe import events as observed
from simulator.observe import printed
from simulator.observe.events import KINDS, Events, Listener, tell
from simulator.observe.lanes import Clusters, Launched, ids_of
from tests.golden import refused, same_text
from tests.simulator.harness import executable, launching, make_world, module, put, run, start, succeed

HOST = ("launch_began", "launch_ended", "host")


class Log(Listener):
    """Keeps every event with the name of the method that it was told to."""

    def __init__(self):
        self.told = []

    def of(self, *kinds):
        return [event for kind, event in self.told if kind in kinds]

    def text(self, *kinds):
        """A line for each event of these kinds: its lanes (rank, launch, block, thread), fields and properties. Turns of
        a wait that are alike are one line."""
        lines = (f"{kind} {_fields(event)}" for kind, event in self.told if kind in kinds)
        return "\n".join(line for line, _ in groupby(lines))


def _fields(event):
    properties = (name for name in dir(type(event)) if isinstance(getattr(type(event), name), property))
    names = dict.fromkeys((*(one.name for one in fields(event)), *properties))
    values = {name: getattr(event, name) for name in names if name not in ELSEWHERE}
    shown = {name: getattr(one, "mnemonic", one) for name, one in values.items()}
    lanes = " ".join(".".join(map(str, one)) for one in who(event))
    return f"of {lanes}: {', '.join(f'{name} {np.asarray(one).tolist()}' for name, one in shown.items() if one is not None)}"


ELSEWHERE = ("launched", "lanes", "ranks", "launches", "blocks", "threads", "step", "index", "is_affine")


def _keep(kind):
    def keep(log, event):
        if isinstance(event, observed.Access):
            event = replace(event, addresses=event.addresses.copy())
        log.told.append((kind, event))

    return keep


for _kind in KINDS:
    setattr(Log, _kind, _keep(_kind))


def who(event):
    """Rank, launch, block and thread of each lane."""
    columns = (event.ranks, event.launches, event.blocks, event.threads)
    return list(zip(*(one.tolist() for one in columns), strict=True))


def logged(body, *, world_size=1, grid=1, block=1, registers="", before_body="", **options):
    """Run the body on all ranks. %mine, %peer: 1 KiB of own memory, and of the next rank's; %all: multicast."""
    ptx = module(body, ["u64 mine", "u64 peer", "u64 all"], registers=registers)
    ptx = ptx.replace(")\n{", f")\n{before_body}\n{{", 1)
    log, world = Log(), make_world(world_size, **options)
    world.space.events.add(log)

    return log, world, succeed(world, lambda fabric: on_peers(fabric, ptx, grid, block)).results


def on_peers(fabric, ptx, grid, block):
    """A rank's program: one launch, given its own memory, the next rank's and that of all."""
    regions = {name: put(fabric, name, np.zeros(256, np.uint32)) for name in ("mine", "all")}
    fabric.barrier()
    peer = fabric.peer_address(regions["mine"], (fabric.rank + 1) % fabric.world_size)
    arguments = [regions["mine"].address, peer, fabric.multicast_address(regions["all"])]
    start(fabric, executable(ptx), grid, block, arguments)
    fabric.synchronize()
    fabric.barrier()
    return regions


class TestAccesses:
    BODY = """
    mul.wide.u32 %d1, %lane, 8; add.u64 %d2, %d1, %mine; add.u64 %d3, %d1, %peer;
    ld.global.v2.b32 {%r1, %r2}, [%d2];
    ld.relaxed.gpu.global.b32 %r1, [%d3+4];
    st.release.sys.global.b32 [%d3], %r1;
    ld.volatile.global.b32 %r1, [%d2];
    ld.acquire.sys.global.b32 %r1, [%d2];
    atom.global.add.u32 %r1, [%mine+512], 1;
    atom.acq_rel.gpu.global.add.u32 %r1, [%mine+512], 1;
    red.release.sys.global.add.u32 [%peer+512], 1;
    multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%all+8];
    multimem.st.release.sys.global.u32 [%all+12], %r1;
    multimem.red.relaxed.gpu.global.add.u32 [%all+16], 1;
    setp.eq.u32 %p1, %lane, 5; @%p1 st.global.b16 [%d2+2], %h1;
    ld.mmio.relaxed.sys.global.b32 %r1, [%d2+4];
    """

    def test_what_each_says(self):
        log, _, _ = logged(self.BODY, world_size=2, grid=2, block=4)
        same_text(log.text("access"))
        assert {one.step for one in log.of("access")} == {0}, "one basic block"

    def test_blocks_and_threads_of_more_than_x_have_one_number(self):
        code, log, world = executable(module("st.global.u8 [%mine], %r0;", ["u64 mine"])), Log(), make_world(1)
        world.space.events.add(log)
        succeed(world, launching(code, (1, 2, 2), (2, 1, 3), [np.zeros(4, np.uint8)]))
        (store,) = log.of("access")
        assert who(store) == [(0, 0, block, thread) for block in range(4) for thread in range(6)]

    def test_big_launches_are_told_by_rank(self):
        log, _, _ = logged("ld.global.b32 %r1, [%peer];", world_size=2, grid=2, block=1024, heap_bytes=1 << 20)
        (first, second) = log.of("access")
        assert (first.viewer, first.target, second.viewer, second.target) == (0, 1, 1, 0)
        assert (first.count, second.count) == (2048, 2048)
        assert who(second)[-1] == (1, 0, 1, 1023)

    def test_shared_memory(self):
        shared = ".shared .align 16 .b8 stage[64];\n"
        body = "shl.b32 %r1, %r0, 3; st.shared.v2.b32 [%r1], {%r0, %r0}; ld.shared.b32 %r2, [stage+8];"
        log, _, _ = logged(body, grid=2, block=4, registers=shared)
        assert not log.of("access")
        same_text(log.text("shared_access"))

    def test_an_access_that_faults_is_not_told_unless_it_is_poison_that_it_reads(self):
        for body, told in (("ld.global.b32 %r1, [%mine+1023];", 0), ("ld.global.b32 %r1, [%mine+1020];", 1)):
            ptx, log, world = module(body, ["u64 mine"]), Log(), make_world(1)
            world.space.events.add(log)

            def program(fabric, ptx=ptx):
                start(fabric, executable(ptx), 1, 1, [fabric.allocate(1024, 256, "mine").address])
                fabric.synchronize()

            assert "DeviceFault" in repr(run(world, program).error())
            assert len(log.of("access")) == told


def test_fences():
    forms = """fence.acq_rel.sys fence.sc.cta fence.gpu membar.gl fence.proxy.alias fence.proxy.async
        fence.proxy.async.global fence.proxy.async.shared::cta fence.mbarrier_init.release.cluster"""
    same_text(logged("".join(f"{one};\n" for one in forms.split()), block=2)[0].text("fence"))


class TestBarriers:
    def test_arrivals_and_completions_of_blocks(self):
        """Threads 0 and 1 of each block come later than the others; thread 3 returns before."""
        body = """
        setp.eq.u32 %p1, %r0, 3; @%p1 ret;
        setp.gt.u32 %p2, %r0, 1; @%p2 bra MEET;
        mov.u32 %r2, 1;
        MEET: bar.sync 0;
        """
        same_text(logged(body, grid=2, block=4)[0].text("barrier_arrived", "barrier_completed"))

    def test_warps(self):
        """The second of three warps, of which the last has 6 threads, meets; the others don't."""
        body = "shr.u32 %r1, %r0, 5; setp.ne.u32 %p1, %r1, 1; @%p1 ret; bar.warp.sync -1;"
        same_text(logged(body, block=70)[0].text("barrier_arrived", "barrier_completed"))


class TestCopies:
    SHARED = ".shared .align 16 .b8 stage[64];\n.shared .align 8 .b8 bar[16];\n"
    LOAD = """
    mbarrier.init.shared::cta.b64 [bar+8], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar+8], 32;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [stage+16], [%peer+48], 32, [bar+8];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar+8], 0; @!%p1 bra WAIT;
    mbarrier.inval.shared::cta.b64 [bar+8];
    """

    def test_a_load_and_its_mbarrier(self):
        same_text(logged(self.LOAD, world_size=2, registers=self.SHARED)[0].text("copy", "mbarrier"))

    def test_stores_and_their_groups(self):
        store = "cp.async.bulk.global.shared::cta.bulk_group"
        body = f"""
        st.shared.v4.b32 [stage], {{%r0, %r0, %r0, %r0}}; fence.proxy.async;
        setp.ne.u32 %p1, %r0, 1; @%p1 bra OUT;
        {store} [%mine], [stage], 16; {store} [%mine+16], [stage], 16; cp.async.bulk.commit_group;
        {store} [%peer+32], [stage], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0;
        OUT: cp.async.bulk.commit_group;
        """
        log, world, _ = logged(body, block=2, registers=self.SHARED)
        same_text(log.text("copy", "copies_awaited"))
        assert world.counters()["accesses"]["own_write"] == {"count": 3, "bytes": 48}

    def test_reductions_and_multicast_targets(self):
        """Of a copy within shared memory `within` is the destination; of one to all replicas no rank is the target."""
        where = "async.bulk.global.shared::cta.bulk_group"
        body = f"""
        st.shared.v4.b32 [stage], {{%r0, %r0, %r0, %r0}}; st.shared.v4.b32 [stage+32], {{%r0, %r0, %r0, %r0}};
        mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.max.u32 [stage+32], [stage], 16, [bar];
        WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;
        cp.reduce.{where}.add.u32 [%peer+32], [stage], 16; multimem.cp.reduce.{where}.xor.b32 [%all+16], [stage], 16;
        multimem.cp.{where} [%all], [stage], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        """
        how = {"world_size": 2, "registers": self.SHARED, "before_body": ".reqnctapercluster 1, 1, 1"}
        same_text(logged(body, **how)[0].text("copy"))

    def test_drops_states_and_bytes_of_an_mbarrier(self):
        body = """
        .reg .b64 %s; mbarrier.init.shared.b64 [bar], 3; mbarrier.arrive_drop.shared.b64 %s, [bar], 2;
        mbarrier.expect_tx.shared.b64 [bar], 16; mbarrier.complete_tx.shared.b64 [bar], 16;
        mbarrier.arrive.shared.b64 _, [bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %s;
        """
        same_text(logged(body, registers=self.SHARED)[0].text("mbarrier"))


def test_steps_count_instructions():
    log, world, _ = logged("setp.eq.u32 %p1, %lane, 1; @%p1 bra OUT; mov.u32 %r1, 1; OUT: mov.u32 %r2, 2;", block=3)
    steps = log.of("stepped")
    assert [one.step for one in steps] == list(range(len(steps)))
    assert len(steps) == world.counters()["steps"]
    assert sum(one.instructions * one.count for one in steps) == world.counters()["instructions"]
    assert [(one.basic_block, one.count) for one in steps] == [(0, 3), (1, 2), (2, 3)]
    assert [one.instructions for one in steps[1:]] == [1, 2]


def test_launches_and_hosts():
    """Rank 0 launches one kernel more: the second launch of both is its third."""
    first, second = executable(module("mov.u32 %r1, 1;")), executable(module("mov.u32 %r1, 2;"))
    log, world = Log(), make_world(2)
    world.space.events.add(log)

    def program(fabric):
        if fabric.rank == 0:
            start(fabric, first, 1, 1, [])
            fabric.synchronize()
        fabric.barrier()
        start(fabric, second, 2, 1, [])
        start(fabric, second, 2, 1, [])
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    began = [(one.launched.ranks, one.launched.numbers, one.launched.lanes) for one in log.of("launch_began")]
    assert began == [((0,), (0,), 1), ((0, 1), (1, 0), 4), ((0, 1), (2, 1), 4)]
    assert [(one.rank, one.number) for one in log.of("launch_ended")] == [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1)]
    step = log.of("stepped")[-1]
    assert who(step) == [(0, 2, 0, 0), (0, 2, 1, 0), (1, 1, 0, 0), (1, 1, 1, 0)]
    hosts = [[f"{one.action} {one.launch}" for one in log.of("host") if rank in one.ranks] for rank in range(2)]
    assert hosts[0][:3] == ["enqueued 0", "synchronized 1", "barrier -1"]
    assert hosts[0][3:] == ["enqueued 1", "enqueued 2", "synchronized 3", "barrier -1"]
    assert hosts[1] == ["barrier -1", "enqueued 0", "enqueued 1", "synchronized 2", "barrier -1"]
    assert {one.ranks for one in log.of("host") if one.action == "barrier"} == {(0, 1)}
    order = [(kind, one) for kind, one in log.told if kind in HOST]
    assert [kind for kind, _ in order[:4]] == ["host", "launch_began", "launch_ended", "host"]
    log.told.clear()
    succeed(world, program)
    assert log.of("launch_began")[0].launched.numbers == (0,), "launches are counted anew when ranks come in again"


def test_a_host_that_need_not_wait_has_seen_the_end_all_the_same():
    """The kernels run while the hosts meet; then none has anything left to wait for."""
    log, world, code = Log(), make_world(2), executable(module(""))
    world.space.events.add(log)

    def program(fabric):
        start(fabric, code, 1, 1, [])
        fabric.barrier()
        fabric.synchronize()

    succeed(world, program)
    kinds = [event.action if kind == "host" else kind for kind, event in log.told if kind in HOST]
    assert kinds == [
        "enqueued",
        "enqueued",
        "launch_began",
        "launch_ended",
        "launch_ended",
        "barrier",
        "synchronized",
        "synchronized",
    ]
    assert [one.launch for one in log.of("host")] == [0, 0, -1, 1, 1]


class TestListeners:
    BODY = (
        TestCopies.LOAD
        + TestAccesses.BODY
        + """
    fence.acq_rel.sys; bar.sync 0; bar.warp.sync -1;
    st.shared.v4.b32 [stage], {%r0, %r0, %r0, %r0}; ld.shared.b32 %r1, [stage]; fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%peer+256], [stage], 16; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0; cp.async.ca.shared.global [stage], [%mine], 4; cp.async.wait_all;
    { .param .b64 p0; .param .b64 p1; .param .b32 q; .reg .b64 w; mov.u64 w, text; cvta.global.u64 w, w;
    st.param.b64 [p0], w; st.param.b64 [p1], w; call.uni (q), vprintf, (p0, p1); }
    """
    )
    PRINTING = (
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        ".global .align 1 .b8 text[3] = {104, 105};\n"
    )

    OTHERS = frozenset({"late", "product", "tensor"})
    """Kinds of other programs: of weak memory, of wgmma, and of tcgen05."""

    def _run(self, listener):
        """All kinds of events but those, with this listener alone."""
        world = make_world(2)
        for one in (world.tally, world.printer):
            world.space.events.remove(one)
        if listener is not None:
            world.space.events.add(listener)
        ptx = module(self.BODY, ["u64 mine", "u64 peer", "u64 all"], self.PRINTING, TestCopies.SHARED)
        return run(world, lambda fabric: on_peers(fabric, ptx, 1, 1))

    def test_the_program_has_events_of_every_kind(self):
        log = Log()
        assert not any(self._run(log).errors)
        assert {kind for kind, _ in log.told} == set(KINDS) - self.OTHERS

    def test_no_event_is_made_without_a_listener(self, monkeypatch):
        classes = [
            one for one in vars(observed).values() if isinstance(one, type) and one.__module__ == observed.__name__
        ]
        others = {"LaneEvent", "LateAccess", "ProductMoment", "TensorMoment"}
        names = {one.__name__ for one in classes if hasattr(one, "__dataclass_fields__")} - others
        assert len(names) == len(KINDS) - 1 - len(self.OTHERS), "an Access is told to two methods"

        def forbidden(*args, **named):
            raise AssertionError("an event was made")

        patched = set()
        isa, running = ("memory", "spaces", "system", "mbarriers"), ("copies", "lane_copies", "machine")
        for place in (
            "memory.space",
            *(f"isa.{one}" for one in isa),
            *(f"run.{one}" for one in running),
            "fabric",
            "world",
        ):
            where = importlib.import_module(f"simulator.{place}")
            for name in names & set(vars(where)):
                monkeypatch.setattr(where, name, forbidden)
                patched.add(name)
        assert patched == names, "the modules that make events are these"
        assert not any(self._run(None).errors)
        for kind in set(KINDS) - self.OTHERS:  # the same, where one listens: the constructors are those that are called
            listener = type("One", (Listener,), {kind: lambda self, event: None})()
            assert "an event was made" in str(self._run(listener).error()), kind

    def test_a_listener_is_told_what_it_overrides(self):
        fences_of = []
        fences = type("Fences", (Listener,), {"fence": lambda self, event: fences_of.append(event)})()
        events, log = Events(), Log()
        events.add(fences)
        assert [kind for kind in KINDS if getattr(events, kind)] == ["fence"]
        events.add(log)
        tell(events.fence, "a fence")
        with events.only(log):
            tell(events.fence, "another")
        events.remove(log)
        tell(events.fence, "a third")
        assert (fences_of, log.of("fence")) == (["a fence", "a third"], ["a fence", "another"])
        with refused():
            events.remove(log)

    def test_the_report_of_a_deadlock_is_not_told(self):
        """Its turns of the spin are not the program's."""
        log, world = Log(), make_world(1)
        world.space.events.add(log)
        ptx = module(
            "SPIN: ld.acquire.sys.global.b32 %r1, [%flag]; setp.ne.u32 %p1, %r1, 7; @%p1 bra SPIN;", ["u64 flag"]
        )
        outcome = run(world, launching(ptx, 1, 1, [np.array([5], np.uint32)]))
        assert isinstance(outcome.error(), Deadlock)
        assert "sees 5 at" in str(outcome.error())
        assert len(log.of("stepped")) == world.counters()["steps"]
        assert len(log.of("access")) == world.counters()["steps"] - 1, "a step before the loop"


def test_lanes_and_what_is_behind_them():
    pairs = Clusters((2, 1, 1), (2, 1, 1), is_explicit=True)
    launched = Launched("a kernel", (1, 3), (0, 4), grid=2, block=3, clusters=pairs)
    assert (launched.threads, launched.lanes) == (6, 12)
    lanes = np.array([0, 4, 7, 11])
    assert launched.ranks_of(lanes).tolist() == [1, 1, 3, 3]
    assert launched.numbers_of(lanes).tolist() == [0, 0, 4, 4]
    assert launched.blocks_of(lanes).tolist() == [0, 1, 0, 1]
    assert launched.clusters_of(lanes).tolist() == [0, 0, 1, 1]
    assert launched.threads_of(lanes).tolist() == [0, 1, 1, 2]
    assert [launched.place(int(lane)) for lane in lanes] == [(1, 0, 0), (1, 1, 1), (3, 0, 1), (3, 1, 2)]
    assert launched.threads_of(range(2, 5)).tolist() == [2, 0, 1]
    assert ids_of(range(2, 5)).tolist() == [2, 3, 4]


def test_what_is_printed_is_kept_and_shown_up_to_a_limit(monkeypatch, capsys):
    monkeypatch.setattr(printed, "MAX_LINES", 3)
    printer = printed.Printer()
    for texts in (("a", "b\n"), ("c", "d"), ("e",)):
        places = [np.arange(len(texts))] * 3
        printer.printed(SimpleNamespace(ranks=places[0], blocks=places[1], threads=places[2], texts=texts))
    assert [line.rpartition(": ")[2] for line in printer.lines] == ["a", "b\n", "c"]
    assert capsys.readouterr().err.splitlines() == [line.rstrip("\n") for line in printer.lines]
    assert printer.lost == 2
