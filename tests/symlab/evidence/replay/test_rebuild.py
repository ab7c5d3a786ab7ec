"""A command is rebuilt from records alone: the very same cases, or a reason."""

import dataclasses
from pathlib import Path

import pytest

from cases.record.request import RecordedRequest
from reports.record.bundle import read, unpacked
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer
from symlab.evidence.replay.rebuild import Wishes, rebuilt
from tests.golden import refused
from tests.reports.synthetic import with_case, with_request

PUBLISHED = Path(__file__).parents[4] / "reports" / "published" / "h200-x4"
NO_GPU = HostOffer(0, "no GPU driver found", False)
FOUR_GPUS = HostOffer(4, "", True)


def ids(again):
    return [case.id for job in again.command.jobs for case in job.cases]


@pytest.fixture
def made(symlab):
    """Records of a command line on stub worlds."""

    def make(*arguments):
        folder = symlab(*arguments).folder
        return read([folder / "records"])

    return make


@pytest.mark.parametrize(
    "arguments",
    [
        ["sizes=[8,1K]"],
        ["+exp=allreduce_bf16", "seed=3", "inputs=exact"],
        ["op=broadcast", "root=1", "offset=1", "dtype=uint8", "algorithms=all", "sizes=[5]"],
        ["op=reduce_scatter", "world_size=3", "sizes=[100,1000]", "algorithms=auto"],
        ["op=barrier", "algorithms=auto"],
        ["fabric.multicast=false", "algorithms=all", "sizes=[64]"],
        ["dtype=int32", "reduction=max", "placement=in_place", "algorithms=[two_shot]"],
        ["placement=both", "algorithms=[one_shot,two_shot]"],
        ["-m", "world_size=2,4", "dtype=float32,bfloat16/native", "sizes=[8]"],
        ["-m", "fabric.schedule=random", "fabric.seed=1,2", "sizes=[8]"],
    ],
)
def test_the_same_cases_come_back_whatever_was_left_open(made, arguments):
    records = made(*arguments)
    again = rebuilt(records, Wishes())
    assert sorted(ids(again)) == sorted(record.id for record in records)
    assert again.records == tuple(records)
    assert again.left_out == ()
    recorded = {record.id: record.case for record in records}
    for job in again.command.jobs:
        for case in job.cases:
            assert case == recorded[case.id]
        assert job.composed.overrides == records[0].request.overrides or len(again.command.jobs) > 1


def test_one_record_alone_is_enough(made):
    records = made("+exp=allreduce_bf16")
    for record in records[::7]:
        assert ids(rebuilt([record], Wishes())) == [record.id]


def test_conf_is_not_asked(made, monkeypatch):
    records = made("+exp=allreduce_bf16", "sizes=[8]")
    monkeypatch.setattr("runner.request.compose.CONF", Path("/nowhere"))
    assert len(ids(rebuilt(records, Wishes()))) == len(records)


def test_fabric_settings_stay_as_they_were(made):
    settings = ("schedule=random", "seed=7", "arch=sm_100a", "heap_bytes=1M", "memory=weak")
    records = made(*(f"fabric.{one}" for one in settings), "sizes=[8]")
    (job,) = rebuilt(records, Wishes()).command.jobs
    fabric = job.request.fabric
    assert (fabric.schedule, fabric.seed, fabric.arch, fabric.heap_bytes) == ("random", 7, "sm_100a", 1 << 20)
    assert fabric.memory == "weak"
    assert {record.fabric.settings["memory"] for record in records} == {"weak"}
    section = dict((records[0].request.configuration or {})["fabric"])
    assert section.pop("memory") == "weak"
    (job,) = rebuilt([changed(records[0], fabric=section)], Wishes()).command.jobs
    assert job.request.fabric.memory == "strong", "where no record says otherwise"


def test_where_records_and_mlflow_are_is_not_taken_from_them(made):
    records = made("sizes=[8]", "cache_dir=elsewhere")
    (job,) = rebuilt(records, Wishes(records="mine")).command.jobs
    assert job.request.records.name == "mine"
    assert job.request.cache_dir.name == "kernels"
    assert job.request.track.name == "none"


def changed(record, **changes):
    return with_request(record, configuration={**(record.request.configuration or {}), **changes})


def test_what_can_not_be_rebuilt_is_named(made):
    records = made("sizes=[8]")
    gone = with_case(dataclasses.replace(records[0], kernel=None), algorithm="three_shot")
    other_seed = with_case(records[0], seed=4)
    for one, why in (
        (gone, "there is no all_reduce/three_shot any more"),
        (other_seed, "its configuration gives no such case here"),
    ):
        again = rebuilt([one, records[1]], Wishes())
        assert again.left_out == ((one.id, why),)
        assert (again.records, ids(again)) == ((records[1],), [records[1].id])
    with refused(RequestError):
        rebuilt([other_seed], Wishes())


