"""What follows from published bundles: the commands of the page, in their order, with records made up from real ones.

GPUs are stood in for by records of published cases, moved to another day and another type of GPU. The published sets
here are a few of the real ones' cases, so that little is drawn, simulated and fitted.
"""

import dataclasses
import json
import lzma
import re
import shlex
import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from cases.record.record import Record
from reports.__main__ import main as reports_main
from reports.record import bundle
from reports.record.bundle import KERNELS_NAME, SUFFIX
from runner.request.experiments import CONF
from symlab.command import main
from symlab.evidence import published as tables
from symlab.evidence.publish import command, derived
from symlab.evidence.publish.running import Ran
from symlab.speed.predict import published, recorded_kernels
from symlab.speed.predict.profiling import NotSimulated
from symlab.speed.predict.recorded_kernels import PROFILES
from symlab.speed.predict.score import scored
from symlab.speed.predict.splits import FITTED_TO
from tests.symlab.evidence.publish.test_publish_sets import Machine

ROOT = CONF.parent
SETS = ("h200-x2", "h200-x4")
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
SIZES = (1 << 10, 1 << 16, 1 << 20)
DAYS = timedelta(days=3)


def page():
    return (ROOT / tables.PLACE / "README.md").read_text(encoding="utf-8")


COMMANDS = re.findall(r"^    (.+)$", page().partition("## Add a machine")[2].partition("Then commit")[0], re.MULTILINE)


def some_of(name):
    found = bundle.unpacked(ROOT / tables.PLACE / name / f"all_reduce-world1{SUFFIX}")
    wanted = ("one_shot", "two_shot", "nccl")
    return [
        one
        for one in found
        if one.case.algorithm in wanted and one.case.dtype == "bfloat16" and one.case.size_bytes in SIZES
    ]


def part_of(name, place, records):
    """Write kernels and profiles of some of a published set's cases."""
    keys = {published.profile_key(one) for one in records if one.kernel is not None}
    there = ROOT / tables.PLACE / name
    document = json.loads(lzma.decompress((there / KERNELS_NAME).read_bytes()))
    document["launches"] = {key: one for key, one in document["launches"].items() if key in keys}
    used = {one["digest"] for one in document["launches"].values()}
    document["kernels"] = {digest: one for digest, one in document["kernels"].items() if digest in used}
    recorded_kernels.write(document, place / KERNELS_NAME)
    known = recorded_kernels.read_profiles(there / PROFILES)
    recorded_kernels.write_profiles({key: known[key] for key in keys}, place / PROFILES)


@pytest.fixture(scope="module")
def real():
    return {name: some_of(name) for name in SETS}


@pytest.fixture
def project(real, tmp_path, monkeypatch):
    """A project in the working folder, with a part of each real set and the page that says the commands."""
    root = tmp_path / "project"
    for name, records in real.items():
        place = root / tables.PLACE / name
        place.mkdir(parents=True)
        bundle.write(records, place / f"all_reduce-world1{SUFFIX}")
        (place / "README.md").write_text("by which commands\n", encoding="utf-8")
        part_of(name, place, records)
        monkeypatch.setitem(FITTED_TO, name, bundle.digest(published.scored_of({name: records})[name]))
    for name in set(FITTED_TO) - set(real):
        monkeypatch.delitem(FITTED_TO, name)
    (root / tables.PLACE / "README.md").write_text(page(), encoding="utf-8")
    (root / "README.md").write_text("# Title\n\nsealed: <!-- manifest --><!-- end -->\n", encoding="utf-8")
    (root / "records").mkdir()
    monkeypatch.chdir(root)
    return root


def measured_today(records, model, factor, world):
    """Records as a world of another machine gives them: three days later, factor times as slow."""

    def moved(text):
        return (datetime.fromisoformat(text) + DAYS + timedelta(minutes=world)).isoformat(timespec="milliseconds")

    made = []
    for one in records:
        gpus = tuple({**gpu, "model": model} for gpu in one.environment.gpus)
        samples = tuple(tuple(round(value * factor, 4) for value in rank) for rank in one.timing.samples_us)
        changes = {"environment": dataclasses.replace(one.environment, gpus=gpus)}
        timing = dataclasses.replace(one.timing, samples_us=samples)
        times = {"started": moved(one.started), "ended": moved(one.ended)}
        made.append(dataclasses.replace(one, timing=timing, **times, **changes))
    return tuple(made)


@dataclasses.dataclass
class GPUs(Machine):
    """Two GPUs of a type, whose worlds are made up."""

    records: Sequence[Record] = ()
    model: str = H100
    factor: float = 1.0

    def run(self, code, arguments):
        self.ran.append((code, tuple(arguments)))
        return Ran(measured_today(self.records, self.model, self.factor, len(self.ran)), 0)


