"""Measurements, and what speaks against them: items 7 and 9 to 15 of the checklist.

Clocks, checked data, timing method, raw samples and the figures derived from them, worlds, baselines, the link's limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.finding import summary_of
from cases.record.record import Check, Record, Status, Timing
from reports import publish
from reports.audit import bound_predictions, shown
from reports.audit.data import Data, data_of
from reports.audit.items import Ground, Item, Outcome, Point, captured_or, listed, verified_or
from reports.audit.material import Material, values_at
from reports.audit.modes import modes_of
from reports.audit.order import samples_lag1
from reports.audit.reruns import data_points
from reports.audit.shown import text_of
from reports.audit.shown_pictures import figure_points
from reports.audit.statistics import LEAST_WORLDS, world_medians, world_of
from reports.record import bundle
from reports.record.intervals import MOST_PARTS, half_width
from reports.table.compare import is_baseline, limits
from reports.table.text import counted

_PLACES = {1: "tenths", 2: "hundredths"}
"""Decimal places at which unrounded samples do not all end: CUDA events give binary milliseconds."""

_LEAST_SAMPLES = 10
"""Minimum number of samples, over all ranks, to call a timing rounded: fewer may all be round by chance."""

HARMLESS = frozenset({"idle", "application clocks setting", "sync boost", "display clocks setting"})
"""Throttle reasons that do not invalidate a timing: the GPU was idle, or its clocks were set."""

_CLOCKS = ("sm_mhz", "memory_mhz", "temperature_c", "power_w", "throttle")

STATED = (
    "times are stated, and by no software verified: samples with redrawn noise, and times under another contestant's "
    "name, look as measured ones do"
)

SIMULATED = "nothing was timed: the set has no clock of real hardware"


def clocks(material: Material) -> Item:
    """Item 7: clocks, temperature, power, throttling and other processes, before and after each timing."""
    name = "clocks and throttling"
    if not material.timed:
        return Item(7, name, (_untimed(material),))
    without, lacking, slowed, shared = [], set[str](), [], []
    for record in material.timed:
        states = list(_states(record))
        without += [record.id] if not states else []
        for rank, when, state in states:
            lacking |= {one for one in _CLOCKS if one not in state}
            said = state.get("throttle") or []
            reasons = [one for one in map(str, said if isinstance(said, list) else [said]) if one not in HARMLESS]
            slowed += [f"{record.id}, rank {rank}, {when}: {', '.join(reasons)}"] if reasons else []
            others = state.get("other_processes")
            shared += [f"{record.id}, rank {rank}, {when}: {others} other processes"] if others else []
    total = len(material.timed)
    points = []
    if total > len(without):
        there = ", ".join(one for one in _CLOCKS if one not in lacking)
        points.append(
            Point(Outcome.CAPTURED, f"before and after each of {counted(total - len(without), 'timing')}: {there}")
        )
    if without or lacking:
        what = [f"{counted(len(without), 'timing')} without any"] if without else []
        what += [f"{', '.join(sorted(lacking))} of some"] if lacking else []
        points.append(Point(Outcome.NOT_CAPTURED, "; ".join(what)))
    is_known = total > len(without) and "throttle" not in lacking
    if slowed or is_known:
        good = f"0 of {counted(total - len(without), 'timing')} on a GPU that was held back"
        points.append(captured_or(slowed, good, 2 * sum(len(_ranks(record)) for record in material.timed), "states"))
    others_too = _shared(material, shared)
    if others_too.outcome is Outcome.FINDING or is_known:
        points.append(others_too)
    return Item(7, name, tuple(points))


def _ranks(record: Record) -> tuple[dict[str, Any], ...]:
    """Return each rank's states of its GPU, by "before" and "after"."""
    return record.timing.devices if record.timing else ()


