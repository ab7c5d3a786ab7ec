"""How many workers there are, what each may use, and what is refused before any starts."""

import pytest

from runner.launch import workers
from runner.launch.workers import JobNeeds, groups_of, workers_given
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError
from tests.golden import refused


def asked(name, **options):
    return LaunchRequest(name, options=options)


def on_gpus(*ranks, **changes):
    return [JobNeeds(number, count, False, **changes) for number, count in enumerate(ranks)]


def devices_of(group):
    return [one["CUDA_VISIBLE_DEVICES"] for one in group.environments]


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(workers, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_the_number_of_workers():
    expected = [
        (asked("joblib", n_jobs=-1), 8),
        (asked("joblib", n_jobs=-2), 7),
        (asked("joblib", n_jobs=3), 3),
        (asked("submitit_slurm", array_parallelism=256), 256),
    ]
    assert [workers_given(request) for request, _ in expected] == [number for _, number in expected]
    for none in (asked("joblib", n_jobs=0), asked("submitit_slurm", array_parallelism=-1)):
        with refused(RequestError):
            workers_given(none)


def test_simulated_jobs_share_the_cores():
    jobs = [JobNeeds(number, 2 + number, True) for number in range(5)]
    (group,) = groups_of(asked("joblib", n_jobs=4), jobs, ())
    assert (group.jobs, group.workers) == ((0, 1, 2, 3, 4), 4)
    assert group.environments == ({"OMP_NUM_THREADS": "2"},) * 4
    (group,) = groups_of(asked("joblib", n_jobs=-1), jobs[:2], ())
    assert group.workers == 2


def test_workers_have_disjoint_gpus():
    """Jobs of as many ranks form a group, and no GPU belongs to two workers of it."""
    jobs = on_gpus(2, 4, 2, 8, 2, 2)
    two, four, eight = groups_of(asked("joblib", n_jobs=-1), jobs, tuple("01234567"))
    assert (two.jobs, devices_of(two)) == ((0, 2, 4, 5), ["0,1", "2,3", "4,5", "6,7"])
    assert (four.jobs, devices_of(four)) == ((1,), ["0,1,2,3"])
    assert (eight.jobs, devices_of(eight)) == ((3,), ["0,1,2,3,4,5,6,7"])
    for group in (two, four, eight):
        used = [gpu for text in devices_of(group) for gpu in text.split(",")]
        assert len(used) == len(set(used))


def test_gpus_are_those_that_the_command_was_given(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b,5,6")
    devices = workers.visible_devices(4)
    (group,) = groups_of(asked("joblib", n_jobs=2), on_gpus(2, 2), devices)
    assert devices_of(group) == ["GPU-a,GPU-b", "5,6"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert workers.visible_devices(2) == ("0", "1")


def test_timed_jobs_beside_others_are_refused():
    every, pair = asked("joblib", n_jobs=-1), on_gpus(2, 2, timed=True)
    with refused(RequestError):
        groups_of(every, pair, tuple("0123"))
    assert groups_of(every, pair, tuple("012"))[0].workers == 1
    assert groups_of(every, on_gpus(2, 2), tuple("0123"))[0].workers == 2


def test_slurm_is_asked_for_one_node_with_the_gpus_of_a_world():
    two, four = groups_of(asked("submitit_slurm", array_parallelism=9), on_gpus(2, 4, 2), ())
    assert (dict(two.options), two.jobs, two.workers) == ({"gpus_per_node": 2}, (0, 2), 2)
    assert (dict(four.options), four.jobs, four.workers) == ({"gpus_per_node": 4}, (1,), 1)
    given = asked("submitit_slurm", array_parallelism=9, gres="gpu:h100:8")
    assert groups_of(given, on_gpus(8), ())[0].options == {}


@pytest.mark.parametrize("exclusive", [{"exclusive": True}, {"additional_parameters": {"exclusive": True}}])
def test_timed_jobs_on_slurms_nodes_need_them_alone(exclusive):
    """Two workers of two GPUs fit on a node of four, and share its links; also those of two groups."""
    timed, nine = on_gpus(2, 4, timed=True), asked("submitit_slurm", array_parallelism=9)
    for wrong in (nine, asked("submitit_slurm", array_parallelism=9, exclusive="user")):
        with refused(RequestError):
            groups_of(wrong, timed, ())
    assert len(groups_of(asked("submitit_slurm", array_parallelism=9, **exclusive), timed, ())) == 2
    assert len(groups_of(nine, on_gpus(2, 4), ())) == 2
    assert groups_of(asked("submitit_slurm", array_parallelism=1), on_gpus(2, 2, timed=True), ())[0].workers == 1


def test_sruns_ranks_are_the_jobs():
    joined = asked("submitit_slurm", array_parallelism=1, tasks_per_node=4)
    assert groups_of(joined, on_gpus(4), ())[0].workers == 1
    with refused(RequestError):
        groups_of(joined, on_gpus(4, 2), ())


def test_ranks_that_share_a_gpu_ask_for_one():
    """A worker of joblib gets one of four GPUs, one of Slurm asks for one, and srun starts as many tasks as ranks."""
    jobs = on_gpus(4, 4, 4, shares_gpus=True)
    (group,) = groups_of(asked("joblib", n_jobs=2), jobs, ("0", "1", "2", "3"))
    assert [one["CUDA_VISIBLE_DEVICES"] for one in group.environments] == ["0", "1"]
    (group,) = groups_of(asked("submitit_slurm", array_parallelism=1, tasks_per_node=4), jobs, ())
    assert group.options == {"gpus_per_node": 1}
    for more, devices in ((jobs, ()), (on_gpus(4), tuple("012"))):
        with refused(RequestError):
            groups_of(asked("joblib", n_jobs=2), more, devices)
