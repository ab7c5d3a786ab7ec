"""Recorded predictions are there where they were asked for, and are made again, by weighing and by simulating."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cases.record.prediction import PredictedTime, RecordedPrediction
from cases.record.record import Record, load
from cases.record.timing import Timing
from kernels.catalogue import find
from kernels.compile import executable
from runner.case.contestant import Contestant
from runner.gpu.reading import gpu_type
from runner.request.gpu_types import document_of
from runner.request.schema import Schema
from symlab.evidence.audit.figures import _predictions
from symlab.speed.predict.again import predictions
from symlab.speed.predict.beside import beside_measured, predicted_beside
from symlab.speed.predict.predicting import FORM, simulator_digest
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import stored
from tests.reports.synthetic import with_request
from tests.symlab.evidence.audit.tampered_predictions import WORK, make_predicted
from tests.symlab.evidence.audit.tampering import record_paths


def again(records: list[Record]) -> dict[str, Any]:
    return predictions(records, Path(Schema().cache_dir).expanduser(), lambda text: None)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Our kernel in four worlds, each with a prediction."""
    folder = tmp_path_factory.mktemp("told")
    make_predicted(folder)
    return [load(path) for path in record_paths(folder) if "one_shot" in path.name]


def with_time(record: Record, **changes: Any) -> Record:
    assert record.prediction is not None
    assert record.prediction.time is not None
    time = dataclasses.replace(record.prediction.time, **changes)
    return dataclasses.replace(record, prediction=RecordedPrediction(time))


def time_of(record: Record) -> PredictedTime:
    assert record.prediction is not None
    assert record.prediction.time is not None
    return record.prediction.time


def test_a_prediction_that_was_asked_for_is_missed_at_every_schema(told: list[Record]) -> None:
    """No configuration of before schema 8 could ask for one: a number of an earlier schema excuses nothing."""
    bare = dataclasses.replace(told[0], prediction=None)
    for schema in (2, 8):
        assert "this timing has none, nor a reason" in "".join(_predictions(dataclasses.replace(bare, schema=schema)))
    configuration = dict(bare.request.configuration or {})
    configuration["timing"] = {key: value for key, value in configuration["timing"].items() if key != "predict"}
    unasked = with_request(bare, configuration=configuration)
    assert list(_predictions(unasked)) == []


def beside(record: Record, gpu: str) -> Record:
    """The record with what the model tells of its work on another type of GPU, whole and consistent."""
    assert record.timing is not None
    ranks, known = record.case.world_size, rates_of(gpu_type(gpu))
    timing = record.timing
    found = predicted_beside(WORK, timing.footprint_bytes, timing.median_us, known, stored(), ranks)
    return dataclasses.replace(record, prediction=found)


def with_gpu(record: Record, gpu: dict[str, Any] | None) -> Record:
    configuration = record.request.configuration or {}
    return with_request(record, configuration={**configuration, "fabric": {"name": "nvshmem", "gpu": gpu}})


def test_a_prediction_is_of_the_type_that_ran(told: list[Record]) -> None:
    """It follows from the floors of h100 alone that nothing else is wrong with it."""
    others = [beside(one, "h100") for one in told]
    answer = again(others)
    assert [what for _, what in answer["different"]] == ["predicted for h100, it ran on NVIDIA H200 (h200)"] * 4
    assert answer["weighed"] == 0


def test_a_type_that_the_configuration_names_is_the_one(told: list[Record]) -> None:
    """fabric.gpu decides whatever the devices are, as it does when a case is predicted."""
    named = document_of(gpu_type("h100").limits)
    honest, lie = with_gpu(beside(told[0], "h100"), named), with_gpu(told[1], named)
    answer = again([honest, lie])
    assert answer["different"] == [[lie.id, "predicted for h200, fabric.gpu names h100"]]
    assert answer["weighed"] == 1


def test_what_ran_on_devices_that_no_type_names_has_no_type_to_differ_from(told: list[Record]) -> None:
    """A type of a folder that was added with --config-dir may name them."""
    for devices in ([], [{"model": "NVIDIA X"}]):
        record = beside(told[0], "h100")
        place = dataclasses.replace(record.environment, world=None, gpus=devices)
        other = dataclasses.replace(record, environment=place)
        answer = again([other])
        assert (answer["weighed"], answer["different"]) == (1, []), devices


def test_another_digest_is_not_comparable(told: list[Record]) -> None:
    others = [with_time(one, constants_digest="sha256:" + "3" * 64) for one in told[:2]]
    answer = again([*told, *others])
    assert (answer["weighed"], len(answer["not_comparable"]), answer["different"]) == (4, 2, [])
    assert all("predicted with other constants" in why for _, why in answer["not_comparable"])


def earlier(record: Record) -> Record:
    """The same prediction as the model was told before it had phases: a factor on the path, and no term of memory."""
    told, timing = time_of(record), record.timing
    assert timing is not None
    terms = told.terms
    terms = dataclasses.replace(terms, least_us=0.5 * terms.least_us, more_us=0.5 * terms.more_us, memory_us=None)
    work = {name: told.work[name] for name in ("least", "steps", "how")} | {
        "directions": [[1024.0, 0.0, 0.0]],
        "form": 2,
    }
    return with_time(
        record,
        constants_digest="sha256:" + "3" * 64,
        terms=terms,
        time_us=terms.time_us,
        low_us=0.9 * terms.time_us,
        high_us=1.1 * terms.time_us,
        ratio=timing.median_us / terms.time_us,
        path_us={kind: 0.5 * value for kind, value in told.path_us.items()},
        work=work,
    )


