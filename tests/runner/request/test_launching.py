"""hydra/launcher=NAME on the command line: it belongs to the command and to no job, and what can't be is refused."""

from __future__ import annotations

import pytest

from runner.request import launching
from runner.request.compose import compose_command, compose_jobs, hydra_over, plan_jobs
from runner.request.composer import Composer
from runner.request_error import RequestError

SWEEP = ("world_size=2,3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=3")


def test_a_launchers_lines_are_no_jobs() -> None:
    with hydra_over():
        jobs, launcher = compose_command(SWEEP, True)
        plain, none = compose_command(SWEEP[:1], True)
    assert none is None
    assert [job.overrides for job in jobs] == [("world_size=2",), ("world_size=3",)]
    assert jobs == plain
    assert launcher is not None
    assert (launcher.name, launcher.lines, launcher.options["n_jobs"]) == ("joblib", SWEEP[1:], 3)


def test_they_are_planned_where_no_launcher_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an audit does, on whatever machine."""
    monkeypatch.setattr(launching, "_installed", lambda package: False)
    with hydra_over():
        assert plan_jobs(SWEEP, True) == [("world_size=2",), ("world_size=3",)]
        with pytest.raises(RequestError, match=r"joblib is not installed.*pip install 'symlab\[joblib\]'"):
            plan_jobs(SWEEP, True, Composer())


@pytest.mark.parametrize(
    ("lines", "multirun", "says"),
    [
        (("hydra/launcher=joblib",), False, "a launcher spreads the jobs of a sweep .*, add -m"),
        (("hydra/launcher=ray",), True, r"unknown launcher 'ray' \(hydra/launcher\), known: basic, joblib"),
        (("hydra/launcher=joblib", "hydra.launcher.n_jobs=1,2"), True, "one command has one launcher"),
        (
            ("hydra/launcher=joblib", "hydra.launcher.jobs=2"),
            True,
            r"^joblib has no option 'jobs' \(hydra.launcher.jobs\), did you mean n_jobs\?$",
        ),
        (("hydra/launcher=joblib", "+hydra.launcher.foo=1"), True, r"joblib has no option 'foo'.*known: backend, "),
        (("hydra/launcher=submitit_local", "+hydra.launcher.foo=1"), True, "submitit_local has no option 'foo'"),
        (("hydra/launcher=submitit_slurm", "+hydra.launcher.foo=1"), True, "submitit_slurm has no option 'foo'"),
        (("hydra/launcher=joblib", "hydra.launcher.backend=nonsense"), True, "processes of loky .*backend=nonsense"),
        (("hydra/launcher=joblib", "hydra.launcher.n_jobs=0"), True, r"no worker .*\(hydra.launcher.n_jobs\)"),
        (
            ("hydra/launcher=joblib", "hydra.launcher.timeout=5"),
            True,
            r"until none .*\(hydra.launcher.timeout=5",
        ),
        (
            ("hydra/launcher=joblib", "hydra.launcher.pre_dispatch=foo"),
            True,
            r"one task .*launcher.pre_dispatch=foo",
        ),
        (("hydra/launcher=joblib", "hydra.launcher.batch_size=-5"), True, r"one task .*hydra.launcher.batch_size=-5"),
        (("hydra/launcher=joblib", "hydra.launcher.mmap_mode=x"), True, r"r, r\+, w\+ or c .*mmap_mode=x"),
        (("hydra/launcher=joblib", "hydra.launcher.max_nbytes=huge"), True, r"'huge' is no size .*write it as 1M"),
        (
            ("hydra/launcher=joblib", "hydra.launcher.temp_folder=/no/such"),
            True,
            "/no/such is no folder .*make it",
        ),
        (
            ("hydra/launcher=joblib", "hydra.launcher._target_=os.system"),
            True,
            "is the plugin hydra_plugins.*=os.sys",
        ),
        (("hydra/launcher=submitit_slurm", "hydra.launcher.name='a,b'"), True, r"'a,b': .*\(hydra.launcher.name\)"),
        (("hydra/launcher=submitit_local", "hydra.launcher.cpus_per_task=0"), True, "cpus_per_task is 0 .*1 or more"),
        (("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=-3"), True, "cpus_per_task is -3 .*1 or more"),
        (("hydra.launcher.n_jobs=2",), True, "^'hydra.launcher.n_jobs' has no effect without a launcher .*add hydra/l"),
        (("+hydra.launcher.n_jobs=2",), True, "has no effect without a launcher"),
        (("+hydra/launcher=joblib",), True, r"needs no \+ .*: hydra/launcher=joblib$"),
        (("hydra/launcher=joblib", "hydra/launcher=submitit_local"), True, "^one command has one launcher"),
        (
            ("hydra/launcher=submitit_slurm", "hydra.launcher.additional_parameters.exclusive=true"),
            True,
            r"add it with a \+: \+hydra.launcher.additional_parameters.exclusive=",
        ),
    ],
)
def test_what_is_refused(lines: tuple[str, ...], multirun: bool, says: str) -> None:
    with hydra_over(), pytest.raises(RequestError, match=says):
        compose_command(lines, multirun)


@pytest.mark.parametrize(
    "line", ["pre_dispatch=all", "batch_size=1", "max_nbytes=1M", "max_nbytes=null", "temp_folder=."]
)
def test_what_joblib_takes_is_taken(line: str) -> None:
    with hydra_over():
        _, launcher = compose_command(("world_size=2,3", "hydra/launcher=joblib", f"hydra.launcher.{line}"), True)
    assert launcher is not None


@pytest.mark.parametrize(
    "line",
    [
        "+hydra.launcher.exclusive=true",
        "+hydra.launcher.nodelist=n1",
        "hydra.launcher.mem_gb=0",
        "+hydra.launcher.additional_parameters.exclusive=true",
    ],
)
def test_what_submitit_takes_is_taken(line: str) -> None:
    with hydra_over():
        _, launcher = compose_command(("world_size=2,3", "hydra/launcher=submitit_slurm", line), True)
    assert launcher is not None


def test_other_commands_have_no_launcher() -> None:
    with hydra_over(), pytest.raises(RequestError, match="only symlab run has launchers"):
        compose_jobs(SWEEP, True)
