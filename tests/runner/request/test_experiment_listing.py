"""Every named experiment, as it lies in conf/exp: each of its jobs is possible and has cases."""

import dataclasses
import re
from collections import Counter
from functools import cache

import pytest

from cases.ops import COLLECTIVES, OPS, collective
from kernels.catalogue import MATMUL_SPECS, SPECS
from runner.case.bringing import with_names
from runner.case.cases import cases_of, check_against_catalogue
from runner.custom.description import custom_job
from runner.request.chooser import BEST
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import CONF, experiments
from runner.request.validate import CUSTOM
from tests.runner.conftest import on_its_fabric

NAMES = sorted(path.stem for path in (CONF / "exp").glob("*.yaml"))

NUMBERS = {"two": 2, "three": 3, "four": 4, "six": 6, "twenty": 20}


@cache
def expanded(*arguments):
    """Each job of a command with its cases, checked as before a run. The fabric is what its file names."""
    with hydra_over():
        jobs = compose_jobs(arguments, False)
    return [(job, _cases(job)) for job in jobs]


def _cases(job):
    if job.request.custom is not None:
        return (custom_job(job.request.custom, job.request.world_size, job.request.seed, job.request.check).case,)
    named, brought = with_names(job.request)
    if BEST in named.algorithms:  # a table of choices is made on GPUs; what else it asks for is checked here
        left = [name for name in named.algorithms if name != BEST]
        named = dataclasses.replace(named, algorithms="auto" if left == ["auto"] else tuple(left))
    specs = (*SPECS, *MATMUL_SPECS, *(one.spec for one in brought))
    request = on_its_fabric(named, specs)
    check_against_catalogue(request, specs)
    return cases_of(request)


@pytest.mark.parametrize("name", NAMES)
def test_every_job_is_possible_and_every_case_is_new(name):
    jobs = expanded(f"+exp={name}")
    assert {job.experiment for job, _ in jobs} == {name}
    assert all(cases for _, cases in jobs)
    ids = Counter(case.id for _, cases in jobs for case in cases)
    assert [case for case, times in ids.items() if times > 1] == []
    text = experiments()[name]
    assert text
    assert not text.endswith(".")
    said = re.search(r"\((\w+) jobs\)", text)
    assert len(jobs) == (1 if said is None else NUMBERS.get(said[1]) or int(said[1])), "as its line in the help says"


def test_ops_with_a_root_have_one_that_is_not_the_first_rank():
    for rooted in (one.op for one in COLLECTIVES if one.rooted):
        roots = {case.root for _, cases in expanded(f"+exp={rooted}_bf16") for case in cases}
        assert roots == {3}


def test_every_op_has_an_experiment_of_its_own_that_takes_all_its_algorithms():
    """What only moves data has neither accumulator nor reduction; 8 bits run where multimem has them."""
    missing = set(OPS)
    for name in NAMES:
        for job, cases in expanded(f"+exp={name}"):
            algorithms = {spec.algorithm for spec in (*SPECS, *MATMUL_SPECS) if spec.op == job.request.op}
            if algorithms <= {case.algorithm for case in cases} and name.startswith((job.request.op, "allreduce")):
                missing.discard(job.request.op)
            if job.request.dtype.startswith("float8") and any(one.algorithm.startswith("multimem") for one in cases):
                assert job.request.fabric.arch == "sm_100a"
            for case in cases:
                moves = case.op == CUSTOM or not collective(case.op).reduces
                assert (case.reduction == "none") == moves
                assert case.accumulator == "library" or (case.accumulator == "none") == moves
    assert missing == set()
