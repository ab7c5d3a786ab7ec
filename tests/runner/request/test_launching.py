"""hydra/launcher=NAME on the command line: it belongs to the command and to no job, and what can't be is refused."""

import pytest

from runner.request import launching
from runner.request.compose import compose_command, compose_jobs, hydra_over, plan_jobs
from runner.request.composer import Composer
from runner.request_error import RequestError
from tests.golden import refused, same_text

SWEEP = ("world_size=2,3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=3")


def test_a_launchers_lines_are_no_jobs():
    with hydra_over():
        jobs, launcher = compose_command(SWEEP, True)
        plain, none = compose_command(SWEEP[:1], True)
    assert none is None
    assert [job.overrides for job in jobs] == [("world_size=2",), ("world_size=3",)]
    assert jobs == plain
    assert (launcher.name, launcher.lines, launcher.options["n_jobs"]) == ("joblib", SWEEP[1:], 3)


def test_they_are_planned_where_no_launcher_is_installed(monkeypatch):
    """As an audit does, on whatever machine."""
    monkeypatch.setattr(launching, "_installed", lambda package: False)
    with hydra_over():
        assert plan_jobs(SWEEP, True) == [("world_size=2",), ("world_size=3",)]
        with refused(RequestError):
            plan_jobs(SWEEP, True, Composer())


ONE = ("hydra/launcher=joblib",)
REFUSED = {
    "launchers": (
        ("hydra/launcher=ray",),
        ("hydra/launcher=submitit_local",),
        (*ONE, "hydra.launcher.n_jobs=1,2"),
        ("+hydra/launcher=joblib",),
        (*ONE, "hydra/launcher=submitit_slurm"),
        ("hydra.launcher.n_jobs=2",),
        ("+hydra.launcher.n_jobs=2",),
    ),
    "options": (
        (*ONE, "hydra.launcher.jobs=2"),
        (*ONE, "+hydra.launcher.foo=1"),
        ("hydra/launcher=submitit_slurm", "hydra.launcher.submitit_folder=here"),
        ("hydra/launcher=submitit_slurm", "+hydra.launcher.foo=1"),
        (*ONE, "hydra.launcher._target_=os.system"),
        ("hydra/launcher=submitit_slurm", "hydra.launcher.additional_parameters.exclusive=true"),
    ),
    "joblib": (
        (*ONE, "hydra.launcher.backend=nonsense"),
        (*ONE, "hydra.launcher.timeout=5"),
    ),
    "submitit": (
        ("hydra/launcher=submitit_slurm", "hydra.launcher.name='a,b'"),
        ("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=-3"),
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(kind):
    said = []
    with hydra_over():
        for lines in REFUSED[kind]:
            with pytest.raises(RequestError) as caught:
                compose_command(lines, True)
            said.append(f"{' '.join(lines)}: {caught.value}")
    same_text("\n".join(said))


def test_a_launcher_needs_a_sweep_and_symlab_run():
    with hydra_over():
        with refused(RequestError):
            compose_command(ONE, False)
        with refused(RequestError):
            compose_jobs(SWEEP, True)


def test_what_slurm_takes_is_taken():
    with hydra_over():
        for line in ("+exclusive=true", "+nodelist=n1", "mem_gb=0", "+additional_parameters.exclusive=true"):
            option = f"{line[: line[0] == '+']}hydra.launcher.{line.lstrip('+')}"
            assert launcher_in("hydra/launcher=submitit_slurm", option).name == "submitit_slurm"


def launcher_in(*lines):
    """The launcher of a sweep with these lines, of which no job is composed."""
    composer = Composer()
    plan_jobs(["world_size=2,3", *lines], True, composer)
    return composer.launcher
