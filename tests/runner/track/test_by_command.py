"""The records that a command line names, by command."""

from reports.record import bundle
from runner.records.store import Store
from runner.track.by_command import by_command
from tests.reports.synthetic import KIB, record


def test_a_missing_environment_is_said_once_for_all_its_records(tmp_path):
    store = Store(tmp_path / "command0")
    for power in range(3):
        store.write(record("one_shot", KIB << power))
    commands, problems = by_command([tmp_path])
    assert ([len(kept) for kept in commands.values()], problems) == ([3], [])
    environment = next(path for path in (store.folder / "shared").iterdir() if "overrides" not in path.read_text())
    environment.unlink()
    commands, (problem,) = by_command([tmp_path])
    assert commands == {}
    assert f".json and 2 more records: {environment} is missing" in problem


def test_records_of_a_bundle_have_names_of_their_own(tmp_path):
    records = [record("one_shot", KIB << power) for power in range(3)]
    bundle.write(records, tmp_path / "all.jsonl.xz")
    (kept,) = by_command([tmp_path])[0].values()
    assert [one.record for one in kept] == bundle.read([tmp_path])
    assert len({one.path.name for one in kept}) == 3
