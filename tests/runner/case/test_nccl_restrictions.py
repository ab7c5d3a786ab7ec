"""library.nccl_algo, nccl_proto and nccl_channels: a world each, in the ranks' environment, in records and tables, and
refused where NCCL has nothing for them."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.record.nccl_settings import (
    TOLD,
    NcclAlgorithm,
    NcclProtocol,
    NcclSettings,
    asked_settings,
    contradiction,
    said_choice,
    said_settings,
)
from memory.fabric import Traits
from reports.table.compare import contestants, rows, split
from runner.case.expected import expected_refusal
from runner.case.nccl_settings import refuses_settings
from runner.request_error import RequestError
from runner.world import fabrics, processes
from runner.world.fabrics import HostOffer, resolve
from runner.world.launcher import Outer
from tests.golden import refused, same_text
from tests.reports.export.sweeps import OWN, RING_LL, TREE_LL, nccl_record
from tests.reports.synthetic import KIB, record, with_case
from tests.rooms import needs
from tests.runner.world.test_preload import request as requested

GPUS = Traits("nvshmem", "sm_90a", 4, 1 << 30, True)
ASKED = ("library.nccl_algo=Ring", "library.nccl_proto=LL", "library.nccl_channels=8")


def test_a_request_has_them():
    assert requested("fabric=nvshmem", *ASKED).fabric.nccl_settings == RING_LL
    assert requested("fabric=nvshmem").fabric.nccl_settings.is_own_choice
    one = requested("fabric=nvshmem", "library.nccl_channels=1").fabric.nccl_settings
    assert (one.text, one.is_own_choice) == ("1 channel", False)


def test_the_mixing_of_graphs_restricts_no_choice():
    without = requested("fabric=nvshmem", "library.nccl_graph_mixing=false").fabric.nccl_settings
    assert (without.text, without.is_own_choice) == ("no graph mixing", True)
    assert without.variables == {"NCCL_GRAPH_MIXING_SUPPORT": "0"}
    with_it = requested("fabric=nvshmem", "library.nccl_graph_mixing=true", *ASKED).fabric.nccl_settings
    assert with_it.text == "Ring, LL, 8 channels, graph mixing"
    assert with_it.variables == {**RING_LL.variables, "NCCL_GRAPH_MIXING_SUPPORT": "1"}
    assert with_it.choice == RING_LL
    for name in ("nccl", "nccl/symmetric"):
        assert refuses_settings(without, nccl(name=name), GPUS) is None
        made = replace(nccl_record(without, 4 * KIB), library=without.named("NCCL 2.28.9"))
        made = with_case(made, algorithm=name)
        assert (said_settings(made), said_choice(made), contradiction(made)) == ("no graph mixing", "", "")
        lie = replace(made, library="NCCL 2.28.9")
        assert contradiction(lie).endswith("asked NCCL for no graph mixing, and names nothing")


def test_a_world_that_torchrun_started_is_taken_if_its_environment_says_the_same(monkeypatch):
    fabric = requested("fabric=nvshmem", "library.nccl_graph_mixing=false").fabric
    with refused(RequestError):
        resolve(fabric, 2, lambda: HostOffer(2, "", True), OUTER)
    monkeypatch.setenv("NCCL_GRAPH_MIXING_SUPPORT", "1")
    with refused(RequestError):
        resolve(fabric, 2, lambda: HostOffer(2, "", True), OUTER)
    monkeypatch.setenv("NCCL_GRAPH_MIXING_SUPPORT", "0")
    assert resolve(fabric, 2, lambda: HostOffer(2, "", True), OUTER)[0].name == fabrics.FabricName.nvshmem


@pytest.mark.parametrize(
    "asked",
    [
        "fabric=nvshmem library.nccl_graph_mixing=perhaps",
        "fabric=nvshmem library.nccl_algo=Star",
        "fabric=nvshmem library.nccl_proto=LL64",
        "fabric=nvshmem library.nccl_channels=0",
        "fabric=nvshmem library.nccl_channels=65",
        *(f"fabric=simulator {asked}" for asked in ASKED),
    ],
)
def test_what_nccl_or_the_simulator_does_not_have_is_refused_at_once(asked):
    with refused(RequestError):
        requested(*asked.split())


OUTER = Outer("torchrun", 0, 2, 0, "localhost", 1)


def test_they_need_gpus_and_a_world_of_our_own():
    fabric = requested("fabric=auto", *ASKED).fabric
    with refused(RequestError):
        resolve(fabric, 2, lambda: HostOffer(0, "no GPU driver found", True))
    assert resolve(fabric, 2, lambda: HostOffer(2, "", True))[0].name == fabrics.FabricName.nvshmem
    with refused(RequestError):
        resolve(fabric, 2, lambda: HostOffer(2, "", True), OUTER)


def test_every_rank_gets_them_and_each_setting_is_another_world(monkeypatch):
    started = []

    def start(*given, env, **named):
        started.append(env)
        raise InterruptedError("that is all that was to be seen")

    monkeypatch.setattr(processes.subprocess, "Popen", start)
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    plain = requested("fabric=nvshmem").fabric
    for settings in (RING_LL, NcclSettings()):
        with pytest.raises(InterruptedError):
            fabrics.make_world(replace(plain, nccl_settings=settings), 2, lambda line: None)
    names = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")
    rings, others = ([one.get(name) for name in names] for one in started)
    assert (rings, others) == (["Ring", "LL", "8", "8"], [None, "Simple", None, None])
    assert set(RING_LL.variables) < set(TOLD)
    assert len({plain, replace(plain, nccl_settings=RING_LL), replace(plain, nccl_settings=TREE_LL)}) == 3


def nccl(op="all_reduce", name="nccl"):
    reduction = "none" if op in ("all_gather", "all_to_all", "broadcast") else "sum"
    place = "in_place" if op in ("all_reduce", "broadcast", "reduce") else "out_of_place"
    return Case(op, name, "bfloat16", "library", reduction, 4096, 4, place)


WITHOUT_SWITCH = replace(GPUS, multicast=False, multicast_reason="the fabric manager gave none")
NVLS = NcclSettings(NcclAlgorithm.NVLS, NcclProtocol.Simple)


@pytest.mark.parametrize(
    ("settings", "case", "key"),
    [
        (TREE_LL, nccl("all_gather"), "library.nccl_algo"),
        (NcclSettings(NcclAlgorithm.PAT), nccl(), "library.nccl_algo"),
        (NcclSettings(NcclAlgorithm.NVLS, NcclProtocol.LL), nccl(), "library.nccl_proto"),
        (RING_LL, nccl("all_to_all"), "library"),
        (RING_LL, nccl(name="nccl/symmetric"), "library"),
    ],
)
def test_what_nccl_has_nothing_for_is_refused(settings, case, key):
    found = refuses_settings(settings, case, GPUS)
    assert found.key == key
    same_text(str(found))
    fabric = replace(requested("fabric=nvshmem").fabric, nccl_settings=settings)
    assert expected_refusal(case, fabric) == found


def test_what_it_has_is_not_refused_nor_what_is_not_nccls():
    has = [(RING_LL, nccl(op)) for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")]
    has += [(TREE_LL, nccl()), (NVLS, nccl()), (NcclSettings(), nccl("all_to_all"))]
    has += [(TREE_LL, nccl("all_gather", name)) for name in ("nvshmem", "pull")]
    assert [refuses_settings(settings, case, GPUS) for settings, case in has] == [None] * len(has)
    same_text(str(refuses_settings(NVLS, nccl(), WITHOUT_SWITCH)))


def both():
    return [nccl_record(one, KIB, world) for world, one in enumerate((RING_LL, TREE_LL, OWN, RING_LL))]


def test_a_record_says_what_was_asked_and_what_ran():
    made = nccl_record(RING_LL, KIB)
    assert made.library == "NCCL 0.0.0 (Ring, LL, 8 channels)"
    assert (asked_settings(made), said_settings(made)) == (RING_LL, "Ring, LL, 8 channels")
    assert (asked_settings(record("nccl")), said_settings(record("nccl"))) == (NcclSettings(), "")
    for library in ("NCCL (none is loaded)", "NCCL 2.28.9 and 2.32.3", "NCCL 2.28.9"):
        assert said_settings(replace(made, library=library)) == ""
        assert said_settings(replace(made, library=RING_LL.named(library))) == RING_LL.text


def test_no_row_curve_series_or_pair_mixes_two_settings():
    (section,) = split(both())[0]
    named = {row.algorithm: len(row.records) for row in rows(section)}
    assert named == {"nccl 0.0.0 (Ring, LL, 8 channels)": 2, "nccl 0.0.0 (Tree, LL, 16 channels)": 1, "nccl 0.0.0": 1}
    assert len(contestants(rows(section))) == 3


@needs("evidence")
def test_audits_and_histories_tell_restrictions_apart():
    from symlab.evidence.audit.pairing import paired
    from symlab.evidence.history.series import series_of

    assert sorted(len(one.points) for one in series_of(both())) == [1, 1, 2]
    pairs = paired(both()[:3], both()[:3])
    assert [said_settings(one.first) for one in pairs] == ["Ring, LL, 8 channels", "Tree, LL, 16 channels", ""]
    assert all(len(one.before) == len(one.after) == 1 for one in pairs)