@pytest.fixture
def scores(project, monkeypatch):
    """What --derive keeps instead of the committed score."""
    kept = []
    monkeypatch.setattr(derived, "Means", lambda: Means(keep=kept.append, root=project))
    return kept


Means = derived.Means


@pytest.fixture
def with_gpus(project, monkeypatch):
    def here(gpus):
        monkeypatch.setattr(command, "Seams", lambda: gpus.seams(root=project))

    return here


def carry_out(line, root):
    """Do what a line of the page says."""
    match shlex.split(line, comments=True):
        case ["symlab", *words]:
            return main(words)
        case ["python", "-m", "reports", *words]:
            return reports_main([*words, "--root", str(root)])
        case ["mv", source, target]:
            shutil.move(root / source, root / target)
            return 0
        case _:
            raise AssertionError(f"the page has a command that this test does not know: {line}")


def test_the_page_has_four_commands():
    assert [line.split()[:2] for line in COMMANDS[:4]] == [
        ["symlab", "publish"],
        ["mv", "records/h100-x2"],
        ["symlab", "publish"],
        ["python", "-m"],
    ]
    said = (
        (ROOT / "symlab" / "evidence" / "README.md")
        .read_text(encoding="utf-8")
        .partition("## Publishing a machine's")[2]
    )
    places = [said.index(f"\n    {line}") for line in ("mv records/h200-x8 ", *COMMANDS[2:4])]
    assert places == sorted(places)


