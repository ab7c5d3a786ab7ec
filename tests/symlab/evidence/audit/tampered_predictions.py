"""Kinds of tampering with predictions beside measured times, and the set that they change.

The set is the invented one, timed with timing.predict: work that was invented for our kernel, weighed by the floors of
h200 and the constants of the project.
"""

# ruff: noqa: E501  # a kind reads best in one line

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from cases.documents import encoded
from cases.record.record import from_json, load
from kernels.catalogue import find
from kernels.compile import executable
from runner.gpu.reading import gpu_type
from symlab.speed.predict.beside import predicted_beside
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.predict.predicting import simulator_digest
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import stored
from tests.symlab.evidence.audit.tampering import (
    LOAD,
    OTHER_WORK,
    Document,
    Kind,
    every,
    first,
    make_measured,
    put,
    record_paths,
    reseal,
)

STEPS = {"remote_load": 4.0, "hop": 2.0, "fence": 1.0, "look": 3.0}
WORK = CaseWork({**STEPS, "remote_load": 3.0}, STEPS, (PhaseWork((Direction(1024.0, 0.0, 0.0),)), PhaseWork((), 1e6)))
NO_WORK_OF_OURS = {"reason": "nccl is a library's, and the model is of the catalogue's kernels", "time": None}


def make_predicted(folder: Path) -> None:
    """Write the invented set as commands leave it that were to predict, too."""
    make_measured(folder)
    for path in record_paths(folder):
        document = json.loads(load(path).to_json())
        document["request"]["configuration"]["timing"]["predict"] = True
        timing = load(path).timing
        assert timing is not None
        told = predicted_beside(
            WORK, timing.footprint_bytes, timing.median_us, rates_of(gpu_type("h200")), stored(), len(timing.samples_us)
        )
        document["prediction"] = encoded(told) if "one_shot" in path.name else NO_WORK_OF_OURS
        path.write_text(json.dumps(document), encoding="utf-8")
    reseal(folder)


def _quicker(document: Document) -> None:
    """Another time with all that follows from it in the record itself."""
    time = document["prediction"]["time"]
    before = time["time_us"]
    time["terms"]["begin_us"] += 1.0
    for name in ("time_us", "low_us", "high_us"):
        time[name] *= (before + 1.0) / before
    time["ratio"] *= before / (before + 1.0)


def _without_memory(document: Document) -> None:
    """As records have it from before the model had this term, with all that follows from it in the record itself."""
    time = document["prediction"]["time"]
    before, less = time["time_us"], time["terms"].pop("memory_us")
    for name in ("time_us", "low_us", "high_us"):
        time[name] *= (before - less) / before
    time["ratio"] *= before / (before - less)


def _fewer_steps(document: Document) -> None:
    time = document["prediction"]["time"]
    time["work"]["steps"]["hop"] += 1.0


def _of_another(document: Document) -> None:
    """Floors of another type, named and not taken."""
    document["prediction"]["time"]["gpu"] = "h100"


def _weighed_as_h100(document: Document) -> None:
    """Floors of another type, taken and named: nothing else contradicts them."""
    timing = from_json(json.dumps(document), "changed").timing
    assert timing is not None
    ranks = len(timing.samples_us)
    told = predicted_beside(WORK, timing.footprint_bytes, timing.median_us, rates_of(gpu_type("h100")), stored(), ranks)
    document["prediction"] = encoded(told)


def _of_todays_code_in_another_form(folder: Path) -> None:
    """Invented work of the code and the simulator of today, said to be of a form that can't be simulated again."""
    record = next(load(path) for path in record_paths(folder) if OURS in path.name)
    assert record.kernel is not None
    case = record.case
    with tempfile.TemporaryDirectory() as cache:
        code = executable(find(case.name), case, record.kernel.arch, Path(cache)).digest

    def change(document: Document) -> None:
        document["kernel"]["ptx_digest"] = code
        document["environment"]["sources"] = {"simulator": simulator_digest()}
        document["prediction"]["time"]["work"]["form"] = 1

    every(change, OURS)(folder)


