"""symlab calibrate: from stand-in times to the expected file; what is no measurement gives none, with one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernels.floors.probes import BY_NAME, ON_GPUS, PROBES, SIMULATED, Probe, counted
from reports.audit.checklist import check
from reports.record.bundle import read
from reports.record.record import KernelInfo, Record, RecordedCase, RecordedEnvironment, RecordedRequest, Status
from runner.calibrate.command import Options, Seams, calibrate
from runner.calibrate.document import section_of, written_into
from runner.calibrate.jobs import asked_request, probe_jobs
from runner.calibrate.measured import calibration, probe_of
from runner.gpu.gpu_type import FLOOR_NAMES, Origin
from runner.gpu.names import CONF
from runner.gpu.reading import gpu_type
from runner.request.compose import ComposedJob
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer
from symlab.command import main
from tests.reports import synthetic

NO_GPU = HostOffer(0, "no GPU driver found", False)
TWO = HostOffer(2, "", True)
EMPTY_US = {1: 0.5, 8: 0.6, 32: 0.7, 128: 0.8}
LATENCY_US = {"relaxed_us": 0.7, "release_acquire_us": 1.3, "load_own_l2_us": 0.3}
GBPS = 3.0
"""A block's: 128 of them stay below what the links of an H200 carry."""


def stand_in_us(probe: Probe, ranks: int = 2) -> float:
    """An invented time of a launch, by which each floor is a round number."""
    empty = EMPTY_US[probe.blocks]
    if probe.floor == "empty_node_dependent_us":
        return empty / 2
    if probe.module == "empty_node":
        return empty
    if probe.is_bandwidth:
        return empty + probe.moved(ON_GPUS, ranks) / (GBPS * probe.blocks) / 1e3
    return empty + probe.per * LATENCY_US.get(probe.floor, 0.9)


def record(probe: Probe, ranks: int = 2, time_us: float | None = None, **changes: Any) -> Record:
    """A record of a probe with an invented time."""
    us = stand_in_us(probe, ranks) if time_us is None else time_us
    fields: dict[str, Any] = {
        "case": RecordedCase(
            op="custom",
            algorithm=probe.name,
            dtype="int32",
            accumulator="none",
            reduction="none",
            size_bytes=128,
            world_size=ranks,
            placement="out_of_place",
            inputs="normal",
            seed=0,
        ),
        "kernel": KernelInfo(f"custom/{probe.name}", "entry", "sm_90a", "", "", "", "", probe.blocks, 128),
        "started": "2026-12-01T08:00:00.000+00:00",
        "environment": RecordedEnvironment(
            gpus=({"model": "NVIDIA H200"},) * ranks, git={"commit": "0123456789abcdef", "dirty": False}
        ),
        "request": RecordedRequest(configuration={"custom": probe.section(ON_GPUS, ranks)}),
    }
    timing = {"bus_factor": 1.0, "l2": "hot", "limit": None}
    samples_us = [[us, us * 1.5, us]] * ranks
    return synthetic.record(world_size=ranks, samples_us=samples_us, timing=timing, **(fields | changes))


usual = cache(record)


def records(ranks: int = 2, **by_name: Mapping[str, Any]) -> list[Record]:
    """Records of all probes; by_name: changes of some."""
    names = by_name.keys()
    return [
        record(probe, ranks, **by_name[probe.name]) if probe.name in names else usual(probe, ranks) for probe in PROBES
    ]


def kept(folder: Path, found: Sequence[Record]) -> Path:
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
  push_both_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  pull_both_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  reduce_gbps: {1: 3, 8: 24, 32: 96, 128: 384}
  bulk_push_gbps: {1: 3, 8: 24, 32: 96}
  bulk_pull_gbps: {1: 3, 8: 24, 32: 96}
  incast_gbps: {1: 384}
