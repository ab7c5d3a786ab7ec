"""Predictions that are kept: what the files hold, that none is replaced, and what is said beside measurements."""

import csv
import io
import json
import statistics
from dataclasses import replace

import pytest

from cases.case import Case
from kernels.catalogue import find
from kernels.compile import executable
from reports.accepted import PREDICTED
from reports.publish import PLACE
from reports.record.bundle import read
from runner.predict import command
from runner.predict.asking import asked_jobs, libraries_beside, series_of
from runner.predict.beside import digest_of
from runner.predict.compared import Comparison, Pair, captions, comparison, row
from runner.predict.evidence import is_evidence
from runner.predict.keeping import FORM, document_of, kept_in, key_of
from runner.predict.predicting import simulator_digest
from runner.predict.stored_score import stored
from runner.request.validate import CONF
from symlab.__main__ import main
from tests.golden import same_text

REQUEST = (
    "op=all_reduce", "dtype=bfloat16", "world_size=2", "sizes=[1K,16K]", "algorithms=[one_shot,two_shot]",
    "fabric.gpu=h200",
)  # fmt: skip
PUBLISHED = str(CONF.parent / PLACE / "h200-x2" / "all_reduce-world1.jsonl.xz")
NAME = "h200-x2-all_reduce-bfloat16.predicted.json"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="module")
def kept_once(compiled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "new"
    assert main(["predict", *REQUEST, f"cache_dir={compiled}", "--keep", str(folder)]) == 0
    return folder / NAME


@pytest.fixture
def kept(kept_once, tmp_path):
    """A kept file that a test may change."""
    place = tmp_path / "kept" / NAME
    place.parent.mkdir()
    place.write_bytes(kept_once.read_bytes())
    return place


def _changed(place, change):
    document = json.loads(place.read_text())
    change(document)
    place.write_text(json.dumps(document))


def test_counts_per_peer_tell_predictions_apart():
    uniform = Case("all_to_all_v", "push", "bfloat16", "none", "none", 1024, 2)
    assert key_of("h200", uniform) != key_of("h200", replace(uniform, counts="skewed"))


@pytest.mark.slow
def test_a_kept_file_says_what_it_was_made_of(kept, compiled):
    document = json.loads(kept.read_text())
    score = stored()
    assert (document["symlab_predicted"], document["predicted"], document["gpu"]) == (FORM, True, "h200")
    assert document["request"] == [*REQUEST[:3], "sizes.list=[1K,16K]", *REQUEST[4:]], "and nothing of this machine"
    assert document["model"]["constants"]["begin_us"] == score.constants.begin_us
    constants = {name: document["model"][name] for name in ("constants", "intervals")}
    assert document["model"]["digest"] == digest_of(constants)
    floors = {name: value for name, value in document["floors"].items() if name != "digest"}
    assert document["floors"]["digest"] == digest_of(floors)
    assert digest_of({**floors, "launch_us": 9.0}) != digest_of(floors)
    assert document["simulator"] == simulator_digest()
    for one in document["cases"]:
        case = Case("all_reduce", one["algorithm"], "bfloat16", "float32", "sum", one["size_bytes"], 2)
        assert one["id"] == case.id
        assert one["ptx_digest"] == executable(find(case.name), case, "sm_90a", compiled).digest
        assert one["low_us"] < one["time_us"] < one["high_us"]
    assert len(document["cases"]) == 4


@pytest.mark.slow
def test_what_is_kept_is_what_was_printed(kept, compiled, capsys):
    assert main(["predict", *REQUEST, f"cache_dir={compiled}", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    names = ("algorithm", "size_bytes", "time_us", "low_us", "high_us", "rank", "regime", "remark")
    cases = json.loads(kept.read_text())["cases"]
    assert [[one[name] for name in names] for one in cases] == [[one[name] for name in names] for one in printed]


def test_a_kept_prediction_is_not_replaced(kept, compiled, capsys):
    before = kept.read_bytes()
    assert main(["predict", *REQUEST, f"cache_dir={compiled}", "--keep", str(kept.parent)]) == 2
    same_text(capsys.readouterr().err)
    assert kept.read_bytes() == before


def test_of_two_calls_at_once_the_first_is_kept(compiled, tmp_path, monkeypatch, capsys):
    """The file is asked for before the simulation: another call may write it meanwhile."""
    folder = tmp_path / "shared"
    usual = command.series_of

    def meanwhile(*words, **more):
        found = usual(*words, **more)
        folder.mkdir()
        (folder / NAME).write_text("the other's")
        return found

    monkeypatch.setattr(command, "series_of", meanwhile)
    assert main(["predict", *REQUEST, "sizes=[1K]", f"cache_dir={compiled}", "--keep", str(folder)]) == 2
    same_text(capsys.readouterr().err.splitlines()[-1])
    assert [(one.name, one.read_text()) for one in folder.iterdir()] == [(NAME, "the other's")]


def test_lines_of_a_request_are_kept_without_paths_of_this_machine(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    gpu = tmp_path / "someone" / "mine.yaml"
    gpu.parent.mkdir()
    gpu.write_text("like: h200\nname: mine\n")
    words = ("sizes=[1K]", "algorithms=[one_shot]", f"fabric.gpu={gpu}", f"++cache_dir={compiled}", "~records")
    (asked,) = asked_jobs([*REQUEST[:3], *words[:-1]], False, None)
    asked = replace(asked, lines=(*asked.lines, words[-1], f"+records={tmp_path}"))
    series = series_of(asked, stored(), False)
    assert document_of(asked, series, stored())["request"][3:] == [
        "sizes.list=[1K]", "algorithms=[one_shot]", "fabric.gpu=~/mine.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["--keep", "--kept"])
def test_an_empty_path_is_refused(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["predict", *REQUEST, option, ""]) == 2
    same_text(capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_places_that_cannot_keep_predictions_are_refused(kept, compiled, capsys, tmp_path):
    words = (*REQUEST, f"cache_dir={compiled}")
    for asked, place in ((words, kept), (words, kept / "below"), (("-m", *words, "seed=1,2"), tmp_path / "two")):
        assert main(["predict", *asked, "--keep", str(place)]) == 2
        same_text(capsys.readouterr().err.splitlines()[-1])
    assert not (tmp_path / "two").exists()


def test_kept_predictions_are_compared_with_published_records(kept, capsys):
    assert main(["predict", "--kept", str(kept.parent), PUBLISHED, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    times = {(one["algorithm"], one["size_bytes"]): one for one in found["cases"]}
    assert len(times) == 4
    cases = {(one["algorithm"], one["size_bytes"]): one for one in json.loads(kept.read_text())["cases"]}
    for record in read([PUBLISHED]):
        case = record.case
        one = times.get((case.algorithm, case.size_bytes))
        if one is None or case.dtype != "bfloat16":
            continue
        assert one["measured_us"] == record.timing.median_us
        told = cases[case.algorithm, case.size_bytes]
        assert one["predicted_us"] == told["time_us"]
        assert one["error"] == pytest.approx(told["time_us"] / record.timing.median_us - 1)
        assert one["within"] == (told["low_us"] <= record.timing.median_us <= told["high_us"])
        assert one["other_code"] == (told["ptx_digest"] != record.kernel.ptx_digest)
    (line,) = found["rows"]
    errors = [abs(one["error"]) for one in found["cases"]]
    assert line["median"] == pytest.approx(statistics.median(errors))
    assert line["largest"] == max(errors)
    assert line["within"] == sum(one["within"] for one in found["cases"]) / 4
    assert (line["cases"], line["choices"]) == (4, 2)


def test_a_comparison_is_shown_in_four_forms(kept, capsys):
    said = {}
    for form in ("text", "markdown", "csv", "json"):
        assert _compared(kept, "--format", form) == 0
        said[form] = capsys.readouterr().out
    assert "all_reduce bfloat16, 2 ranks of h200" in said["text"]
    assert "measured before the prediction was made: 4 of 4 cases" in said["text"]
    assert "| all_reduce bfloat16, 2 ranks of h200 | 4 |" in said["markdown"]
    rows = list(csv.DictReader(io.StringIO(said["csv"])))
    cases = json.loads(said["json"])["cases"]
    assert [float(one["measured_us"]) for one in rows] == [one["measured_us"] for one in cases]


def test_what_was_measured_later_is_not_called_earlier(kept, capsys):
    """Time zones count: the published records began at 08:2x UTC on 2026-11-21, after 10:00 of a zone four hours
    ahead."""
    began = min(one.started for one in read([PUBLISHED]))[:19]
    for made, is_earlier in (("2026-01-01T00:00:00+00:00", False), (f"{began}-04:00", True), (f"{began}+04:00", False)):
        _changed(kept, lambda document, made=made: document.update(made=made))
        assert _compared(kept) == 0
        said = capsys.readouterr().out
        assert ("measured before" in said) == is_earlier
        assert f"predicted on {made[:10]}" in said


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("symlab_predicted"),
        lambda document: document.update(symlab_predicted=FORM + 1),
        lambda document: document["cases"][0].update(time_us=1e9),
        lambda document: document["cases"][0].update(low_us=0),
        lambda document: document["cases"][0].update(high_us=10**400),
        lambda document: document["cases"][0].update(ptx_digest="md5:1"),
        lambda document: document["cases"][0].update(regime="other"),
        lambda document: document["cases"][0].pop("op"),
        lambda document: document.update(made="yesterday"),
        lambda document: document.update(cases=7),
        lambda document: document["cases"][0].update(root=[]),
        lambda document: document["cases"][0].update(root=True),
        lambda document: document["cases"][0].update(op="all_reduce\n"),
        lambda document: document["cases"][0].update(size_bytes=-1),
        lambda document: document["cases"][0].update(time_us=10**400),
        lambda document: document["cases"][0].update(offset=float("inf")),
        lambda document: document["cases"][0].update(id="two\nlines", regime="other"),
        lambda document: document.update(made="0001-01-01T00:00:00+14:00"),
    ],
)
def test_a_damaged_kept_file_is_named(kept, capsys, change):
    _changed(kept, change)
    assert _compared(kept) == 2
    error = capsys.readouterr().err
    assert f"{kept}: not a kept prediction (" in error
    assert error.count("\n") == 1


def test_a_kept_file_that_is_nested_too_deeply_is_named(kept, capsys):
    for text in ("[" * 100_000 + "]" * 100_000, '{"symlab_predicted": 1e400}', "\ufeff{}"):
        kept.write_text(text)
        assert _compared(kept) == 2
        error = capsys.readouterr().err
        assert f"{kept}: not a kept prediction (" in error
        assert error.count("\n") == 1


def test_wrong_comparisons_say_what_is_right(kept, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    here, other = str(kept.parent), str(CONF.parent / PLACE / "h200-x4" / "collectives-world1.jsonl.xz")
    for words in (
        (here,),
        (str(tmp_path / "empty"), PUBLISHED),
        (str(tmp_path / "none"), PUBLISHED),
        (here, other),
        (here, str(tmp_path / "nowhere")),
        (here, PUBLISHED, "--explain"),
        (here, "--score"),
    ):
        assert main(["predict", "--kept", *words]) == 2
        same_text(capsys.readouterr().err)
    (kept.parent / "copy.predicted.json").write_bytes(kept.read_bytes())
    assert _compared(kept) == 2
    same_text(capsys.readouterr().err)


def test_rows_count_errors_intervals_and_choices(kept):
    """Invented times: of two algorithms the one with the shorter prediction is 10 % slower at one size, right at the
    other."""
    found = {(one.case.algorithm, one.case.size_bytes): one for one in kept_in(kept.parent)}
    pairs = []
    for (algorithm, size), one in found.items():
        told = replace(one, time_us=4.0 if algorithm == "one_shot" else 5.0, low_us=3.0, high_us=6.0)
        is_slow = (algorithm, size) == ("one_shot", 16384)
        pairs.append(Pair(told, 5.5 if is_slow else told.time_us, 1, False, False))
    values = row("all", pairs)
    assert values["regret"] == pytest.approx(0.05)
    assert (values["right"], values["within"], values["choices"]) == (0.5, 1.0, 2)
    assert values["largest"] == pytest.approx(1 - 4 / 5.5)
    assert values["median"] == pytest.approx(0.0)
    said = captions(Comparison(tuple(pairs), 3, 1))
    assert said[1:] == ["predicted and not measured: 3 cases", "measured and not predicted: 1 case"]


def test_worlds_of_one_case_count_as_their_median(kept):
    (record,) = [
        one
        for one in read([PUBLISHED])
        if (one.case.algorithm, one.case.dtype, one.case.size_bytes) == ("one_shot", "bfloat16", 1024)
    ]
    samples = [replace(record, started=f"2027-01-0{day}T00:00:00.000+00:00") for day in (1, 2, 3)]
    chosen = [one for one in kept_in(kept.parent) if one.case.algorithm == "one_shot"]
    assert len(chosen) == 2, "1K and 16K"
    pairs = comparison(chosen, samples).pairs
    assert [(one.worlds, one.time_us, one.is_earlier) for one in pairs] == [(3, record.timing.median_us, False)]


def test_only_what_the_model_is_of_is_compared():
    """Warm buffers, or calls before each sample, are another measurement."""
    record = next(one for one in read([PUBLISHED]) if is_evidence(one))
    timing = record.request.configuration["timing"]
    led = {**record.request.configuration, "timing": {**timing, "lead_in_calls": 5}}
    none = {**record.request.configuration, "timing": {**timing, "lead_in_calls": 0}}
    assert not is_evidence(replace(record, timing=replace(record.timing, l2="hot", slots=1)))
    assert not is_evidence(replace(record, request=replace(record.request, configuration=led)))
    assert is_evidence(replace(record, request=replace(record.request, configuration=none)))


@pytest.mark.slow
def test_experiments_of_gpus_are_predicted_without_naming_the_simulator(compiled, capsys):
    words = ("+exp=allreduce_gpus", "fabric.gpu=h200", "world_size=2", "dtype=bfloat16", f"cache_dir={compiled}")
    assert main(["predict", *words, "algorithms=[one_shot]", "sizes=[1K]", "--format", "json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert (line["size_bytes"], line["refused"]) == (1024, "")
    assert main(["predict", *words, "fabric=nvshmem"]) == 2
    assert "fabric" in capsys.readouterr().err


def test_libraries_beside_take_part_of_the_cache(compiled, capsys):
    case = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 65536, 2)
    names = libraries_beside(case)
    assert {"nccl", "torch/one_shot", "torch/two_shot", "nvshmem"} <= set(names)
    assert "torch/multimem" not in names, "it needs multicast"
    assert not {"torch/one_shot", "torch/two_shot"} & set(libraries_beside(replace(case, dtype="float16")))
    times = []
    for baselines in ("auto", "none"):
        words = ("sizes=[64K]", "algorithms=[one_shot]", f"baselines={baselines}", "--format", "json")
        assert main(["predict", *REQUEST, f"cache_dir={compiled}", *words]) == 0
        times.append(json.loads(capsys.readouterr().out)[0]["time_us"])
    assert times[0] > times[1]


OPS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "send_recv")


def test_the_published_predictions_are_of_all_sizes_of_both_experiments():
    """For 4 and 8 H200: every power of four from 1 KiB to 256 MiB of every op."""
    kept = kept_in(CONF.parent / PLACE / PREDICTED)
    found = {(one.case.op, one.case.world_size, one.case.size_bytes) for one in kept}
    sizes = [1 << power for power in range(10, 29, 2)]
    assert found == {(op, ranks, size) for op in OPS for ranks in (4, 8) for size in sizes}
    assert {(one.gpu, one.case.dtype) for one in kept} == {("h200", "bfloat16")}
    accumulators = {one.case.accumulator for one in kept if one.case.op in ("all_reduce", "reduce", "reduce_scatter")}
    assert accumulators == {"float32"}
    for place in (CONF.parent / PLACE / PREDICTED).glob("*.json"):
        document = json.loads(place.read_text())
        assert not document["unfinished"]
        assert not document.get("failed")
        assert all("is for small messages" in reason for reason in document["refused"].values()), place
        assert document["dirty"] is False
        constants = {name: document["model"][name] for name in ("constants", "intervals")}
        assert document["model"]["digest"] == digest_of(constants)


@pytest.mark.slow
def test_the_published_predictions_for_4_are_compared_as_the_readme_says(capsys):
    places = [str(CONF.parent / PLACE / name) for name in (PREDICTED, "h200-x4")]
    assert main(["predict", "--kept", *places, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    every = found["rows"][-1]
    assert all(one["earlier"] for one in found["cases"]), "the model is fitted to these records"
    said = (CONF.parent / "runner" / "predict" / "README.md").read_text()
    told = f"{every['cases']} cases, median {every['median']:.1%}, 95th percentile {every['p95']:.1%}, "
    told += f"{every['within']:.0%} within their interval"
    assert told.replace("%", " %") in " ".join(said.split())


def _compared(kept, *words):
    return main(["predict", "--kept", str(kept.parent), PUBLISHED, *words])
