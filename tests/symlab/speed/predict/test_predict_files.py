"""What symlab predict writes into a file: what it prints, whole."""

import pytest

from symlab.__main__ import main
from symlab.speed.predict import command
from tests.golden import same_text

REQUEST = (
    "op=all_reduce", "dtype=bfloat16", "world_size=2", "sizes=[1K,4K]", "algorithms=[one_shot,two_shot_lamport]",
)  # fmt: skip
H200 = "fabric.gpu=h200"
NAMES = ("one_shot", "two_shot_lamport")


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "series_of", lambda *_, **__: pytest.fail("simulated"))
    for words in (
        ("-o", str(tmp_path)),
        ("-o", str(tmp_path / "none" / "out.txt")),
        ("--score", "-o", str(tmp_path / "out.txt")),
    ):
        assert main(["predict", *REQUEST, H200, *words]) == 2
        same_text(capsys.readouterr().err)


def test_a_file_that_fails_keeps_its_content(cache, tmp_path, monkeypatch, capsys):
    place = tmp_path / "out.txt"
    place.write_text("before")

    def full(path, data):
        raise ValueError(f"{path}: can't be written (No space left on device)")

    monkeypatch.setattr(command, "write_file", full)
    assert main(["predict", *REQUEST, H200, f"cache_dir={cache}", "-o", str(place)]) == 2
    assert "can't be written (No space left on device) (-o)" in capsys.readouterr().err
    assert place.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.slow
def test_what_is_printed_goes_into_the_file(cache, tmp_path, capsys):
    words = (*REQUEST, H200, f"cache_dir={cache}", "--explain")
    assert main(["predict", *words, "-o", str(tmp_path / "out.txt")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["predict", *words]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.txt").read_text()
