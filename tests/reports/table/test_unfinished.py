"""What is said of commands that an interrupt or a kill cut short: how many cases are missing, and what runs them."""

import dataclasses
import json

import pytest

from reports.table.unfinished import unfinished
from symlab.command import main
from tests.reports.synthetic import KIB, MIB, study

RECORDS = tuple(
    dataclasses.replace(record, request=dataclasses.replace(record.request, command="cut", job=0))
    for record in study(("one_shot",), (KIB, MIB), worlds=1)
)


def command(folder, *records, **changes):
    """A folder with these records of a command that was asked for RECORDS and two cases more."""
    folder.mkdir(parents=True)
    for index, record in enumerate(records):
        (folder / f"{index}.json").write_text(record.to_json(), encoding="utf-8")
    jobs = [{"number": 0, "cases": [one.id for one in RECORDS]}, {"number": 1, "cases": [RECORDS[0].id, "other"]}]
    document = {"command": "cut", "plan": {}, "jobs": jobs} | changes
    (folder / "command.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_a_command_that_was_cut_short_is_named_with_what_runs_the_rest(tmp_path):
    folder = command(tmp_path / "all of it" / "cut", *RECORDS)
    total = len(RECORDS) + 2
    (line,) = unfinished([tmp_path], RECORDS)
    assert line == f"2 of {total} cases of cut did not run: symlab resume '{folder}' runs them"
    (line,) = unfinished([folder], RECORDS[1:])
    assert line.startswith(f"3 of {total} cases")


def test_a_whole_command_is_not_named(tmp_path):
    jobs = [{"number": 0, "cases": [one.id for one in RECORDS]}]
    folder = command(tmp_path / "cut", *RECORDS, jobs=jobs)
    assert unfinished([folder, folder / "0.json"], RECORDS) == []


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"plan": {}, "command": "cut", "jobs": [1]}'])
def test_what_can_not_be_resumed_is_not_counted(tmp_path, text):
    folder = command(tmp_path / "cut", *RECORDS)
    (folder / "command.json").write_text(text, encoding="utf-8")
    assert unfinished([folder], RECORDS) == []


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["table"], ["table", "--format", "json"], ["audit", "--up-to", "0"]])
def test_table_and_audit_say_it_on_standard_error(verb, tmp_path, capsys):
    folder = command(tmp_path / "cut", *RECORDS)
    main([*verb, str(folder)])
    said = capsys.readouterr()
    line = f"symlab: 2 of {len(RECORDS) + 2} cases of cut did not run: symlab resume {folder} runs them"
    assert line in said.err.splitlines()
    assert line not in said.out