"""


def test_stand_in_times_give_the_expected_section() -> None:
    found = calibration(records())
    assert (found.device, found.ranks, found.problems) == ("NVIDIA H200", 2, {})
    assert found.floors is not None
    assert section_of(found.floors) == EXPECTED.replace("DIGEST", found.floors.records[0])
    assert found.floors.missing == ()
    assert calibration(list(reversed(records()))).floors == found.floors


def test_the_digest_is_of_the_records() -> None:
    one, other = calibration(records()).floors, calibration(records(push_1={"time_us": 99.0})).floors
    assert one is not None
    assert other is not None
    assert one.records != other.records


def test_an_incast_of_more_ranks_has_more_senders() -> None:
    found = calibration(records(4)).floors
    assert found is not None
    assert dict(found.incast_gbps) == {3: 384}
    assert found.ranks == 4


def test_of_several_records_the_median_counts() -> None:
    twice = [*records(), *records(empty_1={"time_us": 0.7})]
    found = calibration(twice).floors
    assert found is not None
    assert found.empty_node_us[1] == 0.6


@pytest.mark.slow
def test_a_whole_calibration_on_stand_ins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the command: jobs for all probes, their records, a table, a file, and floors that are read from it."""
    asked: list[ComposedJob] = []

    def ran(given: Sequence[str], jobs: Sequence[ComposedJob]) -> Path:
        asked.extend(jobs)
        return kept(tmp_path / "records", records())

    place = tmp_path / "mine.yaml"
    seams = Seams(ran=ran, machine=lambda: TWO, gpu=lambda: "NVIDIA H200")
    assert calibrate(Options(overrides=("timing.samples=7",), output=place), ("timing.samples=7",), seams) == 0
    said = capsys.readouterr().out
    assert [job.request.custom for job in asked] == [probe.section(ON_GPUS, 2) for probe in PROBES]
    timing = asked[0].request.timing
    assert (timing.samples, timing.l2, timing.mode, timing.calls) == (7, "hot", "graph", 200)
    assert asked[0].request.fabric.name == FabricName.auto
    assert "NVIDIA H200 (h200), 2 ranks" in said
    assert "with 2 ranks one to one" in said
    assert f"use them with fabric.gpu={place}" in said
    found = gpu_type(str(place))
    assert (found.name, found.limits) == ("h200", gpu_type("h200").limits)
    assert found.floors is found.calibrated
    assert found.calibrated is not None
    assert (found.calibrated.origin, found.calibrated.relaxed_us) == (Origin.calibrated, 0.7)


def test_records_of_before_give_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "records", records())
    assert calibrate(Options(records=(folder,), output=tmp_path / "one.yaml")) == 0
    assert main(["calibrate", "--from", str(folder), "-o", str(tmp_path / "other.yaml")]) == 0
    assert (tmp_path / "one.yaml").read_text() == (tmp_path / "other.yaml").read_text()
    capsys.readouterr()
    assert main(["calibrate", "--from", str(folder)]) == 0
    floors = calibration(records()).floors
    assert floors is not None
    assert capsys.readouterr().out.endswith(f"\n\n{section_of(floors)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100", "h200"])
def test_committed_floors_are_those_of_the_committed_records(name: str, tmp_path: Path) -> None:
    """Who edits a floor in the file, or in a record, is found."""
    bundle = CONF / "gpu" / "floors" / f"{name}.jsonl.xz"
    committed = CONF / "gpu" / f"{name}.yaml"
    again = tmp_path / committed.name
    again.write_text(committed.read_text())
    assert calibrate(Options(records=(bundle,), output=again, type=name)) == 0
    assert again.read_text() == committed.read_text()
    made = read([bundle])
    assert len(made) == len(PROBES)
    assert {(one.environment.git or {}).get("dirty") for one in made} == {False}
    assert not check(made, [bundle], ask=lambda *_: (None, "it is not asked here")).level.findings


def test_floors_go_into_a_committed_file_and_nothing_else_changes(tmp_path: Path) -> None:
    name = "b200"
    place = tmp_path / f"{name}.yaml"
    before = (CONF / "gpu" / f"{name}.yaml").read_text()
    place.write_text(before)
    one, other = calibration(records()).floors, calibration(records(push_1={"time_us": 99.0})).floors
    assert one is not None
    assert other is not None
    written_into(place, one, name)
    first = place.read_text()
    assert first == f"{before}\n{section_of(one)}"
    written_into(place, other, name)
    assert place.read_text() == f"{before}\n{section_of(other)}"
    written_into(place, one, name)
    assert place.read_text() == first
    assert gpu_type(str(place)).trial == gpu_type(name).trial


def test_a_file_that_is_no_type_stays_as_it_is(tmp_path: Path) -> None:
    floors = calibration(records()).floors
    assert floors is not None
    place = tmp_path / "mine.yaml"
    place.write_text("size: 3\n")
    with pytest.raises(RequestError, match="unknown key 'size'"):
        written_into(place, floors, "h200")
    assert place.read_text() == "size: 3\n"


