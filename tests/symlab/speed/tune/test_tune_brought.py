"""`symlab tune` with an entry of a YAML file: parameters are candidates, the best is a finalist, and a user's own table
may choose it."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from cases.case import Case
from memory.fabric import Traits
from reports.record.bundle import read as read_records
from runner.case.bringing import found_at
from runner.request_error import RequestError
from symlab.command import main
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profiles import Profiles, Unprofiled
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.model_first import rankings
from symlab.speed.tuned.table import FOLDER, read, tables_in
from tests.golden import refused
from tests.kernels.own.own_entries import SUM, changed, write_entries
from tests.symlab.speed.tune.test_tune_on_gpus import Clocked, Finals, on_gpus

ENTRY = changed(SUM, parameters={"blocks": [4, 8, 16]}, launch={"grid": "blocks", "block": 256})
PLACE = "own/kernels.yaml:sum"
US = {"sum": 3.0, "sum_blocks8": 1.0, "sum_blocks16": 2.0}
"""Invented times of the entry; all of the catalogue's take 2.5."""


LINE = ["op=all_reduce", "sizes=[4K]", "world_size=2", "fabric=simulator", "track=none", "tuned=mine.json"]


def us(case):
    return US.get(case.algorithm, 2.5)


def searched(folder, *more, bench=None, **options):
    """Search the entry beside lamport in a folder, the working one."""
    write_entries(folder / "own", sum=ENTRY)
    there, finals, seams = bench or Clocked(us), Finals(folder, us=us), options.pop("seams", {})
    there_alone = {"algorithms": ("lamport", PLACE), "bench": lambda worlds, request, compiler: there}
    asked, made = on_gpus(finals, *(more or ("sizes=[4K]",)), **there_alone, **seams)
    asked = tuple("dtype=float32" if one.startswith("dtype") else one for one in asked)
    usual = {"output": Path("mine.json"), "processes": 1, "exhaustive": not seams}
    return tune(Options(asked, **usual | options), asked, made), there, finals


def test_all_values_of_parameters_are_measured_and_the_best_is_chosen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, bench, finals = searched(tmp_path, "sizes=[4K,64K]")
    assert code == 0
    assert set(US) <= bench.names[4096]
    assert "lamport@t256b16l8" in bench.names[4096], "the catalogue's tunings are searched, too"
    assert {"lamport", PLACE + "@blocks4", PLACE + "@blocks8"} <= finals.names(4096)
    table = read(Path("mine.json"))
    assert {one.choice.name for one in table.entries} == {PLACE + "@blocks8"}
    searched_at = [one for one in table.entries if one.size_bytes in (4 << 10, 64 << 10)]
    assert [one.runner_up and one.runner_up.name for one in searched_at] == [PLACE + "@blocks16"] * 2
    assert all(one.kernel.startswith("sha256:") for one in table.entries)
    assert PLACE + "@blocks8" in capsys.readouterr().out


