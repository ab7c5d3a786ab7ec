"""Words of a launcher's world: every program of the runner, every plan and outcome; kernels are each rank's own."""

import ast
import dataclasses
import functools
import hashlib
import importlib
from pathlib import Path

import pytest
import torch

import kernels.compile
import runner
from cases.case import Case
from cases.record.record import Mismatch
from kernels.baselines import find_baseline
from kernels.catalogue import find
from kernels.own.arguments import ArgumentSpec
from memory.fabric import Executable, Launch, Traits
from runner.case.check import RankCheck
from runner.case.contestant import Contestant
from runner.case.program import Plan, RankOutcome
from runner.case.reference import Scale
from runner.case.stress import StressPlan
from runner.command.joined import MODULES, PROGRAMS, JoinedCommand
from runner.custom.nouns import BufferSpec, CustomSpec, Fill
from runner.custom.program import CompiledCustom, CustomOutcome, CustomPlan
from runner.request.compose import compose_jobs, hydra_over
from runner.timing.custom import CustomContestant
from runner.timing.link import LinkTimes
from runner.timing.measure import MeasurePlan, RankMeasurement, RankTimes
from runner.world.plain import NotPlain
from tests.golden import refused
from tests.patience import NEVER_S

ROOT = Path(runner.__file__).parent
REQUEST = ("op=all_reduce", "world_size=2", "sizes=[64]", "fabric=nvshmem", "track=none")


@functools.cache
def composed(*overrides):
    with hydra_over():
        return compose_jobs([*REQUEST, *overrides], False)


@pytest.fixture(scope="module")
def own():
    return JoinedCommand(composed())


@pytest.fixture
def case():
    return Case("all_reduce", "one_shot", "float32", "float32", "sum", 64, 2)


@pytest.fixture
def compiled(monkeypatch):
    """What compiling gives in this process: PTX of that text."""

    def executable(ptx):
        digest = hashlib.sha256(ptx.encode()).hexdigest()
        return Executable("all_reduce/one_shot", "kernel", "sm_90a", ptx, digest, b"c")

    monkeypatch.setattr(kernels.compile, "executable", lambda spec, case, arch, cache_dir: executable("ptx"))
    return executable


@pytest.mark.slow
def test_every_program_that_the_runner_runs_on_a_world_has_a_name():
    """A new one is added to PROGRAMS, or its command fails in launchers' worlds alone."""
    found = set()
    for path in ROOT.rglob("*.py"):
        if path.parent.name == "world":
            continue  # it runs what it is given
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            alias.asname or alias.name: f"{node.module}:{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(ast.Name("world"), "run"), [ast.Name(name), _, _]):
                    found.add(imported.get(name, f"{module}:{name}"))
    assert found == PROGRAMS


def test_every_name_is_of_something():
    words = JoinedCommand(composed()).vocabulary
    for name in PROGRAMS:
        assert words.program_name(words.program(name)) == name
    for module in MODULES:
        importlib.import_module(module)


def plans(case, executable):
    spec = find(case.name)
    baseline = find_baseline("nccl")
    library = dataclasses.replace(case, algorithm="nccl")
    (job,) = composed()
    contestants = (Contestant(case, spec, executable), Contestant(library, baseline))
    return [
        None,
        Plan(case, spec, executable, launches=3, patience_s=NEVER_S, between=0),
        Plan(library, baseline, check=False),
        MeasurePlan(contestants, job.request.timing, link=True),
        StressPlan((case, case), spec, (executable, executable), rounds=3),
    ]


def test_all_plans_arrive_with_what_is_compiled_here(own, case, compiled):
    theirs = dataclasses.replace(compiled("ptx"), cubin=b"hostile")
    words = own.vocabulary
    for plan in plans(case, theirs):
        text = words.written(plan)
        assert "ptx" not in text.replace(theirs.digest, "")
        assert "hostile" not in text
        found = words.read(text)
        if isinstance(plan, Plan) and plan.executable is not None:
            assert found == dataclasses.replace(plan, executable=compiled("ptx"))
        elif isinstance(plan, StressPlan):
            assert found == dataclasses.replace(plan, executables=(compiled("ptx"), compiled("ptx")))
        elif isinstance(plan, MeasurePlan):
            assert [one.executable for one in found.contestants] == [compiled("ptx"), None]
            assert found == dataclasses.replace(plan, contestants=found.contestants)
        else:
            assert found == plan


def test_other_code_or_sources_here_are_refused_by_name(own, case, compiled, tmp_path):
    for place in (1, -1):
        plan = plans(case, compiled("other ptx"))[place]
        with refused(NotPlain):
            own.vocabulary.read(own.vocabulary.written(plan))
    plan = plans(case, compiled("ptx"))[1]
    more = tmp_path / "more.py"
    more.touch()
    changed = dataclasses.replace(plan.spec, files=(*plan.spec.files, str(more)))
    text = own.vocabulary.written(dataclasses.replace(plan, spec=changed))
    with refused(NotPlain):
        own.vocabulary.read(text)


