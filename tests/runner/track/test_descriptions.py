"""What descriptions say of runs."""

from runner.track.descriptions import command_note, outcome
from tests.golden import same_text
from tests.reports.synthetic import KIB, record, refused


def test_an_outcome_counts():
    asked = [([record()], 0), ([record(), refused()], 0), ([record()], 2), ([], 0)]
    same_text("\n".join(outcome(records, missing) for records, missing in asked))


def test_a_command_has_its_table_if_that_is_short_enough():
    short = command_note([record()], 0, "python -m runner", "LINKS", ["table.md: no room"])
    assert short.startswith("LINKS\n\n**1 case: 1 passed**\n\n`python -m runner`\n- not there: table.md: no room\n\n")
    assert "| size |" in short
    many = [record(size_bytes=KIB + 4 * number) for number in range(300)]
    long = command_note(many, 0, "", "LINKS", [])
    assert "table.md" in long
    assert len(long) < 1000


def test_a_description_is_never_longer_than_a_tag():
    assert len(command_note([record()], 0, "x" * 9000, "LINKS", [])) <= 5000
