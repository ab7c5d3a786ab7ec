"""What descriptions say of runs."""

from runner.track.descriptions import command_note
from tests.golden import same_text
from tests.reports.synthetic import record, refused


def test_a_note_says_how_it_went():
    asked = [([record()], 0), ([record(), refused()], 0), ([record()], 2), ([], 0)]
    same_text("\n\n".join(command_note(*one, "python -m runner", "LINKS", ["table.md: no room"]) for one in asked))


def test_a_description_is_never_longer_than_a_tag():
    assert len(command_note([record()], 0, "x" * 9000, "LINKS", [])) <= 5000
