"""What each item of a checklist tells of sets that lack something; test_tampering.py has what liars change."""

import dataclasses

import pytest

from cases.record.record import CHECK_WAS_OFF, Status
from cases.record.timing import LinkLimit
from reports.record.seal import MANIFEST
from symlab.evidence.audit.code import _run_by
from tests.reports.export.sweeps import OWN, RING_LL, nccl_record
from tests.reports.raced import checked as raced
from tests.reports.raced import finding, unchecked
from tests.reports.synthetic import KIB
from tests.reports.synthetic import record as made_of
from tests.symlab.evidence.audit.complete_set import (
    ENVIRONMENT,
    PTX,
    STATE,
    UUIDS,
    answer,
    audited,
    changed,
    kept,
    kernel,
    records,
    tells,
    with_command,
    with_environment,
    with_request,
    with_timing,
    without,
)
from tests.symlab.evidence.audit.invented_records import broken, check, digest, wrong
from tests.symlab.evidence.audit.tampering import members as measured


def first(change):
    """The set with its first record changed."""
    head, *others = records()
    return [change(head), *others]


def last(**changes):
    return [*records()[:-1], changed(records()[-1], **changes)]


def states(**changes):
    return tuple({"before": STATE | {"uuid": uuid}, "after": STATE | {"uuid": uuid} | changes} for uuid in UUIDS)


def all_gpus(record):
    """The record on a machine with as many GPUs more."""
    gpus = record.environment.gpus or ()
    more = tuple({**gpu, "uuid": f"{gpu['uuid']}-other"} for gpu in gpus)
    return with_environment([record], gpus=(*gpus, *more))[0]


def on_other_gpus(part=None, **changes):
    """Two worlds on different GPUs of one machine, the second with something else in a part of its environment."""
    one, other = all_gpus(measured()[0]), all_gpus(measured()[-2])
    devices = tuple(
        {when: {**state, "uuid": f"{state['uuid']}-other"} for when, state in device.items()}
        for device in other.timing.devices
    )
    there = dict(getattr(other.environment, part) or {}) if part else {}
    if part == "variables":
        changes = {"allowed": {**there["allowed"], **changes}}
    return [one, *with_environment([with_timing(other, devices=devices)], **({part: there | changes} if part else {}))]


def two_workers(**later):
    """Two workers of one world that timed on the same GPUs."""
    made = []
    for number, record in enumerate(measured()[:2]):
        launch = {**(record.environment.launch or {}), "worker": {"number": number}}
        made += with_environment([record], launch=launch)
    return [made[0], changed(made[1], **later)]


def held_back(*reasons):
    return first(lambda one: with_timing(one, devices=states(throttle=list(reasons))))


def some_unread():
    """One state without reasons hides no other."""
    one, two, three, *others = records()
    lost = tuple({when: {"sm_mhz": 1980} for when in ("before", "after")} for _ in range(4))
    slowed = with_timing(one, devices=states(throttle=["hardware thermal slowdown"]))
    return [slowed, with_timing(two, devices=lost), with_timing(three, devices=states(other_processes=3)), *others]


def dirty(**changes):
    kept_diff = {"file": "source.diff", "digest": f"sha256:{digest('diff')}", "left_out_bytes": 0}
    return ENVIRONMENT["git"] | {"dirty": True, "changed_files": 2, "kept_diff": kept_diff} | changes


def with_kernel(record, **changes):
    return changed(record, kernel=dataclasses.replace(record.kernel, **changes))


def of_two_worlds(one_changes=(), other_changes=(), schemas=(8, 8)):
    """Two worlds of one case with different PTX of different sources, and equal code, but for the changes."""
    pair = [record for record in records(2) if record.kernel is not None]
    moved = {"ptx_digest": f"sha256:{'2' * 64}", "source_digest": f"sha256:{'3' * 64}"}
    changes = (
        {"code_digest": "sha256:1", **dict(one_changes)},
        moved | {"code_digest": "sha256:1"} | dict(other_changes),
    )
    made = [with_kernel(record, **some) for record, some in zip(pair, changes, strict=True)]
    return [changed(record, schema=schema) for record, schema in zip(made, schemas, strict=True)]


def of_two_architectures():
    made = [record for record in records() if record.kernel is not None]
    other = dataclasses.replace(kernel("for another"), arch="sm_100a")
    fabric = dataclasses.replace(made[0].fabric, arch="sm_100a")
    return [*made[:2], *(changed(record, kernel=other, fabric=fabric) for record in made[2:])]


def without_digest(name):
    return [with_kernel(one, **{name: ""}) if one.kernel else one for one in records()]