@pytest.mark.slow
def test_the_commands_of_the_page_publish_a_machine_and_a_second_day_of_another(
    project, real, scores, with_gpus, capsys
):
    place = project / tables.PLACE
    with_gpus(GPUs(records=real["h200-x2"], factor=1.1))
    for line in COMMANDS[:4]:
        assert carry_out(line, project) == 0, line
    out = capsys.readouterr().out
    assert "to publish it: mv records/h100-x2 reports/published/h100-x2 && symlab publish --derive" in out
    assert (place / "h100-x2" / "README.md").read_text(encoding="utf-8").count(f" {H100}\n\n") == 1

    with_gpus(GPUs(records=real["h200-x2"], model=H200, factor=1.03))
    first = COMMANDS[0].replace("h100", "h200")
    assert carry_out(first, project) == 0
    (told,) = re.findall(r"^to publish it: (mv .*) && (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert told == ("mv records/h200-x2 reports/published/h200-x2-2026-11-24", "symlab publish --derive")
    for line in (*told, COMMANDS[3]):
        assert carry_out(line, project) == 0, line

    again = place / "h200-x2-2026-11-24"
    for folder in (place / "h100-x2", again):
        names = {path.name for path in folder.iterdir()}
        assert {"table.md", "figure.svg", KERNELS_NAME, PROFILES, "publish.json"} <= names
        assert published.missing(folder, bundle.read([folder])) == []
    text = (place / "README.md").read_text(encoding="utf-8")
    assert f"\n## 2 x {H100}\n\n<!-- published: h100-x2 -->\n" in text
    assert f"\n## 2 x {H200}, 2026-11-24\n\n<!-- published: h200-x2-2026-11-24 -->\n" in text
    assert text.count("[h200-x2](h200-x2/table.md)") == 1
    assert "On other days: [h200-x2-2026-11-24](h200-x2-2026-11-24/table.md); all of them: `symlab history" in text

    score = scores[-1]
    assert list(score.apart) == ["h100-x2", "h200-x2-2026-11-24"]
    rows = {row.split: row for row in score.rows}
    for title in ("another day", "another GPU type, floors only"):
        assert rows[title].errors.cases == 6
    assert rows["other numbers of GPUs"].errors is None


@pytest.mark.slow
def test_deriving_again_changes_nothing_and_makes_what_is_missing(project, scores, capsys):
    place = project / tables.PLACE / "h200-x4"
    assert main(["publish", "--derive"]) == 0
    files = {path: path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()}
    known = recorded_kernels.read_profiles(place / PROFILES)
    gone = min(known)
    recorded_kernels.write_profiles({key: work for key, work in known.items() if key != gone}, place / PROFILES)
    assert published.missing(place, bundle.read([place])) == [PROFILES]
    capsys.readouterr()
    assert main(["publish", "--derive"]) == 0
    said = capsys.readouterr().out
    assert "h200-x4: 1 of 1 cases simulated" in said
    assert said.endswith("2 published sets, all derived\n")
    assert {path: path.read_bytes() for path in sorted(project.rglob("*")) if path.is_file()} == files
    assert scores[0].document() == scores[1].document()


@pytest.mark.slow
def test_a_set_whose_kernels_cannot_be_made_is_named_and_the_others_are_derived(project, scores, capsys):
    """They are of another commit than today's code."""
    (project / tables.PLACE / "h200-x4" / KERNELS_NAME).unlink()
    (project / tables.PLACE / "h200-x4" / PROFILES).unlink()
    assert main(["publish", "--derive"]) == 1
    said = capsys.readouterr().out
    assert "ran other code than is compiled here: do it in a checkout of its commit, " in said
    assert "no score: h200-x4: 6 timed cases without a profile, such as all_reduce-one_shot" in said
    assert said.endswith("2 published sets, not whole: h200-x4, score\n")
    assert reports_main(["published", "--check", "--root", str(project)]) == 0
    assert not scores


@pytest.mark.slow
def test_a_case_that_does_not_end_in_the_simulator_is_named(project, scores, monkeypatch, capsys):
    """On a busy host, say: what was simulated before it is kept, and the same command goes on."""

    def never_ends(*_):
        raise NotSimulated("TIMEOUT", None, "not simulated within 300 s")

    monkeypatch.setattr(published, "least_steps", never_ends)
    (project / tables.PLACE / "h200-x4" / PROFILES).unlink()
    assert main(["publish", "--derive"]) == 1
    said = capsys.readouterr().out
    assert "h200-x4: " in said
    assert "not simulated within 300 s" in said
    assert said.endswith("2 published sets, not whole: h200-x4, score\n")


@pytest.mark.slow
def test_other_records_in_the_place_of_a_fitted_set_are_no_evidence(project, real, scores, capsys):
    """The constants would be fitted to what they are to predict."""
    later = measured_today(real["h200-x2"], H200, 1.03, 1)
    bundle.write(later, project / tables.PLACE / "h200-x2" / f"all_reduce-world1{SUFFIX}")
    assert main(["publish", "--derive"]) == 1
    said = capsys.readouterr().out
    assert "reports/published/h200-x2 has other records than the model's constants are fitted to (FITTED_TO): " in said
    assert "such as h200-x2-2026-11-24" in said
    assert not scores


def test_a_set_below_another_is_said(project, scores, capsys):
    """`mv` puts a folder into one that is there, where it was not seen."""
    place = project / tables.PLACE / "h200-x2"
    shutil.copytree(place, place / "h200-x2")
    assert main(["publish", "--derive"]) == 2
    said = capsys.readouterr().err
    assert (
        "h200-x2/h200-x2: a set lies below another folder; a machine measured again lies beside its first set" in said
    )
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["--derive", "records/x"], ["--derive", "-m"], ["--derive", "-e", "barrier"]])
def test_deriving_takes_nothing_else(words, capsys):
    assert main(["publish", *words]) == 2
    assert "--derive is of all that is published (--derive), give it alone" in capsys.readouterr().err
    assert main(["publish", "-e", "barrier"]) == 2
    assert "no folder for the set (FOLDER), give one, such as records/h200-x2" in capsys.readouterr().err


def test_nothing_is_fitted_to_a_set_that_is_published_later(project, real):
    """Constants, intervals and rows of the fitted sets stay as they are, whatever else is published."""
    cases = published.evidence(project)
    later = [
        dataclasses.replace(one, published=f"{one.published}-2026-12-01", time_us=3 * one.time_us) for one in cases
    ]
    other = [dataclasses.replace(one, published="h100-x2", gpu="h100", time_us=9 * one.time_us) for one in cases]
    odd = [
        dataclasses.replace(one, published="h200-x3", case=dataclasses.replace(one.case, world_size=3)) for one in cases
    ]
    alone, beside = scored(cases), scored([*other, *later, *cases, *odd])
    assert (beside.constants, beside.intervals, beside.cases) == (alone.constants, alone.intervals, alone.cases)
    apart = {"another day", "other numbers of GPUs", "another GPU type, floors only"}
    assert [row for row in beside.rows if row.split not in apart] == [
        row for row in alone.rows if row.split not in apart
    ]
    found = {row.split: row.errors for row in beside.rows if row.split in apart}
    assert {title: errors.cases for title, errors in found.items() if errors} == dict.fromkeys(apart, len(cases)) | {
        "other numbers of GPUs": len(odd)
    }
    with pytest.raises(ValueError, match="no timed case of h200-x4, which the model's constants are fitted to"):
        scored([one for one in cases if one.published != "h200-x4"])