def _shared(material: Material, shared: list[str]) -> Point:
    """Whether other processes used the GPUs. shared: the findings of the timings themselves."""
    said = [state for record in material.timed for _, _, state in _states(record) if "other_processes" in state]
    gpus = [gpu for one in material.environments for gpu in values_at(one, "gpus")]
    beside = sorted(
        f"{gpu.get('uuid', 'a GPU')}: {gpu['other_processes']} other processes"
        for gpu in [one for some in gpus for one in (some if isinstance(some, list) else [some])]
        if isinstance(gpu, dict) and gpu.get("other_processes")
    )
    if shared or beside:
        return Point(Outcome.FINDING, f"shared GPUs: {listed([*shared, *beside])}")
    if said or any(values_at(one, "gpus.other_processes") for one in material.environments):
        return Point(Outcome.CAPTURED, "no other process used the GPUs")
    return Point(Outcome.NOT_CAPTURED, "whether other processes used the GPUs")


def data(material: Material) -> Item:
    """Item 9: the checks of the data, the digests of outputs, and unchecked records."""
    checked = [record for record in material.records if record.check is not None]
    unchecked = [one.id for one in material.records if one.status is Status.PASSED and not one.verified]
    points = []
    if checked:
        wrong = [f"{one.id}: {'; '.join(one.check.faults)}" for one in checked if one.check and one.check.faults]
        elements = sum(record.check.elements for record in checked if record.check)
        good = f"{counted(len(checked), 'record')}, {counted(elements, 'element')} compared; 0 wrong"
        points.append(captured_or(wrong, good, len(checked), "records are wrong"))
        points.append(_digests(checked))
        points.append(_across_worlds(material))
    if unchecked:
        says = f"{counted(len(unchecked), 'record')} passed unchecked: {listed(unchecked)}"
        points.append(Point(Outcome.NOT_CAPTURED, says))
    if material.timed:
        # A record can't be built with a timing of unchecked data: here it is counted.
        elements = sum(one.timing.checked_before + one.timing.checked_after for one in material.timed if one.timing)
        says = f"{counted(len(material.timed), 'timing')}, each checked: {elements:,} elements right before and after"
        points.append(Point(Outcome.CAPTURED, says))
    points += [] if points else [Point(Outcome.NOT_CAPTURED, "no case has a check")]
    if not checked:
        return Item(9, "data right", (*points, *_races(material)))
    return Item(9, "data right", (*data_points(material), *points, *_races(material)))


def _races(material: Material) -> Iterator[Point]:
    """Yield what is known of races: nothing of cases on GPUs, which can't be checked for them."""
    simulated = [one for one in material.records if one.fabric is not None and one.fabric.simulated]
    ran = [one for one in simulated if one.status is not Status.REFUSED]
    checked = [record for record in ran if record.findings is not None]
    if lacking := [one.id for one in ran if one.findings is None and _asked_for_races(one)]:
        says = f"{counted(len(lacking), 'case')} without findings, and check.races asked for them: {listed(lacking)}"
        yield Point(Outcome.FINDING, says)
    if not checked:
        if ran:
            yield Point(Outcome.DOES_NOT_APPLY, "races: no case was checked for them (check.races)")
        return
    if unchecked := [record.id for record in ran if record.findings is None]:
        says = f"{counted(len(unchecked), 'case')} beside checked ones not checked for races: {listed(unchecked)}"
        yield Point(Outcome.NOT_CAPTURED, says)
    bad = [f"{record.id}: {record.race.sentence()}" for record in checked if record.race is not None]
    found = summary_of(one for record in checked for one in record.findings or ())
    good = f"{counted(len(checked), 'case')} checked for races; found: {found}"
    if bad:
        yield Point(Outcome.FINDING, f"{len(bad)} of {counted(len(checked), 'case')} with races: {listed(bad)}")
    else:
        yield Point(Outcome.CAPTURED, good)
    again = (material.again or {}).get("races")
    if again is None:
        why = material.problem or "the worker says nothing of them"
        yield Point(Outcome.NOT_COMPARABLE, f"races: the cases did not run again: {why}")
        return
    if again["again"]:
        different = [f"{case}: {what}" for case, what in again["different"]]
        good = f"{counted(again['again'], 'case')} run again with the race checker: the same findings"
        share = again["again"], len(checked)
        what = "cases have other races when they run again"
        yield verified_or(different, good, again["again"], what, Ground.RECOMPUTED, share)
    if others := [f"{case}: {why}" for case, why in (*again["left_out"], *again["not_comparable"])]:
        says = f"races: {counted(len(others), 'case')} did not run again: {listed(others)}"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _asked_for_races(record: Record) -> bool:
    """Whether a case ran to its end, and its configuration asked for a race checker: then the record has findings."""
    configuration = record.request.configuration or {}
    asked, algorithms = configuration.get("check"), configuration.get("algorithms")
    if record.status not in (Status.PASSED, Status.WRONG) or not isinstance(asked, dict):
        return False
    is_brought = bool(configuration.get("custom")) or (isinstance(algorithms, list) and ":" in str(algorithms))
    return asked.get("races", False) is True or (asked.get("races", False) is None and is_brought)