def in_two_parts(**environment):
    """The last record of command0 is of a resumption; its environment has these parts."""
    made = records()
    at = max(place for place, one in enumerate(made) if one.request.command == "command0")
    later = changed(made[at], started="2026-01-01T00:00:00.5Z", ended="2026-01-01T00:00:01.5Z")
    (made[at],) = with_environment([with_request(later, resumed=1)], **environment)
    return made


def each_in(folder, change):
    """The set on disk, in which something was done with each file of a kind, or the first."""
    place = kept(folder)
    change(place)
    return place


def with_diff(folder):
    place = kept(folder, with_environment(records(), git=dirty()))
    (place / "command0" / "source.diff").write_text("diff", encoding="utf-8")
    return place


def remove_ptx(place):
    for path in sorted(place.rglob("*.ptx")):
        path.unlink()


def alone(**timing):
    return [with_timing(one, **timing) for one in records() if one.kernel is not None]


IN_2099 = {"started": "2099-01-01T00:00:00Z", "ended": "2099-01-01T00:00:01Z"}
NAMES = ["report.html", *(f"notes/{number}.txt" for number in range(50))]
UNTRACKED = {"dirty": True, "untracked_files": 1234, "untracked": NAMES[:50]}
OF_TWO = {"dirty": True, "untracked_files": 1, "untracked": ["x.py"]}
FOUR_RANKS_LOST = tuple({"before": {"not_captured": "no NVML"}, "after": {}} for _ in range(4))
SHARED = [{**gpu, "other_processes": 2 * (at == 0)} for at, gpu in enumerate(ENVIRONMENT["gpus"])]
OTHER_TORCH = {"packages": {**ENVIRONMENT["packages"], "torch": "3.0"}}
FORMAL = finding("formal", "an acquire")

SETS = {
    "software": {
        "other libraries": lambda: last(library="NCCL 9.9.9"),
        "other Python, of other cases": lambda: [
            records(2)[0], *with_environment([records(2)[3]], python={"version": "3.11.1"})],
        "a resumption": in_two_parts,
        "a resumption elsewhere": lambda: in_two_parts(**OTHER_TORCH),
    },
    "machine": {
        "other GPUs": on_other_gpus,
        "other GPUs, another CPU": lambda: on_other_gpus("host", cpu_model="Better"),
    },
    "variables": {
        "none": lambda: without(records(), "variables"),
        "no worker": lambda: {"said": answer(problem="no torch")},
        "other GPUs": on_other_gpus,
        "other GPUs, another variable": lambda: on_other_gpus("variables", NCCL_ALGO="Tree"),
        "other GPUs, as a launch sees them": lambda: on_other_gpus("variables", CUDA_VISIBLE_DEVICES="2,3"),
    },
    "clocks": {
        "a power cap": lambda: held_back("software power cap"),
        "a slowdown": lambda: held_back("hardware slowdown", "idle"),
        "unread": lambda: [with_timing(one, devices=()) for one in records()],
        "unread once": lambda: first(lambda one: with_timing(one, devices=FOUR_RANKS_LOST)),
        "without reasons": some_unread,
        "others on a GPU": lambda: with_environment(records(), gpus=SHARED),
        "workers at once": two_workers,
        "workers one after another": lambda: two_workers(started="2026-01-01T00:10:00Z", ended="2026-01-01T00:10:01Z"),
    },
    "configuration": {"none": lambda: [with_request(one, configuration=None) for one in records()]},
    "command": {
        "ended before": lambda: first(lambda one: changed(one, ended="2025-12-31T00:00:00Z")),
        "another duration": lambda: first(lambda one: changed(one, duration_s=9.0)),
        "to come": lambda: first(lambda one: changed(one, **IN_2099)),
        "on disk": kept,
    },
    "commit": {
        "changes that are elsewhere": lambda folder: kept(folder, with_environment(records(), git=dirty())),
        "changes": with_diff,
        "changes that were not kept": lambda: with_environment(records(), git=dirty(kept_diff=None)),
        "untracked files": lambda: with_environment(records(), git=ENVIRONMENT["git"] | UNTRACKED),
        "changes and untracked files": lambda: with_environment(records(), git=dirty(**OF_TWO)),
        "none": lambda: with_environment(records(), git=None, not_captured={"git": "not a git repository"}),
        "no name": lambda: with_environment(records(), git={"commit": ""}),
    },
    "kernels": {
        "moved lines": of_two_worlds,
        "other code": lambda: of_two_worlds((), {"code_digest": "sha256:2"}),
        "one older": lambda: of_two_worlds({"code_digest": None}, (), (2, 8)),
        "both older": lambda: of_two_worlds({"code_digest": None}, {"code_digest": None}, (2, 2)),
        "two architectures": of_two_architectures,
        "no PTX": lambda: without_digest("ptx_digest"),
        "no sources": lambda: without_digest("source_digest"),
        "on disk": kept,
        "edited PTX": lambda folder: each_in(
            folder, lambda place: sorted(place.rglob("*.ptx"))[0].write_text(PTX + " ", encoding="utf-8")),
        "PTX that is gone": lambda folder: each_in(folder, remove_ptx),
    },
    "data": {
        "wrong": lambda: [*records(), wrong(world=0)],
        "unchecked": lambda: [*records(), changed(records()[0], check=None, timing=None, reason=CHECK_WAS_OFF)],
        "other bits in a world": lambda: [*records()[:-2], changed(records()[-2], check=check("other")), records()[-1]],
        "a race": lambda: [raced(finding())],
        "a formal race": lambda: [raced(FORMAL)],
        "races not looked for": lambda: [unchecked()],
        "races looked for in one": lambda: [raced(), unchecked(algorithm="two_shot")],
    },
    "worlds": {"three": lambda: records(3)},
    "baselines": {
        "not in turns": lambda: first(lambda one: with_timing(one, interleaved_with=())),
        "none": lambda: alone(interleaved_with=()),
    },
    "limit": {
        "above it": lambda: first(lambda one: with_timing(one, limit=LinkLimit(0.1, 0.1, 1 << 20))),
        "none": lambda: [with_timing(record, limit=None) for record in records()],
    },
    "timing": {
        "otherwise": lambda: first(lambda one: with_timing(one, mode="eager")),
        "not asked": lambda: [with_request(record, configuration={}) for record in records()],
    },
    "samples": {
        "not asked": lambda: [with_request(record, configuration={}) for record in records()],
        **{str(row): lambda row=row: first(lambda one: with_timing(one, samples_us=(row,) * 4)) for row in (
            (10.123, 10.5), (10.1, 10.0, 10.2), (10.12, 10.5, 10.37), (10.123, 10.5, 10.37))},
    },
    "cases": {
        "a failure": lambda: [*records(), broken(Status.FAILED, size_bytes=4096)],
        **{f"jobs {jobs}": lambda folder, jobs=jobs: with_command(kept(folder), jobs=jobs) for jobs in (
            None, [1], [{"number": 0}], [{"number": "0", "cases": []}], [{"number": 0, "cases": [3]}], "all")},
        **{f"{jobs} jobs{gap and ' and a gap'}": lambda jobs=jobs, gap=gap: [
            with_request(one, jobs=jobs, job=int(bool(gap))) for one in records(1)]
            for jobs in (3, 10**12) for gap in ("", "a gap")},
        "no number of jobs": lambda: [with_request(record, jobs=None) for record in records()],
        "a job out of range": lambda: [with_request(records(1)[0], job=7), *records(1)[1:]],
    },
    "manifest": {"none": lambda folder: each_in(folder, lambda place: (place / "command0" / MANIFEST).unlink())},
    "replay": {"no configuration": lambda: [with_request(record, configuration=None) for record in records()]},
}  # fmt: skip


