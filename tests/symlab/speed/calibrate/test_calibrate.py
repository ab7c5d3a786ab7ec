"""symlab calibrate: from stand-in times to the expected file; what is no measurement gives none, with one line."""

import dataclasses
from functools import cache

import pytest

from cases.case import Case
from cases.record.record import KernelInfo, Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from reports.record.bundle import read
from runner.command import runnable_jobs, session
from runner.gpu.gpu_type import FLOOR_NAMES
from runner.gpu.names import CONF
from runner.gpu.reading import gpu_type
from runner.world.fabrics import FabricName, HostOffer
from symlab.command import main
from symlab.speed.calibrate.command import Options, Seams, calibrate
from symlab.speed.calibrate.document import section_of
from symlab.speed.calibrate.measured import calibration, probe_of
from symlab.speed.calibrate.probes import BY_NAME, ON_GPUS, PROBES
from tests.golden import refused, same_text
from tests.reports import synthetic
from tests.symlab.evidence.audit.complete_set import audited
from tests.symlab.speed.calibrate.test_floors import SIMULATED

NO_GPU = HostOffer(0, "no GPU driver found", False)
TWO = HostOffer(2, "", True)
EMPTY_US = {1: 0.5, 8: 0.6, 32: 0.7, 128: 0.8}
LATENCY_US = {"relaxed_us": 0.7, "release_acquire_us": 1.3, "load_own_l2_us": 0.3}
GBPS = 3.0
"""A block's: 128 of them stay below what the links of an H200 carry."""


def stand_in_us(probe):
    """An invented time of a launch, by which each floor is a round number."""
    empty = EMPTY_US[probe.blocks]
    if probe.floor == "empty_node_dependent_us":
        return empty / 2
    if probe.module == "empty_node":
        return empty
    if probe.is_bandwidth:
        return empty + probe.moved(ON_GPUS) / (GBPS * probe.blocks) / 1e3
    return empty + probe.per * LATENCY_US.get(probe.floor, 0.9)


def record(probe, ranks=2, time_us=None, **changes):
    """A record of a probe with an invented time."""
    us = stand_in_us(probe) if time_us is None else time_us
    commit = {"commit": "0123456789abcdef", "dirty": False}
    fields = {
        "case": Case("custom", probe.name, "int32", "none", "none", 128, ranks),
        "kernel": KernelInfo(f"custom/{probe.name}", "entry", "sm_90a", "", "", "", "", probe.blocks, 128),
        "started": "2026-12-01T08:00:00.000+00:00",
        "environment": RecordedEnvironment(gpus=({"model": "NVIDIA H200"},) * ranks, git=commit),
        "request": RecordedRequest(configuration={"custom": probe.section(ON_GPUS)}),
    }
    timing = {"bus_factor": 1.0, "l2": "hot", "limit": None}
    samples_us = [[us, us * 1.5, us]] * ranks
    return synthetic.record(world_size=ranks, samples_us=samples_us, timing=timing, **(fields | changes))


usual = cache(record)


def records(ranks=2, **by_name):
    """Records of all probes; by_name: changes of some."""
    names = by_name.keys()
    return [
        record(probe, ranks, **by_name[probe.name]) if probe.name in names else usual(probe, ranks) for probe in PROBES
    ]


def kept(folder, found):
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(found):
        (folder / f"{number:03d}.json").write_text(one.to_json())
    return folder


EXPECTED = """\
# Of symlab calibrate; times in microseconds, bandwidths in GB/s (runner/gpu/gpu_type.py).
floors:
  source: 'measured: 2026-12-01, 2 x NVIDIA H200, symlab calibrate at 0123456789ab'
  ranks: 2
  records: ['DIGEST']
  empty_node_us: {1: 0.5, 8: 0.6, 32: 0.7, 128: 0.8}
  empty_node_dependent_us: {1: 0.25, 8: 0.3, 32: 0.35, 128: 0.4}
  relaxed_us: 0.7
  release_acquire_us: {0: 1.3, 1: 1.3, 64: 1.3}
  load_own_l2_us: 0.3
  load_own_memory_us: 0.9
  load_remote_hot_us: 0.9
  load_remote_cold_us: 0.9
  push_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  pull_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  pull_both_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  reduce_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  bulk_push_gbps: {1: 3, 8: 24, 32: 96}
"""