def _digests(checked: list[Record]) -> Point:
    """Whether output digests are equal where ranks or launches promise equality, and agree with the check."""
    found, looked_at = [], 0
    for record in checked:
        assert record.check is not None
        if record.check.output_digests is None:
            continue
        looked_at += 1
        found += [f"{record.id}: {problem}" for problem in (*_lacking(record), *_contradictions(record.check))]
    if not looked_at:
        return Point(Outcome.NOT_CAPTURED, "digests of outputs: the records hold none (schema 2)")
    good = f"output digests of {counted(looked_at, 'record')}: equal on all ranks and launches that promise it"
    return captured_or(found, good, looked_at, "records contradict their digests")


def _lacking(record: Record) -> Iterator[str]:
    """Yield a sentence for each missing digest. Every rank has an output, but for reduce, where only the root has, and
    for a kernel of a user's, whose reference may give something of some ranks only."""
    assert record.check is not None
    size = record.case.world_size
    for what, rows in (("input", record.check.input_digests), ("output", record.check.output_digests)):
        if len(rows or ()) != size:
            yield f"{what} digests of {counted(len(rows or ()), 'rank')}, the case has {size}"
    given = [record.case.root] if record.case.op == "reduce" else range(size)
    rows = record.check.output_digests or ()
    without = [rank for rank in given if rank < len(rows) and not rows[rank]]
    if without and (record.case.op != "custom" or len(without) == size):
        yield f"no output digest of rank {', '.join(map(str, without))}, which the op gives something"


def _contradictions(check: Check) -> Iterator[str]:
    """Yield a sentence for each statement of a check that its output digests contradict."""
    rows = [set(row) for row in check.output_digests or () if row]
    if check.launches_equal_promised and any(len(row) > 1 for row in rows):
        yield "launches gave other bits although the same are promised"
    firsts = {row[0] for row in check.output_digests or () if row}
    if check.ranks_equal_promised and len(firsts) > 1:
        yield f"ranks have {len(firsts)} different results although the same is promised"
    if check.results is not None and check.ranks_equal != (check.results == 1):
        yield f"ranks_equal is {check.ranks_equal}, and there are {check.results} results"
    if check.results is not None and firsts and len(firsts) != check.results:
        yield f"{check.results} results are counted, and the digests are of {len(firsts)}"


def _across_worlds(material: Material) -> Point:
    """Whether the worlds of a case have the same output bits, where the method promises bits."""
    differ, compared, within = [], 0, 0
    shared = with_digests = False
    for case, records in material.by_case.items():
        shared |= len({world_of(one) for one in records if one.verified}) > 1
        good = [one for one in records if one.verified and one.check and one.check.output_digests is not None]
        if len({world_of(one) for one in good}) < 2:
            continue
        with_digests = True
        found = data_of(good[:1], good[1:])
        compared += found.data is not Data.NOT_COMPARABLE
        within += found.data is Data.WITHIN_BOUND
        differ += [f"{case}: {found.remark}"] if found.data is Data.DIFFERENT else []
    if not shared:
        return Point(Outcome.DOES_NOT_APPLY, "bits across worlds: no case passed in two worlds")
    if not with_digests:
        return Point(Outcome.NOT_CAPTURED, "bits across worlds: no case has digests of outputs from two worlds")
    if not compared:
        return Point(Outcome.NOT_COMPARABLE, "bits across worlds: nothing is promised of those that two worlds have")
    beside = f", {within} of them differ within their bound" if within else ""
    return captured_or(
        differ, f"{counted(compared, 'case')} compared across worlds{beside}; 0 differ", compared, "cases"
    )


