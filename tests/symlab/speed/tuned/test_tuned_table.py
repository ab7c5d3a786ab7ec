"""Tables of choices: what they give, the nearest entry, and files that someone has edited."""

import json
from dataclasses import replace

import pytest

from cases.case import Case
from symlab.speed.tune.entries import merged
from symlab.speed.tuned.table import (
    MAX_BYTES,
    Entry,
    Figure,
    Guess,
    Searched,
    Table,
    digest_of,
    place_for,
    read,
    slug_of,
    tables_in,
)
from tests.golden import refused, same_text

DIGEST = f"sha256:{'0' * 64}"
H200 = "NVIDIA H200"


def entry(name, size, first, last, **changes):
    fields = {
        "op": "all_reduce",
        "dtype": "bfloat16",
        "accumulator": "float32",
        "reduction": "sum",
        "placement": "out_of_place",
        "ranks": 2,
        "size_bytes": size,
        "from_bytes": first,
        "up_to_bytes": last,
        "choice": Figure(name, 3.5, 3.25, 4.0, 50),
        "runner_up": Figure("two_shot", 4.5, 4.25, 5.0, 50),
        "library": Figure("nccl", 9.0, 8.5, 9.5, 50),
        "searched": Searched(40, 1, 0),
        "records": (DIGEST,),
    }
    return Entry(**fields | changes)


SMALL = entry("lamport@t128b4l8", 4096, 512, 8191)
GUESSES = (Guess("two_shot@t512b64l8p", 3.25), Guess("two_shot@t512b32l8", 3.5))
RANKED = Searched(3, 0, 1, "model", 4.5, "h200, sha256:00", 90, GUESSES)
LARGE = entry("two_shot@t512b64l8p", 1 << 24, 8192, 1 << 25, searched=RANKED)
TABLE = Table(H200, "sm_90a", {"date": "2026-11-22"}, (SMALL, LARGE))


def case(size_bytes, **changes):
    fields = {"dtype": "bfloat16", "accumulator": "float32", "reduction": "sum", "world_size": 2}
    return Case("all_reduce", "best", **fields | {"size_bytes": size_bytes} | changes)


def chosen(size_bytes, gpu=H200, table=TABLE, **changes):
    found = table.choice(case(size_bytes, **changes), "sm_90a", gpu)
    return found.name, found.nearest


def test_a_case_within_a_range_has_its_entry():
    assert chosen(512) == ("lamport@t128b4l8", "")
    assert chosen(8190) == ("lamport@t128b4l8", "")
    assert chosen(8192) == ("two_shot@t512b64l8p", "")


@pytest.mark.parametrize(
    ("size_bytes", "changes"),
    [
        *((size, {}) for size in (64, 1 << 28)),
        *((4096, changes) for changes in ({"world_size": 8}, {"dtype": "float16"}, {"placement": "in_place"})),
        *(
            (4096, changes)
            for changes in ({"gpu": "NVIDIA H100 80GB HBM3"}, {"dtype": "int32", "accumulator": "native"})
        ),
    ],
)
def test_the_nearest_entry_says_in_what_it_differs(size_bytes, changes):
    """lamport has no integers: the entry of the next range does them."""
    same_text(": ".join(chosen(size_bytes, **changes)))


def test_a_choice_for_other_counts_says_that_uniform_ones_were_searched():
    table = replace(
        TABLE,
        entries=(
            replace(entry("push@t512b32l8", 1024, 1, 4096), op="all_to_all_v", accumulator="none", reduction="none"),
        ),
    )
    case = Case("all_to_all_v", "best", "bfloat16", "none", "none", 1024, 2, counts="zeros")
    assert table.choice(case, "sm_90a", H200).nearest == "searched for counts uniform, not zeros"
    for gpu in (H200, "h200"):
        assert table.choice(replace(case, counts="uniform"), "sm_90a", gpu).nearest == ""


def test_a_nearer_world_comes_before_a_nearer_size():
    four = entry("ll@t128b4l8", 1024, 512, 2047, ranks=4)
    table = Table(H200, "sm_90a", {}, (SMALL, LARGE, four))
    assert chosen(1 << 17, table=table, world_size=4)[0] == "ll@t128b4l8"
    assert chosen(4096, table=table, world_size=2)[0] == "lamport@t128b4l8"


def test_no_entry_is_one_line():
    with refused():
        TABLE.choice(Case("broadcast", "best", "bfloat16", "none", "none", 4096, 4), "sm_90a", H200)
    integers = Table(H200, "sm_90a", {}, (SMALL,))
    with refused():
        chosen(4096, table=integers, dtype="int32", accumulator="native")


def test_a_file_gives_the_same_table(tmp_path):
    path = tmp_path / "h200.json"
    path.write_text(TABLE.text())
    found = read(path)
    assert found.entries == TABLE.entries
    assert (found.gpu, found.arch) == (H200, "sm_90a")
    assert found.digest == digest_of(TABLE.text())
    assert tables_in(tmp_path) == (path,)
    assert place_for(H200, tmp_path) == path