def _left_out_as_before(document: Document) -> None:
    """As a record of before there were predictions."""
    document["schema"] = 2
    document.pop("prediction")


OURS = "one_shot"

PREDICTIONS = (
    Kind("a predicted time", "predicted", first(put("prediction.time.time_us", lambda value: value * 1.01)), "figures"),
    Kind("measured over predicted", "predicted", first(put("prediction.time.ratio", 1.0)), "figures"),
    Kind("a term of a predicted time", "predicted", first(put("prediction.time.terms.link_us", 3.0)), "figures"),
    Kind("the memory's term left out, and its time with it", "predicted", every(_without_memory, OURS), "figures"),
    Kind("more traffic in memory of a predicted case", "predicted", every(put("prediction.time.work.phases.1.memory_bytes", 1e9), OURS), "figures"),
    Kind("the rest of a predicted path", "predicted", first(put("prediction.time.terms.more_us", 0.0)), "figures"),
    Kind("a wider interval in one record", "predicted", first(put("prediction.time.high_us", 1e3)), "figures"),
    Kind("a wider interval in all records", "predicted", every(put("prediction.time.high_us", lambda us: us * 2), OURS), "figures"),
    Kind("a longer predicted time in all records, consistently", "predicted", every(_quicker, OURS), "figures"),
    Kind("another regime in all records", "predicted", every(put("prediction.time.regime", "mixed"), OURS), "figures"),
    Kind("a step more on a predicted path", "predicted", first(_fewer_steps), "figures"),
    Kind("a kind of step that the work does not have", "predicted", first(put("prediction.time.path_us.atomic", 0.0)), "figures"),
    Kind("more traffic of a predicted case", "predicted", every(put("prediction.time.work.phases.0.directions.0", [1e9, 0.0, 0.0, 0.0]), OURS), "figures"),
    Kind("a remark left out", "predicted", every(put("prediction.time.remarks", ["4 ranks: never measured"]), OURS), "figures"),
    Kind("floors said to be another type's", "predicted", every(_of_another, OURS), "figures"),
    Kind("floors of another type, with all that follows from them", "predicted", every(_weighed_as_h100, OURS), "figures"),
    Kind("work of another form than today's code has", "predicted", _of_todays_code_in_another_form, "figures"),
    Kind("a prediction left out of a record of schema 2", "predicted", first(_left_out_as_before), "figures"),
    Kind("a prediction left out", "predicted", first(lambda document: document.pop("prediction")), "figures"),
    Kind("a prediction of a library's call", "predicted", every(
        lambda document: document.update(prediction=_ours()), "nccl"), "figures"),
    Kind("predictions without timing.predict", "predicted", every(
        put("request.configuration.timing.predict", False)), "figures"),
    Kind("a prediction with a time and a reason", "predicted", first(put("prediction.reason", "none")), LOAD),
    Kind("a step beyond all floats", "predicted", first(put("prediction.time.path_us.hop", 10**400)), LOAD),
    Kind("a prediction below nothing", "predicted", first(put("prediction.time.time_us", -1.0)), LOAD),
    Kind("a prediction in a record of schema 6", "predicted", first(put("schema", 6)), LOAD),
    Kind("a prediction replaced by a reason", "predicted", first(put("prediction", {"time": None, "reason": "too long"})), OTHER_WORK),
    Kind("floors and constants said to be others in all records", "predicted", every(lambda document: document["prediction"]["time"].update(floors_digest="sha256:" + "1" * 64, constants_digest="sha256:" + "2" * 64), OURS), OTHER_WORK),
)  # fmt: skip


def _ours() -> Document:
    timing_free = predicted_beside(WORK, 1e6, 20.0, rates_of(gpu_type("h200")), stored(), 4)
    document: Document = encoded(timing_free)
    return document