def method(material: Material) -> Item:
    """Item 10: how calls were timed, against what the configuration asked for."""
    name = "timing method"
    if not material.timed:
        return Item(10, name, (_untimed(material),))
    found = dict.fromkeys(
        f"{one.mode}, window {one.window}, L2 {one.l2}, {one.warmup_calls} warm-up calls, {one.calls_per_sample} calls "
        f"a sample over {one.slots} slots"
        for one in (record.timing for record in material.timed)
        if one is not None
    )
    points = [Point(Outcome.CAPTURED, f"of {counted(len(material.timed), 'timing')}: {listed(found, 2)}")]
    other, asked_of = [], 0
    for record in material.timed:
        assert record.timing is not None
        asked = _asked_timing(record)
        wanted: dict[str, Any] = {key: asked[key] for key in ("mode", "window", "l2") if key in asked}
        wanted |= {"calls_per_sample": asked["calls"]} if asked.get("calls") else {}
        asked_of += bool(wanted)
        other += [
            f"{record.id}: {key} {getattr(record.timing, key)}, asked was {value}"
            for key, value in wanted.items()
            if getattr(record.timing, key) != value
        ]
    if asked_of:
        points.append(captured_or(other, f"as asked for in {counted(asked_of, 'configuration')}", asked_of, "values"))
    else:
        points.append(Point(Outcome.NOT_CAPTURED, "what was asked for: no configuration says"))
    return Item(10, name, tuple(points))


def samples(material: Material) -> Item:
    """Item 11: the number of raw samples, whether they look rounded, their modes, and how neighbours resemble."""
    name = "raw samples"
    if not material.timed:
        return Item(11, name, (_untimed(material),))
    count, asked_of, few, rounded = 0, 0, [], []
    for record in material.timed:
        assert record.timing is not None
        rows = record.timing.samples_us
        count += sum(map(len, rows))
        asked = _asked_timing(record).get("samples")
        asked_of += isinstance(asked, int)
        if isinstance(asked, int) and (found := _other_number(record.timing, asked, _asked_timing(record))):
            few.append(f"{record.id}: {found}")
        places = next((n for n in (1, 2) if all(value == round(value, n) for row in rows for value in row)), 0)
        if places and _is_many(record):
            rounded.append(f"{record.id}: all samples are whole {_PLACES[places]} of a microsecond")
    total = len(material.timed)
    points = [
        Point(Outcome.CAPTURED, f"{counted(count, 'sample')} of {counted(total, 'timing')}, every rank's"),
        Point(Outcome.CAPTURED, STATED),
    ]
    if asked_of:
        good = f"as many a rank as were asked for in {counted(asked_of, 'timing')}"
        points.append(captured_or(few, good, asked_of, "timings have other numbers"))
    if asked_of < total:
        points.append(Point(Outcome.NOT_CAPTURED, f"how many were asked for: of {counted(total - asked_of, 'timing')}"))
    several = sum(map(_is_many, material.timed))
    if several:
        good = f"no one of {counted(several, 'timing')} has only whole hundredths of a microsecond"
        points.append(captured_or(rounded, good, several, "timings look rounded"))
    return Item(11, name, (*points, *_shapes(material.timed)))


def _other_number(timing: Timing, asked: int, request: Mapping[str, Any]) -> str:
    """Return in what a timing's number of samples is not what was asked for; "" if it is that."""
    count, precision = len(timing.samples_us[0]), request.get("precision")
    if not isinstance(precision, float):
        return "" if count == asked else f"{counted(count, 'sample')}, asked were {asked}"
    if count % asked or count > MOST_PARTS * asked:
        return f"{counted(count, 'sample')}, asked were parts of {asked}, {MOST_PARTS} at most"
    width = half_width(timing.per_iteration_us)
    if count < MOST_PARTS * asked and width > precision:
        return f"{counted(count, 'sample')} with a median to {width:.1%}, asked was {precision:.1%}"
    return ""