def test_a_configuration_of_another_version_is_one_clear_line(made):
    (record, _) = made("sizes=[8]")
    for one in (
        changed(record, unheard_of=1),
        changed(with_case(dataclasses.replace(record, kernel=None), op="gossip")),
        dataclasses.replace(record, request=RecordedRequest()),
    ):
        with refused(RequestError):
            rebuilt([one], Wishes())


def test_keys_that_came_later_stand_at_their_defaults(made):
    records = made("sizes=[8]")
    old = [
        {key: value for key, value in (one.request.configuration or {}).items() if key not in ("root", "timing")}
        for one in records
    ]
    older = [with_request(one, configuration=there) for one, there in zip(records, old, strict=True)]
    assert ids(rebuilt(older, Wishes())) == [one.id for one in records]


def test_records_of_gpus_go_to_the_simulator_where_there_is_none():
    records = unpacked(PUBLISHED / "all_reduce-world1.jsonl.xz")
    again = rebuilt(records, Wishes(machine=lambda: NO_GPU))
    assert again.is_simulated
    assert again.remarks == (
        "measured on GPUs, and here no GPU driver found: its data is run again in the simulator, "
        "its speed can't be compared",
    )
    reasons = {reason for _, reason in again.left_out}
    assert reasons == {"a library's collective needs GPUs", "in the simulator only up to 1M (--up-to)"}
    assert len(again.left_out) + len(again.records) == len(records)
    for job in again.command.jobs:
        assert (job.request.fabric.arch, job.request.fabric.multicast) == ("sm_90a", False)
        assert max(case.size_bytes for case in job.cases) == 1 << 20
    small = rebuilt(records, Wishes(machine=lambda: NO_GPU, up_to_bytes=4096))
    assert max(record.case.size_bytes for record in small.records) == 4096


@pytest.mark.slow
def test_on_gpus_what_was_measured_beside_it_is_measured_again():
    records = unpacked(PUBLISHED / "all_reduce-world1.jsonl.xz")
    record = next(one for one in records if one.timing is not None and one.case.algorithm == "two_shot")
    again = rebuilt([record], Wishes(machine=lambda: FOUR_GPUS))
    assert not again.is_simulated
    (job,) = again.command.jobs
    assert {case.size_bytes for case in job.cases} == {record.case.size_bytes}
    assert {case.algorithm for case in job.cases} == {"two_shot", *record.timing.interleaved_with}
    assert again.records == (record,)
    whole = rebuilt(records, Wishes(machine=lambda: FOUR_GPUS))
    assert (len(whole.records), whole.left_out) == (len(records), ())
    some = rebuilt(records, Wishes(machine=lambda: FOUR_GPUS, up_to_bytes=1 << 16))
    assert not some.is_simulated
    assert {reason for _, reason in some.left_out} == {"only up to 64K (--up-to)"}
    assert {record.id for record in some.records} == {one.id for one in records if one.case.size_bytes <= 1 << 16}
    assert {case.algorithm for job in some.command.jobs for case in job.cases} >= {"nccl", "two_shot"}
    assert max(case.size_bytes for job in some.command.jobs for case in job.cases) == 1 << 16


def test_simulated_cases_up_to_a_size_run_where_one_is_given(made):
    records = made("sizes=[8,64]")
    assert rebuilt(records, Wishes()).left_out == ()
    again = rebuilt(records, Wishes(up_to_bytes=8))
    assert {one.case.size_bytes for one in again.records} == {8}
    assert {reason for _, reason in again.left_out} == {"only up to 8 (--up-to)"}


def test_a_wish_for_gpus_that_are_not_there_is_refused():
    records = unpacked(PUBLISHED / "all_reduce-world1.jsonl.xz")[:1]
    with refused(RequestError):
        rebuilt(records, Wishes(fabric="nvshmem", machine=lambda: NO_GPU))
    again = rebuilt(records, Wishes(machine=lambda: HostOffer(2, "", True)))
    assert "world_size is 4, but 2 GPUs are here" in again.remarks[0]


def test_worlds_of_one_case_are_one_case():
    records = read(sorted(PUBLISHED.glob("all_reduce-*.xz")))
    again = rebuilt(records, Wishes(machine=lambda: NO_GPU, up_to_bytes=1024))
    assert len(again.records) == 2 * len(ids(again))
