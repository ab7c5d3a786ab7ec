"""Several versions of one library in one table: a row each, and kernels of ours as what they are, the same."""

from dataclasses import replace

from reports.table.compare import contestants, rows, split
from reports.table.table import markdown, plain
from tests.reports.synthetic import record, with_request


def of_job(made, library):
    """The record of a job whose ranks loaded that NCCL."""
    configuration = {**(made.request.configuration or {}), "library": {"nccl": library}}
    asked = with_request(made, overrides=("+exp=x", f"library.nccl={library}"), configuration=configuration)
    return replace(asked, library=f"NCCL {library}" if made.library.startswith("NCCL") else made.library)


def sweep():
    names = ("one_shot", "nccl", "torch/two_shot")
    return [of_job(record(name, world=0), version) for version in ("2.28.9", "2.32.3") for name in names]


def test_versions_are_rows_of_one_section():
    (section,) = split(sweep())[0]
    judged = {row.algorithm: len(row.records) for row in rows(section)}
    assert judged == {"one_shot": 2, "nccl 2.28.9": 1, "nccl 2.32.3": 1, "torch/two_shot": 2}
    assert list(contestants(rows(section))) == ["one_shot", "nccl 2.28.9", "nccl 2.32.3", "torch/two_shot"]
    for text in (plain(sweep()), markdown(sweep())):
        assert "nccl 2.28.9" in text
        assert "nccl 2.32.3" in text
    assert "NCCL 2.28.9, NCCL 2.32.3" in plain(sweep())


def test_worlds_of_one_version_are_one_row():
    both = [replace(record("nccl", world=world), library="NCCL 2.28.9") for world in (0, 1)]
    (section,) = split(both)[0]
    assert [(row.algorithm, len(row.records)) for row in rows(section)] == [("nccl", 2)]