def _shapes(timed: Sequence[Record]) -> Iterator[Point]:
    """Yield which timings have two modes, and the lag-1 correlations of samples, of timings with enough samples."""
    found = [(record, record.timing.per_iteration_us) for record in timed if record.timing is not None]
    correlations = [(one, record.id) for record, times in found if (one := samples_lag1(times)) is not None]
    if not correlations:
        return
    two = [f"{record.id}: {modes.text('samples')}" for record, times in found if (modes := modes_of(times)) is not None]
    total = counted(len(found), "timing")
    yield Point(Outcome.CAPTURED, f"two modes (dip test): {len(two)} of {total}{': ' if two else ''}{listed(two)}")
    strongest, case = max(correlations, key=lambda one: abs(one[0]))
    middle = statistics.median(one for one, _ in correlations)
    says = f"lag-1 correlation of samples: median {middle:+.2f}, strongest {strongest:+.2f} ({case})"
    yield Point(Outcome.CAPTURED, says)


def _is_many(record: Record) -> bool:
    """Whether a record has enough samples to tell rounded ones from chance."""
    return record.timing is not None and sum(map(len, record.timing.samples_us)) >= _LEAST_SAMPLES


def figures(material: Material) -> Item:
    """Item 12: reports, tables and figures beside the records, made again from them. A published machine's picture must
    name the digest of the records. Predictions are weighed and simulated again."""
    points: list[Point] = bound_predictions.points(material)
    for place in material.places:
        machine = _published(place)
        if place.is_dir():
            points += shown.beside(place, bundle.read([place]), is_published=machine is not None)
        if machine is not None:
            points += _made_again(*machine)
    says = "no table or report beside the records: figures are computed whenever they are shown"
    return Item(12, "derived figures", tuple(points) or (Point(Outcome.DOES_NOT_APPLY, says),))


def _published(place: Path) -> tuple[Path, str] | None:
    """Return the project's folder and the machine's name if a place is a folder of reports/published/, else None."""
    place = place.resolve()
    root = place.parents[2] if len(place.parents) > 2 else None
    if root is None or place.parent != root / publish.PLACE or not (root / "README.md").is_file():
        return None
    return (root, place.name) if any(place.glob(f"*{bundle.SUFFIX}")) else None


def _made_again(root: Path, machine: str) -> list[Point]:
    """Compare a published machine's texts with those that its records give, and its figure with the records' digest."""
    records = bundle.read([root / publish.PLACE / machine])
    texts = publish.machine_texts(root, machine, records)
    changed = [f"{name} is not what the records give" for name, (there, wanted) in texts.items() if there != wanted]
    good = f"{counted(len(texts), 'text')} made again from the samples that are stated; 0 differ"
    pictures = publish.figures(root, {machine: records})
    outdated = [f"{path.name} was not drawn from these records" for path in publish.outdated(pictures)]
    says = f"{publish.FIGURE} names the digest of these records"
    return [
        verified_or(changed, good, len(texts), "texts", Ground.RECOMPUTED),
        captured_or(outdated, says, len(pictures), "pictures"),
        *(
            point
            for path, some in pictures.items()
            if path.is_file()
            for point in figure_points(path.name, text_of(path), some)
        ),
    ]