def test_stand_in_times_give_the_expected_section():
    found = calibration(records())
    assert (found.device, found.ranks, found.problems) == ("NVIDIA H200", 2, {})
    assert section_of(found.floors) == EXPECTED.replace("DIGEST", found.floors.records[0])
    assert found.floors.missing == ()
    assert calibration(list(reversed(records()))).floors == found.floors
    assert floors_of(records(push_1={"time_us": 99.0})).records != found.floors.records, "the digest is of the records"
    assert floors_of(records(4)).ranks == 4
    twice = floors_of([*records(), *records(empty_1={"time_us": 0.7})])
    assert twice.empty_node_us[1] == 0.6, "of several records the median counts"
    assert [one.probe for one in found.figures] == list(PROBES)
    assert {one.probe.floor for one in found.figures} == set(FLOOR_NAMES)


@pytest.mark.slow
def test_a_whole_calibration_on_stand_ins(tmp_path, capsys):
    """Through the command: jobs for all probes, their records, a table, a file, and floors that are read from it."""
    asked = []

    def ran(given, jobs):
        asked.extend(jobs)
        return kept(tmp_path / "records", records())

    place = tmp_path / "mine.yaml"
    seams = Seams(ran=ran, machine=lambda: TWO, gpu=lambda: "NVIDIA H200")
    assert calibrate(Options(overrides=("timing.samples=7",), output=place), ("timing.samples=7",), seams) == 0
    said = capsys.readouterr().out
    assert [job.request.custom for job in asked] == [probe.section(ON_GPUS) for probe in PROBES]
    timing = asked[0].request.timing
    assert (timing.samples, timing.l2, timing.mode, timing.calls) == (7, "hot", "graph", 200)
    assert asked[0].request.fabric.name == FabricName.auto
    assert "NVIDIA H200 (h200), 2 ranks" in said
    assert f"use them with fabric.gpu={place}" in said
    found = gpu_type(str(place))
    assert (found.name, found.limits) == ("h200", gpu_type("h200").limits)
    assert found.floors.relaxed_us == 0.7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100", "h200"])
def test_committed_floors_are_those_of_the_committed_records(name, capsys):
    """Who edits a floor in the file, or in a record, is found."""
    bundle = CONF / "gpu" / "floors" / f"{name}.jsonl.xz"
    assert calibrate(Options(records=(bundle,), type=name)) == 0
    section = capsys.readouterr().out.partition("\n\n")[2]
    assert section.count("\n") > 15
    assert (CONF / "gpu" / f"{name}.yaml").read_text().endswith(section)
    made = read([bundle])
    assert sum(probe_of(one) is not None for one in made) == len(PROBES), "the others are of probes that went"
    assert {(one.environment.git or {}).get("dirty") for one in made} == {False}
    assert not audited(made, bundle).level.findings


@pytest.mark.parametrize(
    "changes",
    [{"push_128": {"time_us": 60.0}}, {"ping_pong_release_1": {"time_us": 150.0}}, {"push_1": {"is_timed": False}}],
    ids=" ".join,
)
def test_floors_that_cannot_be_are_not_written(tmp_path, capsys, changes):
    """Such as a copy that is quicker than the links, a release that takes less than the store that it waits for, and a
    probe without a figure."""
    folder, place = kept(tmp_path / "records", records(**changes)), tmp_path / "mine.yaml"
    assert calibrate(Options(records=(folder,), output=place)) == 1
    same_text("\n".join(capsys.readouterr().out.splitlines()[-2:]))
    assert not place.exists()
    assert calibrate(Options(records=(folder,))) == 1
    assert "floors:" not in capsys.readouterr().out


