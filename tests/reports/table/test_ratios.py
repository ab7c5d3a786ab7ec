"""The table of ratios: our best over the best library, by ranks; its figures are those of the usual table."""

import csv
import io
import json

from reports.__main__ import main
from reports.record import bundle
from reports.table import ratios
from reports.table.compare import rows, split
from reports.table.text import csv_of, json_of
from tests.reports.synthetic import KIB, MIB, record, study


def timed(algorithm, time_us, *, world=0, size_bytes=KIB, world_size=4):
    """A record all of whose samples take one time."""
    samples = [[time_us] * 10 for _ in range(world_size)]
    return record(algorithm, size_bytes, world=world, world_size=world_size, samples_us=samples)


def test_a_ratio_is_that_of_our_best_and_the_best_library():
    made = [timed("one_shot", 4.0), timed("two_shot", 3.0), timed("nccl", 12.0), timed("nvshmem", 6.0)]
    (found,) = ratios.ratios(made)
    assert (found.ratio, found.kernel, found.rival_name, found.worlds) == (0.5, "two_shot", "nvshmem", 1)
    assert (found.size_bytes, found.world_size) == (KIB, 4)


def test_worlds_are_their_medians_and_their_disagreement_is_said():
    """Medians 3 and 4: 0.75, while the third world alone says 9 over 2."""
    times = [(3.0, 4.0), (2.0, 8.0), (9.0, 2.0)]
    made = [
        timed(name, time, world=at)
        for at, pair in enumerate(times)
        for name, time in zip(("one_shot", "nccl"), pair, strict=True)
    ]
    (found,) = ratios.ratios(made)
    assert (found.ratio, found.worlds) == (0.75, 3)
    assert (found.lowest, found.highest) == (0.25, 4.5)
    assert "in 1 of 1 ratio of several worlds these disagree" in ratios.markdown(made)


def test_they_are_the_ratios_of_the_usual_table():
    made = study(("one_shot", "two_shot", "nccl", "torch/two_shot"), (KIB, MIB), worlds=3)
    usual = [row.ratio for section in split(made)[0] for row in rows(section) if row.ratio is not None]
    assert [one.ratio for one in ratios.ratios(made)] == usual
    assert len(usual) == 2


def test_numbers_of_ranks_are_columns_of_one_table():
    made = [
        timed(name, time_us, world_size=ranks, size_bytes=size_bytes)
        for ranks, size_bytes in ((2, KIB), (3, KIB - 4), (2, MIB), (8, MIB))
        for name, time_us in (("one_shot", float(ranks)), ("nccl", 10.0))
    ]
    lines = [line for line in ratios.markdown(made).splitlines() if line.startswith("|")]
    assert lines[0] == "| size | 2 ranks | 3 ranks | 8 ranks |"
    assert lines[2] == "| 1 KiB | **0.20 one_shot : nccl** | **0.30 one_shot : nccl** | - |"
    assert lines[3] == "| 1 MiB | **0.20 one_shot : nccl** | - | **0.80 one_shot : nccl** |"
    assert "others are rounded down" in ratios.markdown(made)
    same = [one for one in made if one.case.size_bytes == MIB]
    assert "8 ranks" in ratios.markdown(same)
    assert "rounded down" not in ratios.markdown(same), "no line has two sizes"


def test_two_near_sizes_of_the_same_ranks_have_a_line_each():
    made = [timed(name, 2.0, size_bytes=size) for size in (1000, 1020) for name in ("one_shot", "nccl")]
    lines = [line for line in ratios.markdown(made).splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 1000 B", "| 1020 B"]


def test_a_ratio_above_one_is_not_bold_and_is_named_as_the_highest():
    text = ratios.markdown([timed("one_shot", 5.0), timed("nccl", 4.0)])
    assert "| 1 KiB | 1.25 one_shot : nccl |" in text
    assert "ours is faster in 0 of 1 ratio; the highest is 1.25, all_reduce 1 KiB, 4 ranks" in text


def test_values_for_programs_are_unrounded():
    made = [timed("one_shot", 1.0), timed("nccl", 3.0)]
    (line,) = json.loads(json_of(ratios.values(made)))
    assert line["ratio"] == 1 / 3
    assert (line["kernel"], line["kernel_us"], line["rival"], line["rival_us"]) == ("one_shot", 1.0, "nccl", 3.0)
    assert (line["rival_library"], line["device"], line["worlds"]) == ("NCCL 0.0.0", "Invented GPU", 1)
    (row,) = csv.DictReader(io.StringIO(csv_of(ratios.values(made))))
    assert float(row["ratio"]) == 1 / 3


def test_the_command_prints_ratios_and_refuses_what_has_none(tmp_path, capsys):
    path, alone = tmp_path / "all.jsonl.xz", tmp_path / "ours.jsonl.xz"
    made = study(("one_shot", "nccl"), (KIB,), worlds=2)
    bundle.write(made, path)
    bundle.write(study(("one_shot",), (KIB,), worlds=1), alone)
    for form, text in (
        ("text", ratios.text(made) + "\n"),
        ("markdown", ratios.markdown(made)),
        ("csv", csv_of(ratios.values(made))),
        ("json", json_of(ratios.values(made))),
    ):
        assert main(["table", "--ratios", str(path), "--format", form]) == 0
        assert capsys.readouterr().out == text
    for arguments, said in (([str(alone)], ratios.NOTHING), ([str(path), "--wide"], "two tables, give one of them")):
        assert main(["table", "--ratios", *arguments]) == 2
        assert said in capsys.readouterr().err