def test_predictions_from_before_the_memory_are_held_to_their_own_terms(told: list[Record]) -> None:
    others = [earlier(one) for one in told]
    answer = again(others)
    assert (answer["weighed"], answer["different"], len(answer["not_comparable"])) == (0, [], 4)
    pretended = with_time(others[0], constants_digest=time_of(told[0]).constants_digest)
    answer = again([pretended])
    assert "its work can't be weighed" in answer["different"][0][1]


@pytest.fixture(scope="module")
def simulated(told: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record whose prediction is that of today's code, and whose kernel says so."""
    first = told[0]
    case, cache = first.case, tmp_path_factory.mktemp("cache")
    spec = find(case.name)
    code = executable(spec, case, "sm_90a", cache)
    assert isinstance(first.timing, Timing)
    assert first.kernel is not None
    prediction = beside_measured(Contestant(case, spec, code), first.timing, gpu_type("h200"), cache)
    return dataclasses.replace(
        first,
        prediction=prediction,
        kernel=dataclasses.replace(first.kernel, ptx_digest=code.digest),
        environment=dataclasses.replace(first.environment, sources={"simulator": simulator_digest()}),
    )


@pytest.mark.slow
def test_the_same_code_is_simulated_again(simulated: Record) -> None:
    answer = again([simulated])
    assert answer == {"weighed": 1, "simulated": 1, "different": [], "not_comparable": []}


@pytest.mark.slow
def test_work_that_agrees_with_all_its_figures_is_found_by_simulating(simulated: Record, told: list[Record]) -> None:
    """The prediction is whole and weighs as it says; it is another kernel's."""
    lie = dataclasses.replace(simulated, prediction=told[0].prediction)
    answer = again([lie])
    assert answer["different"] == [[lie.id, "simulated again, its path or its traffic is another one"]]


def test_the_work_of_another_simulator_is_not_compared(simulated: Record, told: list[Record]) -> None:
    """Another simulator may honestly count other steps."""
    other = dataclasses.replace(simulated, prediction=told[0].prediction)
    sources = dataclasses.replace(simulated.environment, sources={"simulator": "sha256:" + "0" * 64})
    unknown = dataclasses.replace(simulated.environment, sources=None)
    for one in (dataclasses.replace(other, environment=place) for place in (sources, unknown)):
        answer = again([one])
        assert answer == {"weighed": 1, "simulated": 0, "different": [], "not_comparable": []}


def test_work_of_another_form_is_no_work_of_todays_code(simulated: Record, told: list[Record]) -> None:
    """Only another simulator and other code may honestly have counted in another form."""
    lie = dataclasses.replace(simulated, prediction=told[0].prediction)
    for form in (1, None, "3"):
        other = with_time(lie, work={**time_of(lie).work, "form": form})
        answer = again([other])
        ((_, what),) = answer["different"]
        assert what.endswith(f"of profiles, today's is {FORM}, and its simulator and its code are today's"), form
        assert (answer["weighed"], answer["simulated"], answer["not_comparable"]) == (1, 0, [])


def test_work_of_another_form_is_not_comparable_without_todays_code(simulated: Record, told: list[Record]) -> None:
    lie = dataclasses.replace(simulated, prediction=told[0].prediction)
    form = with_time(lie, work={**time_of(lie).work, "form": 1})
    assert form.kernel is not None
    place = dataclasses.replace(form.environment, sources={"simulator": "sha256:" + "0" * 64})
    code = dataclasses.replace(form.kernel, ptx_digest="sha256:" + "0" * 64)
    gone = dataclasses.replace(form.kernel, ptx_digest="")
    for other, why in (
        (dataclasses.replace(form, environment=place), "it was made with another simulator"),
        (dataclasses.replace(form, kernel=code), "its kernel has other code today"),
        (dataclasses.replace(form, kernel=gone), "its kernel has other code today"),
    ):
        answer = again([other])
        ((_, said_),) = answer["not_comparable"]
        assert said_ == f"its work has the form 1 of profiles, today's is {FORM}: {why}"
        assert (answer["weighed"], answer["different"]) == (0, [])


def test_only_what_is_weighed_is_simulated(simulated: Record) -> None:
    other = with_time(simulated, constants_digest="sha256:" + "3" * 64)
    answer = again([other])
    assert (answer["weighed"], answer["simulated"], len(answer["not_comparable"])) == (0, 0, 1)


def test_other_code_is_not_simulated(simulated: Record, told: list[Record]) -> None:
    answer = again([told[0]])
    assert (answer["weighed"], answer["simulated"], answer["different"]) == (1, 0, [])


def test_work_that_is_none_is_told(told: list[Record]) -> None:
    for work in ({}, {"least": 3}, {**time_of(told[0]).work, "how": "guessed"}):
        odd = with_time(told[0], work=work)
        ((_, what),) = again([odd])["different"]
        assert what.startswith("its work can't be weighed"), work


def test_a_record_with_a_prediction_is_read_as_it_was_written(simulated: Record, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(simulated.to_json(), encoding="utf-8")
    assert load(path) == simulated
    assert json.loads(path.read_text(encoding="utf-8"))["prediction"]["time"]["gpu"] == "h200"