def test_simulated_records_and_probes_that_were_not_run_give_no_floors():
    made = record(PUSH)
    fabric = dataclasses.replace(made.fabric, simulated=True, name="simulator")
    found = calibration([dataclasses.replace(made, fabric=fabric, timing=None)])
    assert found.floors is None
    assert found.problems["push_1"] == "it was simulated: there is no time"
    assert found.problems["empty_8"] == "it was not measured"
    found = calibration([one for one in records() if one.case.algorithm != "empty_8"])
    assert (found.floors, found.problems) == (None, {"empty_8": "it was not measured"})


@pytest.mark.slow
def test_an_interrupt_says_what_ran(capsys, monkeypatch):
    def interrupted(given, jobs):
        ended = KeyboardInterrupt()
        ended.add_note("records of 9 cases: records/x")
        raise ended

    monkeypatch.setattr(
        "symlab.speed.calibrate.command.Seams",
        lambda: Seams(ran=interrupted, machine=lambda: TWO, gpu=lambda: "NVIDIA H200"),
    )
    assert main(["calibrate"]) == 130
    assert capsys.readouterr().err.endswith("symlab: interrupted; records of 9 cases: records/x\n")


def test_what_ran_before_an_interrupt_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(runnable_jobs, "ready", lambda *_, **__: (None, None))
    for ran, notes in ((tuple(records()[:9]), [f"records of 9 cases: {tmp_path}"]), ((), [])):
        ended = session.Ended(130, tmp_path, ran, KeyboardInterrupt())
        monkeypatch.setattr(session, "run_within", lambda *_, ended=ended: ended)
        with pytest.raises(KeyboardInterrupt) as caught:
            runnable_jobs.run_quietly((), ())
        assert getattr(caught.value, "__notes__", []) == notes


PUSH = BY_NAME["push_1"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": Status.DEADLOCK, "reason": "no flag", "is_timed": False, "check": None}, "DEADLOCK: no flag"),
        ({"is_timed": False}, "it was not timed"),
        ({"is_timed": False, "check": None, "reason": "check was off"}, "its results were not checked"),
        ({"time_us": 0.4}, "push_1 took 0.4 us, and an empty node takes 0.5 us"),
        ({"kernel": None}, "it launched no blocks, not 1"),
        (
            {"request": RecordedRequest(configuration={"custom": PUSH.section(SIMULATED)})},
            "its buffers or arguments are not those of today's probe",
        ),
    ],
)
def test_what_is_no_measurement_gives_no_floors(changes, said):
    found = calibration([one if one.case.algorithm != "push_1" else record(PUSH, **changes) for one in records()])
    assert found.problems == {"push_1": said}
    assert found.floors is None
    assert len(found.figures) == len(PROBES) - 1


def test_records_of_two_types_are_no_calibration():
    other = RecordedEnvironment(gpus=({"model": "NVIDIA H100 80GB HBM3"},) * 2)
    for found in (records(push_1={"environment": other}), [*records(), *records(4)], [synthetic.record()]):
        with refused(ValueError):
            calibration(found)
    assert probe_of(synthetic.record()) is None


def test_without_gpus_it_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("symlab.speed.calibrate.command.Seams", lambda: Seams(machine=lambda: NO_GPU))
    assert main(["calibrate"]) == 2
    same_text(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["op=barrier"],
        ["+exp=barrier"],
        ["sizes=[1K]"],
        ["world_size=1"],
        ["--from", "nowhere"],
        ["--from", "x", "world_size=2"],
        ["-o", "x.json"],
        ["-o", "no/where/x.yaml"],
        ["-o", "conf/gpu/h200.yaml"],
    ],
    ids=" ".join,
)
def test_a_wrong_request_is_one_line(capsys, arguments):
    assert main(["calibrate", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    same_text(said)


def floors_of(found):
    return calibration(found).floors
