"""algorithms=best in records that are replayed: what was chosen then, whatever a table has today."""

from dataclasses import replace

from symlab.evidence.replay.expected_cases import RecordedChooser
from tests.reports.synthetic import record, with_request


def test_records_say_what_best_was():
    made = with_request(record("ll@t128b4l8", 4096), kernel={"chosen": {"by": "best", "algorithm": "ll@t128b4l8"}})
    chooser = RecordedChooser((record("two_shot", 4096), made))
    asked = replace(made.case, algorithm="best")
    assert chooser.name_for(asked) == "ll@t128b4l8"
    assert chooser.name_for(replace(asked, size_bytes=8192)) == "best", "an id that no record has: it is missing"
