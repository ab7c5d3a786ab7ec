"""What a section of a table is called, and which records stand in it."""

from reports.table.compare import accumulator, heading, split
from reports.table.table import plain
from reports.table.timed_table import flat
from tests.golden import same_text
from tests.reports.synthetic import KIB, record, with_case


def of(**changes):
    """A record whose case has these changes."""
    return with_case(record(), **changes)


MOVES = {"op": "all_gather", "reduction": "none"}
HEADINGS = [
    {},
    {"root": 0, "offset": 0},
    {"op": "reduce", "reduction": "max", "accumulator": "native", "root": 3},
    {**MOVES, "accumulator": "none", "offset": 5},
    {**MOVES, "accumulator": "library"},
]


def test_a_heading_says_what_an_op_does():
    same_text("\n".join(heading(of(**changes)) for changes in HEADINGS))


def test_a_baseline_stands_beside_the_accumulator_that_auto_became():
    asked = {"configuration": {"accumulator": "auto"}, "resolved": {"accumulator": "float32"}, "overrides": []}
    both = [record("one_shot", request=asked), record("nccl", request=asked)]
    assert [accumulator(one) for one in both] == ["float32", "float32"]
    (section,), _ = split(both)
    assert len(section.records) == 2


def test_a_baseline_of_before_says_what_its_configuration_said():
    assert accumulator(record("nccl", request={"configuration": {"accumulator": "native"}})) == "native"
    assert accumulator(record("nccl", request={})) == "library"


def test_roots_and_offsets_are_sections_of_their_own_and_values_of_their_own():
    records = [of(op="broadcast", reduction="none", root=root) for root in (0, 3)]
    sections, _ = split(records)
    assert len(sections) == 2
    assert [(one["root"], one["offset"]) for one in flat([], sections)] == [(0, 0), (3, 0)]


def test_an_empty_message_has_a_time_and_no_share_of_the_link():
    empty = record(size_bytes=0, timing={"slot_bytes": 0, "checked_before": 0, "checked_after": 0})
    text = plain([empty, record(size_bytes=KIB)])
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["0"])
    assert " 0.00 " in line
    assert line.split()[-1] != "0.0"