def replicates(material: Material) -> Item:
    """Item 13: the number of worlds of each timed case."""
    name = "number of worlds"
    count = counted(len(material.worlds), "world")
    if not material.timed:
        return Item(13, name, (Point(Outcome.CAPTURED, f"{count} (nothing is timed, so none has to be enough)"),))
    per_case = [len(world_medians(records)) for records in material.by_case.values() if world_medians(records)]
    few = [number for number in per_case if number < LEAST_WORLDS]
    says = f"{min(per_case)} to {max(per_case)} a case" if min(per_case) != max(per_case) else f"{per_case[0]} a case"
    points = [Point(Outcome.CAPTURED, f"{count}, {says}")]
    if few:
        why = f"{len(few)} of {counted(len(per_case), 'timed case')} with fewer than {LEAST_WORLDS} worlds"
        points.append(Point(Outcome.NOT_COMPARABLE, f"{why}: no verdict on speed can rest on them"))
    else:
        points.append(Point(Outcome.CAPTURED, f"{LEAST_WORLDS} or more worlds for every timed case"))
    return Item(13, name, tuple(points))


def baselines(material: Material) -> Item:
    """Item 14: whether our kernels were timed in turns with every baseline of their size and session."""
    name = "baselines, interleaved"
    if not material.timed:
        return Item(14, name, (_untimed(material),))
    beside: dict[tuple[object, ...], list[Record]] = {}
    for record in material.timed:
        key = (world_of(record), record.request.job, record.case.op, record.case.dtype)
        beside.setdefault((*key, record.case.world_size, record.case.size_bytes), []).append(record)
    apart, together, alone = [], 0, 0
    for members in beside.values():
        theirs = {one.case.algorithm for one in members if is_baseline(one)}
        for record in members:
            assert record.timing is not None
            if is_baseline(record):
                continue
            missing = theirs - set(record.timing.interleaved_with)
            apart += [f"{record.id}: {', '.join(sorted(missing))} not in turns with it"] if missing else []
            together += bool(theirs and not missing)
            alone += not theirs
    points = []
    if together or apart:
        good = f"{counted(together, 'timing')} of ours in turns with all baselines of its size and session"
        points.append(captured_or(apart, good, together + len(apart), "timings"))
    if alone:
        points.append(Point(Outcome.NOT_CAPTURED, f"{counted(alone, 'timing')} of ours without any baseline beside it"))
    return Item(14, name, tuple(points) or (Point(Outcome.DOES_NOT_APPLY, "no kernel of ours was timed"),))


def bound(material: Material) -> Item:
    """Item 15: bus bandwidth against the measured limit of the link."""
    name = "below the physical bound"
    if not material.timed:
        return Item(15, name, (_untimed(material),))
    above, shares, unknown = [], [], 0
    for record in material.timed:
        assert record.timing is not None
        share = record.timing.of_limit(record.case.size_bytes)
        if record.timing.limit is None:
            unknown += 1
        elif share is not None:
            shares.append(share)
            above += [f"{record.id}: busbw is {share:.1%} of the limit"] if share > 1 else []
    points = []
    if shares:
        known = [one.gbps for one in limits(material.timed)]
        good = f"busbw of {counted(len(shares), 'timing')} is at most {max(shares):.1%} of its measured limit"
        good += f" ({min(known):.1f} to {max(known):.1f} GB/s)"
        points.append(captured_or(above, good, len(shares), "timings above it"))
    if unknown:
        points.append(Point(Outcome.NOT_CAPTURED, f"the link's limit of {counted(unknown, 'timing')}"))
    return Item(15, name, tuple(points) or (Point(Outcome.DOES_NOT_APPLY, "what was timed moves no data"),))


def _untimed(material: Material) -> Point:
    """The point of a set without timings: NOT CAPTURED if it ran on GPUs, else the item does not apply."""
    if material.on_gpus:
        return Point(Outcome.NOT_CAPTURED, "nothing was timed, although it ran on GPUs")
    return Point(Outcome.DOES_NOT_APPLY, SIMULATED)


def _states(record: Record) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (rank, "before" or "after", the readings) for each state of a GPU that a timing holds."""
    for rank, device in enumerate(_ranks(record)):
        for when, state in device.items():
            if isinstance(state, dict):
                yield rank, when, state


def _asked_timing(record: Record) -> dict[str, Any]:
    """Return the timing section of a record's configuration, empty if it has none."""
    asked = (record.request.configuration or {}).get("timing")
    return asked if isinstance(asked, dict) else {}
