"""Studies in MLflow: curves over ranks that several jobs of a command make together."""

import pytest

from runner.track.__main__ import main as send_later


@pytest.mark.slow
def test_a_study_is_a_run_a_curve_with_world_sizes_as_steps(symlab, database, mlflow_runs):
    from mlflow import MlflowClient

    arguments = ("-m", "world_size=2,3,4", "sizes=[8,16]", "algorithms=[one_shot]", "dtype=bfloat16/native")
    done = symlab(*arguments, f"track.uri={database}", "track.experiment=study", track=True)
    assert done.code == 0
    assert "n ranks: root-mean-square error / largest error" in done.out
    runs = mlflow_runs("study")
    (curve,) = (run for run in runs["children"] if run.info.run_name.startswith("study "))
    assert curve.info.run_name == "study all_reduce/one_shot bfloat16/native sum, normal inputs"
    assert (curve.info.status, curve.data.params["accumulator"]) == ("FINISHED", "native")
    assert curve.data.params["world_sizes"] == "2 3 4"
    assert curve.data.tags["mlflow.parentRunId"] == runs["parents"][0].info.run_id
    client = MlflowClient(tracking_uri=database)
    for name in ("study/rms_ulp_error", "study/max_ulp_error", "study/ranks_agree"):
        history = client.get_metric_history(curve.info.run_id, name)
        assert sorted(one.step for one in history) == [2, 3, 4], name
    (folder,) = (done.folder / "records").iterdir()
    assert send_later([str(folder), "--uri", database, "--experiment", "study"]) == 0
    assert len(mlflow_runs("study")["children"]) == len(runs["children"]) == 4
