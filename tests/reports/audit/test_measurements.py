"""Items 7 and 9 to 15: each finds what speaks against a measurement, and names what the records do not hold."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import CHECK_WAS_OFF, LinkLimit, Record
from reports.audit.items import Outcome
from reports.html import page
from tests.reports.audit.complete_set import (
    ENVIRONMENT,
    STATE,
    UUIDS,
    audited,
    changed,
    evidence,
    item,
    kept,
    points,
    records,
    tells,
    with_environment,
    with_request,
    with_timing,
)
from tests.reports.audit.invented_records import check, digest, wrong
from tests.reports.synthetic import with_case


def states(**changes: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"before": STATE | {"uuid": uuid}, "after": STATE | {"uuid": uuid} | changes} for uuid in UUIDS)


@pytest.mark.parametrize(
    ("reasons", "found"),
    [(["software power cap"], True), (["hardware slowdown", "idle"], True), (["idle"], False), ([], False)],
)
def test_7_a_gpu_that_was_held_back(reasons: list[str], found: bool) -> None:
    first, *others = records()
    audit = audited([with_timing(first, devices=states(throttle=reasons)), *others])
    tells(audit, 7)
    if found:
        tells(audit, 7)


def test_7_shared_gpus() -> None:
    gpus = [{**gpu, "other_processes": 2} for gpu in ENVIRONMENT["gpus"][:1]]
    tells(audited(with_environment(records(), gpus=gpus)), 7)


def test_7_clocks_that_nobody_read() -> None:
    first, *others = records()
    audit = audited([with_timing(first, devices=()), *others])
    tells(audit, 7)
    lost = tuple({"before": {"not_captured": "no NVML"}, "after": {}} for _ in range(4))
    audit = audited([with_timing(first, devices=lost), *others])
    tells(audit, 7)


def test_7_one_state_without_reasons_hides_no_other() -> None:
    first, second, third, *others = records()
    lost = tuple({when: {"sm_mhz": 1980} for when in ("before", "after")} for _ in range(4))
    slowed = with_timing(first, devices=states(throttle=["hardware thermal slowdown"]))
    shared = with_timing(third, devices=states(other_processes=3))
    audit = audited([slowed, with_timing(second, devices=lost), shared, *others])
    tells(audit, 7)


def test_9_wrong_data() -> None:
    audit = audited([*records(), wrong(world=0)])
    tells(audit, 9)


def test_9_unchecked_data() -> None:
    audit = audited([*records(), dataclasses.replace(records()[0], check=None, timing=None, reason=CHECK_WAS_OFF)])
    tells(audit, 9)


def test_9_bits_that_differ_across_worlds() -> None:
    members = records()
    audit = audited([*members[:-2], changed(members[-2], check=check("other")), members[-1]])
    tells(audit, 9)
    within = [changed(one, check=check(f"bits {number}", method="bound")) for number, one in enumerate(members)]
    tells(audited(within), 9)


def with_digests(rows: tuple[tuple[str, ...], ...], **changes: Any) -> Record:
    """A record whose check was written by somebody who did not look at the digests."""
    good = check(results=1, **changes)
    object.__setattr__(good, "output_digests", rows)
    return dataclasses.replace(records()[0], check=good)


@pytest.mark.parametrize("rows", [(("a", "a"), ("a", "a"), ("b", "b"), ("a", "a")), (("a", "b"),) * 4])
def test_9_digests_that_contradict_what_is_promised(rows: tuple[tuple[str, ...], ...]) -> None:
    hashed = tuple(tuple(map(digest, row)) for row in rows)
    tells(audited([with_digests(hashed)]), 9)


def test_9_counts_of_results_that_contradict_the_digests() -> None:
    free = {"ranks_equal_promised": False, "launches_equal_promised": False}
    hashed = tuple((digest(name),) * 2 for name in "aabb")
    tells(audited([with_digests(hashed, **free)]), 9)
    lying = dataclasses.replace(records()[0], check=check(results=2, **free))
    tells(audited([lying]), 9)


def test_9_digests_that_were_taken_away() -> None:
    row = (digest("a"),) * 2
    for rows in ((),) * 4, (row, (), row, row):
        tells(audited([with_digests(rows)]), 9)
    tells(audited([with_digests(())]), 9)
    for rows in (row, (), row, row), ((),) * 4:
        free = check(elements=1024, ranks_equal_promised=False)
        own = with_case(dataclasses.replace(records()[0], kernel=None, check=free), op="custom")
        object.__setattr__(free, "output_digests", rows)
        tells(audited([own]), 9)
    rooted = check(ranks_equal_promised=False, elements=1024)
    made = dataclasses.replace(records()[0], kernel=None, check=rooted)
    made = with_case(made, op="reduce", root=2)
    object.__setattr__(rooted, "output_digests", ((), (), row, ()))
    tells(audited([made]), 9)
    object.__setattr__(rooted, "output_digests", (row, (), (), ()))
    tells(audited([made]), 9)


def test_9_no_digests() -> None:
    members = [
        changed(one, schema=2, check=dataclasses.replace(one.check, input_digests=None, output_digests=None))
        for one in records()
        if one.check is not None
    ]
    audit = audited(members)
    tells(audit, 9)


def test_9_of_one_world_bits_across_worlds_do_not_apply() -> None:
    audit = audited(records(1))
    tells(audit, 9)
    assert "item 9" not in audit.verdict


def test_10_timed_otherwise_than_asked() -> None:
    first, *others = records()
    audit = audited([with_timing(first, mode="eager"), *others])
    tells(audit, 10)
    silent = [with_request(record, configuration={}) for record in records()]
    tells(audited(silent), 10)


def test_11_times_are_stated_whatever_they_are() -> None:
    """Redrawn noise and exchanged names look as measured times do: nothing that rests on times alone is VERIFIED."""
    audit = audited()
    tells(audit, 11)
    assert audit.verdict.startswith("DATA VERIFIED IN PART: data recomputed in 1 of 2; times stated, not verified; ")


def test_11_fewer_samples_than_asked_and_rounded_ones() -> None:
    first, *others = records()
    few = audited([with_timing(first, samples_us=((10.123, 10.5),) * 4), *others])
    tells(few, 11)
    rounded = audited([with_timing(first, samples_us=((10.1, 10.0, 10.2),) * 4), *others])
    tells(rounded, 11)
    rounded = audited([with_timing(first, samples_us=((10.12, 10.5, 10.37),) * 4), *others])
    tells(rounded, 11)
    few = audited([with_timing(record, samples_us=((10.1,),) * 4) for record in records()])
    tells(few, 11)
    silent = audited([with_request(record, configuration={}) for record in records()])
    tells(silent, 11)


def test_11_samples_that_were_taken_until_the_median_was_precise() -> None:
    first, *others = records()
    asked = {"timing": {**first.request.configuration["timing"], "samples": 6, "precision": 0.01}}
    first = with_request(first, configuration={**first.request.configuration, **asked})

    def found(row: tuple[float, ...]) -> str:
        ranks = tuple(tuple(us - rank / 1024 for us in row) for rank in range(4))
        return evidence(audited([with_timing(first, samples_us=ranks), *others]), 11, Outcome.FINDING)

    assert found((10.123,) * 12) == ""
    assert "7 samples, asked were parts of 6, 10 at most" in found((10.123,) * 7)
    assert "66 samples, asked were parts of 6, 10 at most" in found((10.123,) * 66)
    assert "12 samples with a median to " in found((10.123, 12.5) * 6)
    assert found((10.123, 12.5) * 30) == "", "all that there may be"


def test_12_a_report_with_other_figures(tmp_path: Path) -> None:
    place = kept(tmp_path / "records", records(1))
    assert item(audited(place=place), 12).outcome is Outcome.DOES_NOT_APPLY
    path = place / "command0" / "report.html"
    text = page(records(1))
    path.write_text(text, encoding="utf-8")
    assert "of 2 cases computed again, those embedded for programs; 0 differ" in evidence(
        audited(place=place), 12, Outcome.VERIFIED
    )
    path.write_text(re.sub(r'("median_us": ?)10\.123', r"\g<1>9.123", text), encoding="utf-8")
    assert "median_us is 9.123, the samples give 10.123" in evidence(audited(place=place), 12, Outcome.FINDING)
    path.write_text(page(records(2)), encoding="utf-8")
    assert "a report of other records" in evidence(audited(place=place), 12, Outcome.NOT_COMPARABLE)
    path.write_text("<html></html>", encoding="utf-8")
    assert "not a report" in evidence(audited(place=place), 12, Outcome.NOT_COMPARABLE)


@pytest.mark.slow
def test_12_a_report_beside_a_folder_is_of_that_folder(tmp_path: Path) -> None:
    """Where `reports html` puts it: `<folder>.html`."""
    place = kept(tmp_path / "records", records(2))
    path = place / "command0.html"
    path.write_text(page(records(1)), encoding="utf-8")
    good = "of 2 cases computed again, those embedded for programs; 0 differ"
    assert f"command0.html: 76 figures {good}" in evidence(audited(place=place), 12, Outcome.VERIFIED)
    assert good in evidence(audited(records(1), place=place / "command0"), 12, Outcome.VERIFIED)
    path.write_text(page(records(2)), encoding="utf-8")
    other = audited(records(1), place=place / "command0")
    assert "a report of other records" in evidence(other, 12, Outcome.NOT_COMPARABLE)
    for figures in ("[1]", "[" * 100_000, '{"a": 1}'):
        path.write_text(re.sub(r'(id="figures">).*?(</script>)', rf"\g<1>{figures}\2", page(records(1)), flags=re.S))
        of_figures = evidence(audited(records(1), place=place / "command0"), 12, Outcome.FINDING)
        assert "the report's figures" in of_figures


def test_12_a_replays_report_is_of_more_than_these_records(tmp_path: Path) -> None:
    place = kept(tmp_path / "records", records(1))
    (place / "report.html").write_text(page(records(2)), encoding="utf-8")
    assert "a report of other records" in evidence(audited(place=place), 12, Outcome.NOT_COMPARABLE)
    (place / "verdict.json").write_text('{"exit_code": 0, "verdict": "x"}', encoding="utf-8")
    assert "too: of the command command1; not drawn again" in evidence(audited(place=place), 12, Outcome.NOT_COMPARABLE)
    (place / "report.html").write_text(page(records(1)).replace("10.12", "9.12"), encoding="utf-8")
    assert "it says '1 KiB one_shot 9.12 0.2 0.50', which" in evidence(audited(place=place), 12, Outcome.FINDING)


def test_13_too_few_worlds() -> None:
    assert item(audited(records(4)), 13).outcome is Outcome.CAPTURED
    audit = audited(records(3))
    tells(audit, 13)


def test_14_baselines_that_were_not_in_turns() -> None:
    first, *others = records()
    audit = audited([with_timing(first, interleaved_with=()), *others])
    tells(audit, 14)
    alone = audited([record for record in records() if record.kernel is not None])
    tells(alone, 14)


def test_15_above_the_bound() -> None:
    limit = LinkLimit(0.1, 0.1, 1 << 20)
    first, *others = records()
    audit = audited([with_timing(first, limit=limit), *others])
    tells(audit, 15)
    none = audited([with_timing(record, limit=None) for record in records()])
    tells(none, 15)


def test_11_two_modes_and_lag_1_of_samples_are_named() -> None:
    """The 3 samples of the invented set are too few for either, so that nothing is said."""
    assert not any("two modes" in text or "lag-1" in text for _, text in points(audited(), 11))
    members = records()
    levels = [10 + 2 * (at // 10 % 2) + 0.01 * (at % 7) for at in range(60)]
    members[0] = with_timing(members[0], samples_us=(tuple(levels),) * 4)
    tells(audited(members), 11)
    steady = with_timing(members[0], samples_us=(tuple(10 + 0.1 * (at * 7 % 10) for at in range(60)),) * 4)
    tells(audited([steady, *members[1:]]), 11)