def matmul(**changes):
    fields = {"op": "matmul_all_reduce", "gemm": (64, 32, 8), "runner_up": None}
    return entry("inbox@c128s6k2p128f2x1m8b132", 4096, 4096, 4096, **fields | changes)


def test_entries_of_shapes_of_one_size_stand_beside_each_other_and_others(tmp_path):
    path = tmp_path / "t.json"
    entries = (SMALL, matmul(), matmul(gemm=(32, 64, 8)), matmul(gemm=(32, 64, 16)))
    path.write_text(replace(TABLE, entries=entries).text())
    assert read(path).entries == entries
    assert merged(entries, ()) == merged(read(path).entries, entries[:2])
    assert '"gemm"' not in TABLE.text()


WRONG_SHAPES = (
    {"gemm": None},
    {"gemm": (64, 32)},
    {"gemm": (64, 33, 8)},
    {"gemm": (-64, -32, 8)},
    {"op": "all_reduce", "choice": LARGE.choice},
    {"choice": replace(LARGE.choice, name="inbox@t512b64l8")},
    {"choice": replace(LARGE.choice, name="inbox@c256s9k4p128f2x1m8b132")},
)


def test_an_entry_of_another_shape_than_its_size_is_refused(tmp_path):
    tables = (replace(TABLE, entries=(matmul(**changes),)) for changes in WRONG_SHAPES)
    texts = [table.text() for table in tables]
    empty = replace(TABLE, entries=(matmul(),)).document()
    empty["entries"][0]["gemm"] = []
    same_text("\n".join(refusal_of(tmp_path, text) for text in [*texts, json.dumps(empty)]))


def test_figures_of_another_unit_are_refused(tmp_path):
    assert "unit" in refusal_of(tmp_path, json.dumps(TABLE.document() | {"unit": "instructions"}))


@pytest.mark.parametrize(
    ("gpu", "slug"),
    [(H200, "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA GB200", "gb200"), ("h100", "h100"), ("?!", "gpu")],
)
def test_names_of_files(gpu, slug):
    assert slug_of(gpu) == slug


def refusal_of(folder, text):
    """The one line that a file is refused with."""
    path = folder / "table.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match="table.json: ") as caught:
        read(path)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.startswith(str(path))
    assert len(said) < 600
    return said


EDITS = {
    ("symlab_tuned",): [1, ...],
    ("gpu",): [5],
    ("arch",): [...],
    ("more",): [1],
    ("unit",): ["seconds"],
    ("figures",): ["times of GPUs"],
    ("made",): [[]],
    ("entries",): [{}, []],
    ("entries", 0): [7],
    ("entries", 0, "op"): ["all_reduces"],
    ("entries", 0, "dtype"): ["bf16"],
    ("entries", 0, "ranks"): [True, 0],
    ("entries", 0, "size_bytes"): [1 << 20],
    ("entries", 0, "up_to_bytes"): [9000],
    ("entries", 0, "choice", "name"): ["nccl", "lamport@", "lamport@t1b1l1", "os@t128b4l8", "../x@t128b4l8"],
    ("entries", 0, "library"): [...],
    ("entries", 0, "choice", "value"): [10**400, "3"],
    ("entries", 0, "runner_up"): ["two_shot"],
    ("entries", 1, "searched", "predicted"): [{}],
    ("entries", 0, "records"): ["abc"],
}


def test_an_edited_table_is_refused_by_its_key(tmp_path):
    """The value in a place of the document; ... removes it."""
    said = []
    for at, value in ((at, value) for at, values in EDITS.items() for value in values):
        document = TABLE.document()
        inside = document
        for key in at[:-1]:
            inside = inside[key]
        inside[at[-1]] = value
        if value is ...:
            del inside[at[-1]]
        said.append(refusal_of(tmp_path, json.dumps(document)))
    same_text("\n".join(said))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{" * 100_000,
        "[" * 100_000,
        b"\xff\xfe\x00",
        '{"symlab_tuned": 1, "symlab_tuned": 1}',
        f'{{"symlab_tuned": {"9" * 5000}}}',
        TABLE.text().replace("3.5", "NaN", 1),
        TABLE.text().replace("3.5", "1e999", 1),
    ],
    ids=["empty", "list", "null", "braces", "brackets", "bytes", "twice", "digits", "NaN", "infinity"],
)
def test_what_is_no_table_is_refused(tmp_path, text):
    refusal_of(tmp_path, text)


def test_a_file_that_is_too_large_or_missing(tmp_path):
    assert "more than" in refusal_of(tmp_path, " " * (MAX_BYTES + 1))
    with refused():
        read(tmp_path / "none.json")
    with refused():
        read(tmp_path)