def test_a_table_of_ones_own_runs_the_entry_that_it_chose(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    searched(tmp_path)
    assert main(["run", *LINE, "algorithms=[best,lamport]"]) == 0
    found = {one.case.algorithm: one for one in read_records([tmp_path / "records"])}
    assert set(found) == {"sum_blocks8", "lamport"}
    chosen = found["sum_blocks8"].request
    assert (chosen.kernel or {})["chosen"]["algorithm"] == "sum_blocks8"
    assert (chosen.brought or {})["sum_blocks8"]["place"] == PLACE + "@blocks8"
    capsys.readouterr()
    (folder,) = (tmp_path / "records").iterdir()
    assert main(["replay", str(folder), "--records", "again"]) == 0
    assert "2 BIT-EQUAL" in capsys.readouterr().out
    assert main(["predict", *LINE, "algorithms=best", "fabric.gpu=h200"]) == 0
    assert "sum_blocks8" in capsys.readouterr().out


def test_a_kernel_that_changed_since_the_search_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    searched(tmp_path)
    text = Path("mine.json").read_text().replace('"kernel": "sha256:', '"kernel": "sha256:0')
    Path("mine.json").write_text(text)
    assert main(["run", *LINE, "algorithms=best"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "own/kernels.yaml:sum@blocks8 is not what was searched (tuned)" in said
    assert not (tmp_path / "records").exists()


def test_the_projects_tables_name_no_kernel_but_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(RequestError):
        searched(tmp_path, output=FOLDER / "h100.json")
    assert not any(entry.kernel for place in tables_in() for entry in read(place).entries)
    searched(tmp_path)
    text = Path("mine.json").read_text()
    monkeypatch.setattr("symlab.speed.tuned.table.FOLDER", tmp_path)
    with refused(ValueError):
        read(tmp_path / "mine.json")
    assert text.count(PLACE) > 1


@pytest.mark.parametrize(
    "change", [(f'"name": "{PLACE}@blocks8"', '"name": "lamport"'), ('"kernel": "[^"]*"', '"kernel": ""')]
)
def test_a_table_whose_choice_and_digest_do_not_belong_together_is_refused(change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    searched(tmp_path)
    text = Path("mine.json").read_text()
    Path("mine.json").write_text(re.sub(*change, text))
    with pytest.raises(ValueError, match=r"entries\[0\]\.kernel is .*, give the digest of a kernel with a place"):
        read(Path("mine.json"))


@dataclass
class Broken:
    """Profiles of all but the entry's; of these the simulator fails."""

    def of(self, cases, limit_s=0.0):
        return [
            (one, Unprofiled("it waits", can_run=True) if one.algorithm in US else CaseWork({}, {"hop": 9.0}, ()))
            for one in cases
        ]

    def close(self):
        pass


def test_what_the_model_can_not_predict_is_measured_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, bench, _ = searched(tmp_path, seams={"profiles": lambda *_: Broken()})
    assert code == 0
    assert set(US) <= bench.names[4096]
    assert read(Path("mine.json")).entries[0].choice.name == PLACE + "@blocks8"


def of_two_blocks(folder, *beside):
    """The candidates of the entry with two numbers of blocks, and of the catalogue's beside it."""
    write_entries(folder / "own", sum=ENTRY)
    brought = [found_at(f"{PLACE}@blocks{blocks}") for blocks in (4, 8)]
    base = Case("all_reduce", "best", "float32", "native", "sum", 4096, 2)
    traits = Traits("nvshmem", "sm_90a", 2, 1 << 33, multicast=False)
    return Candidates(base, [*beside, *(one.spec.algorithm for one in brought)], traits, brought)


def test_the_model_predicts_entries_of_a_search(tmp_path, monkeypatch):
    """By the profiles that a search has without seams, in this process and in others."""
    monkeypatch.chdir(tmp_path)
    candidates = of_two_blocks(tmp_path)
    asked = [*candidates.own(), *candidates.grid(candidates.algorithms)]
    assert [one.algorithm for one in asked] == ["sum", "sum_blocks8"]
    for processes in (1, 2):
        profiles = Profiles(tmp_path / "cache", "sm_90a", processes, candidates.specs)
        found = list(profiles.of(asked))
        profiles.close()
        assert {type(work) for _, work in found} == {CaseWork}, found


def test_an_entry_whose_first_combination_is_slow_is_ranked_whole(tmp_path, monkeypatch):
    """The usual values, which come first, are the same at all sizes."""
    monkeypatch.chdir(tmp_path)
    candidates = of_two_blocks(tmp_path, "lamport")
    us = {"lamport": 10.0, "sum": 100.0, "sum_blocks8": 5.0}
    model = SimpleNamespace(us=lambda case, work: work)
    profiler = SimpleNamespace(of=lambda cases, limit_s: [(one, us.get(one.algorithm, 20.0)) for one in cases])
    (ranking,) = rankings([candidates], model, profiler)
    assert us.items() <= ranking.us.items()


def test_launches_of_an_entry_are_what_it_says_beside_dependent_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, bench, finals = searched(tmp_path, "sizes=[4K]", "timing.dependent_launch=true")
    assert code == 0
    assert {"lamport@d", *US} <= bench.names[4096]
    assert {"lamport@d", PLACE + "@blocks8"} <= finals.names(4096)


def test_random_tunings_are_drawn_of_entries_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, finals = searched(tmp_path, sample=12, output=None, exhaustive=False)
    assert code == 0
    assert {"lamport", PLACE + "@blocks4", PLACE + "@blocks8", PLACE + "@blocks16"} <= finals.names(4096)
    assert len(finals.names(4096)) == 2 + 12


def test_combinations_that_launch_the_same_are_one_candidate(tmp_path, monkeypatch):
    """At 4K min(blocks, 4) is 4 for both."""
    monkeypatch.chdir(tmp_path)
    entry = changed(ENTRY, launch={"grid": "min(blocks, ceil_div(numel, 256))", "block": 256})
    monkeypatch.setitem(globals(), "ENTRY", entry)
    _, bench, _ = searched(tmp_path)
    assert bench.names[4096] & set(US) == {"sum"}
