"""Records with invented predictions beside their invented times."""

import dataclasses

from cases.record.prediction import PredictedTerms, PredictedTime, RecordedPrediction

TERMS = PredictedTerms(launch_us=0.7, begin_us=1.2, least_us=4.0, link_us=3.5, memory_us=0.0, more_us=0.5, cold_us=0.0)
BEFORE = dataclasses.replace(TERMS, memory_us=None)
"""As records have them from before the model had this term."""


def predicted(made, us, **changes):
    """A record with an invented prediction of it."""
    time = PredictedTime(
        gpu="h200",
        floors_digest="sha256:" + "a" * 64,
        constants_digest="sha256:" + "b" * 64,
        time_us=us,
        low_us=0.9 * us,
        high_us=1.1 * us,
        regime="mixed",
        ratio=made.timing.median_us / us,
        terms=TERMS,
        path_us={"remote_load": 3.0, "hop": 1.5},
        work={"least": {}, "steps": {"remote_load": 3.0, "hop": 2.0}, "directions": [], "how": "simulated"},
        remarks=("4 ranks: the interval is of cases on 2 GPUs",),
    )
    return dataclasses.replace(made, prediction=RecordedPrediction(dataclasses.replace(time, **changes)))