@pytest.mark.parametrize(("item", "name"), [(item, name) for item, some in SETS.items() for name in some])
def test_what_an_item_tells(item, name, tmp_path):
    make = SETS[item][name]
    made = make(tmp_path / "records") if make.__code__.co_varnames[:1] == ("folder",) else make()
    how = made if isinstance(made, dict) else {"members" if isinstance(made, list) else "place": made}
    tells(audited(**how), item)


@pytest.mark.parametrize("value", [5, "x", [1], [["x"]], {"a": 1}, True])
def test_readings_and_lists_of_another_kind_end_no_audit(value):
    devices = tuple({"before": value, "after": {"uuid": value, "throttle": value}} for _ in range(4))
    git = {"commit": value, "dirty": True, "changed_files": value, "untracked_files": value, "untracked": value}
    strange = with_environment(records(), git=git, gpus=[{"uuid": value}])
    members = [with_timing(one, devices=devices) if one.timing else one for one in strange]
    assert audited(members).verdict
    assert audited(with_environment(records(), git={"commit": "0" * 40, "dirty": True})).verdict


def test_what_nccl_was_asked_for_and_what_is_named_agree():
    settings = (OWN, RING_LL)
    plain, restricted = (nccl_record(one, KIB) for one in settings)
    for honest in (plain, restricted, made_of("nccl"), made_of("torch/two_shot")):
        assert [text for text in _run_by(honest) if "asked NCCL" in text] == []
    lies = (
        dataclasses.replace(plain, library=restricted.library),
        dataclasses.replace(restricted, library=plain.library),
        with_request(plain, configuration={"library": {"nccl_algo": "Star"}}),
    )
    for lie in lies:
        assert len([text for text in _run_by(lie) if "asked NCCL" in text]) == 1