def test_floors_that_cannot_be_are_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy that is quicker than the links, and a release that takes less than the store that it waits for."""
    for number, (changes, said) in enumerate(
        (
            ({"push_128": {"time_us": 60.0}}, "push_gbps is"),
            ({"ping_pong_release_1": {"time_us": 150.0}}, "release_acquire_us is"),
        )
    ):
        folder = kept(tmp_path / f"records{number}", records(**changes))
        place = tmp_path / "mine.yaml"
        assert calibrate(Options(records=(folder,), output=place)) == 1
        text = capsys.readouterr().out
        assert said in text
        assert text.endswith("that is no measurement of h200, so that no floors are written\n")
        assert not place.exists()
        assert calibrate(Options(records=(folder,))) == 1
        assert "floors:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size: 3\n", "mine.yaml: unknown key 'size'"),
        ("like: [h200\n", "mine.yaml can't be read"),
        ("like: h2000\n", "unknown GPU 'h2000'"),
    ],
)
def test_a_file_that_is_no_type_is_named_before_anything_runs(tmp_path: Path, text: str, said: str) -> None:
    place = tmp_path / "mine.yaml"
    place.write_text(text)
    seams = Seams(ran=lambda given, jobs: pytest.fail("it ran"), machine=lambda: TWO, gpu=lambda: "NVIDIA H200")
    with pytest.raises(RequestError) as caught:
        calibrate(Options(output=place), (), seams)
    assert said in str(caught.value)
    assert str(caught.value).endswith("(-o)")
    assert "symlab-calibrate-" not in str(caught.value)
    assert place.read_text() == text


def test_floors_of_before_that_cannot_be_are_replaced(tmp_path: Path) -> None:
    place = tmp_path / "mine.yaml"
    floors = calibration(records()).floors
    assert floors is not None
    place.write_text(f"like: h200\n\n{section_of(floors)}".replace("relaxed_us: 0.7", "relaxed_us: 7"))
    with pytest.raises(RequestError, match="and less than relaxed_us, 7"):
        gpu_type(str(place))
    assert calibrate(Options(records=(kept(tmp_path / "records", records()),), output=place)) == 0
    assert gpu_type(str(place)).calibrated == floors


def test_a_type_of_a_folder_of_configurations_can_be_calibrated(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "mine.yaml").write_text("like: h200\nname: mine\ndevices: [NVIDIA H200]\n")
    place = tmp_path / "new.yaml"
    folder = kept(tmp_path / "records", records())
    assert calibrate(Options(records=(folder,), output=place, config_dir=tmp_path, type="mine")) == 0
    assert gpu_type(str(place), (CONF, tmp_path)).name == "mine"


@pytest.mark.slow
def test_an_interrupt_says_what_ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(given: Sequence[str], jobs: Sequence[ComposedJob]) -> Path:
        ended = KeyboardInterrupt()
        ended.add_note("records of 9 cases: records/x")
        raise ended

    monkeypatch.setattr("runner.calibrate.command.Seams", lambda: Seams(ran=interrupted, machine=lambda: NO_GPU))
    assert main(["calibrate", "--simulated"]) == 130
    assert capsys.readouterr().err.endswith("symlab: interrupted; records of 9 cases: records/x\n")


def test_what_ran_before_an_interrupt_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.command import session, start

    monkeypatch.setattr(start, "ready", lambda *_, **__: (None, None))
    for ran, notes in ((tuple(records()[:9]), [f"records of 9 cases: {tmp_path}"]), ((), [])):
        ended = session.Ended(130, tmp_path, ran, KeyboardInterrupt())
        monkeypatch.setattr(session, "run_within", lambda *_, ended=ended: ended)
        with pytest.raises(KeyboardInterrupt) as caught:
            start.run_quietly((), ())
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
            {"request": RecordedRequest(configuration={"custom": PUSH.section(SIMULATED, 2)})},
            "its buffers or arguments are not those of today's probe",
        ),
    ],
)
def test_what_is_no_measurement_gives_no_floors(changes: dict[str, Any], said: str) -> None:
    found = calibration([one if one.case.algorithm != "push_1" else record(PUSH, **changes) for one in records()])
    assert found.problems == {"push_1": said}
    assert found.floors is None
    assert len(found.figures) == len(PROBES) - 1


def test_no_file_is_written_unless_every_probe_has_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "records", records(push_1={"is_timed": False}))
    place = tmp_path / "mine.yaml"
    assert calibrate(Options(records=(folder,), output=place)) == 1
    told = capsys.readouterr().out
    assert "push_1: it was not timed" in told
    assert "1 probe without a figure, so that no floors are written" in told
    assert not place.exists()


def test_a_probe_that_was_not_run_is_missed() -> None:
    found = calibration([one for one in records() if one.case.algorithm != "empty_8"])
    assert found.problems["empty_8"] == "it was not measured"
    assert found.floors is None


def test_simulated_records_have_no_floors() -> None:
    made = record(PUSH)
    assert made.fabric is not None
    fabric = dataclasses.replace(made.fabric, simulated=True, name="simulator")
    found = calibration([dataclasses.replace(made, fabric=fabric, timing=None)])
    assert found.floors is None
    assert found.problems["push_1"] == "it was simulated: there is no time"


def test_records_of_two_types_are_no_calibration() -> None:
    other = RecordedEnvironment(gpus=({"model": "NVIDIA H100 80GB HBM3"},) * 2)
    with pytest.raises(ValueError, match="records of NVIDIA H100 80GB HBM3, NVIDIA H200: a calibration is of one type"):
        calibration(records(push_1={"environment": other}))
    with pytest.raises(ValueError, match="records of 2 ranks, 4 ranks"):
        calibration([*records(), *records(4)])
    with pytest.raises(ValueError, match="there is no record of a calibration"):
        calibration([synthetic.record()])
    assert probe_of(synthetic.record()) is None


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["calibrate", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def test_without_gpus_it_says_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.calibrate.command.Seams", lambda: Seams(machine=lambda: NO_GPU))
    assert refusal(capsys=capsys) == (
        "symlab: error: floors are measured on GPUs, and this would be simulated: no GPU driver found (fabric), run it "
        "where there are 2 GPUs and the gpu extra, or check the probes without times: symlab calibrate --simulated"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("op=barrier",), "each probe has its own op (op), leave it out of a calibration"),
        (("+exp=barrier",), "each probe has its own exp (exp), leave it out"),
        (("sizes=[1K]",), "each probe has its own sizes (sizes)"),
        (("world_size=1",), "world_size is 1, and floors are between GPUs (world_size), give 2"),
        (("--from", "nowhere"), "nowhere"),
        (("--from", "x", "world_size=2"), "--from only reads records (--from), leave overrides and --simulated out"),
        (("--simulated", "-o", "x.yaml"), "simulated probes have no times (--simulated), leave -o out"),
        (("-o", "x.json"), "x.json is no file of a GPU (-o), give a name that ends in .yaml"),
        (("-o", "no/where/x.yaml"), "no/where/x.yaml can't be written (-o), give a file in a folder that exists"),
    ],
)
def test_a_wrong_request_is_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(*arguments, capsys=capsys)


def test_the_type_is_known_before_anything_runs() -> None:
    seams = Seams(ran=lambda given, jobs: pytest.fail("it ran"), machine=lambda: TWO, gpu=lambda: "NVIDIA T4")
    with pytest.raises(RequestError, match=r"no type of conf/gpu names the device 'NVIDIA T4' \(--type\)"):
        calibrate(Options(), (), seams)
    with pytest.raises(RequestError, match="h200 is not 'NVIDIA T4', its devices are NVIDIA H200"):
        calibrate(Options(type="h200"), (), seams)


def test_each_probe_can_be_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record's override lines make the same job."""
    from runner.request.compose import compose_jobs, hydra_over

    few = (BY_NAME["ping_pong_release_1"], BY_NAME["incast_128"])
    monkeypatch.setattr("runner.calibrate.jobs.PROBES", few)
    _, configuration = asked_request((), None)
    jobs = probe_jobs((), configuration, 2, is_simulated=False)
    assert [job.number for job in jobs] == [0, 1]
    with hydra_over():
        for job in jobs:
            (again,) = compose_jobs(job.overrides, False)
            assert again.configuration == job.configuration
            assert again.request == job.request


def test_the_floors_of_probes_are_all() -> None:
    found = calibration(records()).figures
    assert [(one.probe.name, one.count) for one in found] == [(one.name, counted(one, 2)) for one in PROBES]
    assert {one.probe.floor for one in found} == set(FLOOR_NAMES)


@pytest.mark.slow
def test_the_probes_are_checked_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "--simulated"]) == 0
    said = capsys.readouterr().out
    assert f"{len(PROBES)} cases: {len(PROBES)} passed; no race in any of {len(PROBES)} checked cases" in said
    assert "checked in the simulator, 0 failed; it has no clock: no floors" in said