def test_a_brought_kernel_is_the_one_of_the_own_command_line(case, own):
    place = "conf/exp/own/ring.py:SPEC"
    brought = JoinedCommand(composed("op=all_gather", "world_size=4", f"algorithms=['{place}']"))
    (spec,) = (spec for key, spec in brought._specs.items() if (key, spec) not in own._specs.items())
    text = brought.vocabulary.written(spec)
    assert brought.vocabulary.read(text) is spec
    with refused(NotPlain):
        own.vocabulary.read(text)


def outcomes():
    mismatch = Mismatch(1, 0, 5, 1.0, float("inf"), "0x1", "0x2")
    scale = Scale(4, 1.0, 2.0, 3.0)
    check = RankCheck(
        1, "bound", 4, 1, mismatch, float("inf"), 7, 1.5, ("ab",), 2, True, ("guard",), "b", 1.0, 0.5, scale
    )
    times = RankTimes(2, 64, 4, (1.5, 2.5), (8, 8), (check, check))
    custom = RankTimes(2, 4, 1, (1.5,), (8, 8), wrong=CustomOutcome(1, (), ("g",)))
    return [
        Traits("nvshmem", "sm_90a", 2, 1 << 33, False, "switched off", multiprocessors=132),
        RankOutcome(1, check),
        RankOutcome(0, None),
        RankMeasurement(
            1, (times, custom), LinkTimes(256, (1.0,), (2.0,)), {"uuid": "GPU-1"}, {"not_captured": "no"}, 50 << 20
        ),
        {"rank": 0, "process": 7, "libraries": {"nccl": "2.28"}, "not_captured": {"x": "why"}},
    ]


def test_all_outcomes_come_home(own):
    for outcome in outcomes():
        found = own.vocabulary.read(own.vocabulary.written(outcome))
        assert found == outcome
        assert type(found) is type(outcome)


@pytest.mark.slow
def test_a_custom_plan_arrives_with_the_own_kernel(own, monkeypatch):
    theirs = Executable("custom/k", "k", "sm_90a", "ptx", "sha256:1")
    launch = Launch((2, 1, 1), 64, 128, 2)
    mine = CompiledCustom(dataclasses.replace(theirs, cubin=b"mine"), launch)
    spec = CustomSpec(
        "k",
        launch,
        (BufferSpec("a", "float32", (4,), fill=Fill.rank),),
        (ArgumentSpec("address", "a"), ArgumentSpec("bytes", b"\x01")),
    )
    plan = CustomPlan(spec, CompiledCustom(theirs, launch), 3, 2, ("a",), {"a": (torch.arange(4.0), torch.ones(4))})
    monkeypatch.setattr(JoinedCommand, "_custom_kernels", lambda self, arch: iter([mine]))
    found = JoinedCommand(composed()).vocabulary.read(own.vocabulary.written(plan))
    assert found.compiled == mine
    contestant = CustomContestant(plan, ({"a": torch.ones(4)},))
    measured = MeasurePlan((contestant,), composed()[0].request.timing, link=True)
    words = JoinedCommand(composed()).vocabulary
    assert words.read(own.vocabulary.written(measured)).contestants[0].run.compiled == mine
    assert found.spec == spec
    assert all(map(torch.equal, found.given["a"], plan.given["a"]))
    outcome = CustomOutcome(1, ({"a": torch.arange(4.0)},), ("guard",))
    home = own.vocabulary.read(own.vocabulary.written(outcome))
    assert torch.equal(home.outputs[0]["a"], outcome.outputs[0]["a"])
    others = CompiledCustom(mine.executable, Launch(4, 64))
    follows = dataclasses.replace(mine, then=(mine,))
    apart = dataclasses.replace(follows, then=(others,))
    for sent, here in ((plan.compiled, others), (follows, apart)):
        monkeypatch.setattr(JoinedCommand, "_custom_kernels", lambda self, arch, here=here: iter([here]))
        with pytest.raises(NotPlain, match="^custom/k is other code here"):
            JoinedCommand(composed()).vocabulary.read(own.vocabulary.written(dataclasses.replace(plan, compiled=sent)))


def test_the_kernel_of_a_custom_job_is_found_by_its_digest():
    with hydra_over():
        jobs = compose_jobs(["exp=custom_ptx"], False)
    own = JoinedCommand(jobs)
    (mine,) = own._custom_kernels("sm_90a")
    wanted = CustomPlan(CustomSpec("x", Launch(1, 1), (BufferSpec("a", "float32", (1,)),), ()), mine)
    assert own.vocabulary.read(own.vocabulary.written(wanted)).compiled == mine
