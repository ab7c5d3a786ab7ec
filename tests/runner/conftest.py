"""A command line that runs in a folder of its own, on a world that computes nothing, and a database for MLflow."""

import hashlib
import json
import os
import signal
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from cases.finding import Finding
from cases.record.record import Check, Mismatch, load
from cases.record.shared import is_shared_file
from cases.refusal import Refusal
from kernels.catalogue import SPECS
from memory.fabric import Executable, Traits
from runner.__main__ import main
from runner.case.cases import check_against_catalogue, resolved
from runner.command.means import Means
from runner.command.running import Tools
from runner.command.to_mlflow import Connection
from runner.records.command_json import COMMAND_JSON
from runner.request.compose import hydra_over
from runner.request.composer import Composer
from runner.request.overrides import parsed, text_of
from runner.request.validate import validate
from runner.request_error import RequestError
from runner.track.follower import follow
from runner.world.fabrics import FabricName
from runner.world.world import WorldFailure
from symlab.command import main as command
from tests.processes import begun

PTX = ".version 8.0 // multimem.ld_reduce.relaxed.sys.global.add.f32 in words\n"

GOOD = Check("bitwise", 64, 0, 0.0, 0, 0.0, True, 2, True)
BAD = Check("bitwise", 64, 3, 2.5, 7, 1.25, True, 2, True, first_mismatch=Mismatch(1, 0, 5, 1.0, 3.5, "0x1", "0x2"))


def on_its_fabric(request, specs=SPECS):
    """The request with nothing left open, without a look at this machine: "auto" is the simulator."""
    fabric = request.fabric
    return resolved(request, replace(fabric, name=FabricName.simulator) if fabric.name == "auto" else fabric, specs)


@cache
def usual_composer():
    """One for all tests of a process: composing with one each takes ten times as long."""
    return Composer()


def asked(*lines):
    """What each command line asks for."""
    with hydra_over():
        return [one_asked(usual_composer(), line) for line in lines]


def one_asked(composer, line):
    return validate(composer.composition([text_of(one) for one in parsed(line.split())]).config)


def refusals(lines):
    """What is said of each wrong command line, up to its algorithms; " / " stands between two of them."""
    said = []
    with hydra_over():
        for line in lines.split(" / "):
            with pytest.raises(RequestError) as caught:
                check_against_catalogue(on_its_fabric(one_asked(usual_composer(), line)))
            said.append(f"{line.strip()}: {caught.value}")
            assert "\n" not in said[-1]
    return "\n".join(said)


def agrees_and_replays(capsys):
    """The one case in ./records agrees with its configuration, runs again for an audit, and is replayed to the bit."""
    assert command(["audit", "records", "--rerun", "all"]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 cases that configurations ask for: all agree" in said
    assert "1 case run again here from the records alone" in said
    assert command(["replay", "records"]) == 0
    assert "data: 1 BIT-EQUAL" in capsys.readouterr().out


class StubWorld:
    """A world whose programs do nothing but tell the traits."""

    def __init__(self, fabric, world_size):
        self.fabric = fabric
        self.world_size = world_size
        self.healthy = True
        self.closed = False
        self.found = ()

    def run(self, program, argument, deadline_s):
        fabric = self.fabric
        reason = "" if fabric.multicast else "switched off"
        traits = Traits("simulator", fabric.arch, self.world_size, fabric.heap_bytes, fabric.multicast, reason, True)
        return [traits] * self.world_size

    def counters(self):
        return {
            "instructions": 1000 * self.world_size,
            "bytes": {"read [own]": 64},
            "links": {"0->1": 5, "1->0": 9},
            "of": {"launches": 5, "ranks": self.world_size},
        }

    def close(self):
        self.closed = True

    def findings(self):
        return self.found if self.fabric.races else None


@dataclass
class Script:
    """What happens to cases: by a part of their id, an exception or a check; else they pass. And what has happened.

    findings: what the race checker finds, by a part of the case's id; None for a world that has no checker.
    """

    outcomes: dict[str, BaseException | Check | None] = field(default_factory=dict)
    findings: dict[str, tuple[Finding, ...] | None] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    worlds: list[StubWorld] = field(default_factory=list)
    captures: int = 0
    connect: Callable[[], Connection] | None = None

    def tools(self):
        return Tools(
            make_world=self._world,
            capture=self._capture,
            means=Means(self._refuses, self._compiled, self._run_case),
            connect=self.connect,
        )

    def _world(self, fabric, world_size, say):
        self.worlds.append(StubWorld(fabric, world_size))
        return self.worlds[-1]

    def _capture(self, root):
        self.captures += 1
        return {"git": {"commit": "0123abc", "dirty": True}, "host": {"user": "somebody"}}

    def _refuses(self, spec, collective, case, traits):
        return (
            Refusal("fabric.multicast", "no multicast here") if spec.needs_multicast and not traits.multicast else None
        )

    def _compiled(self, spec, case, arch, cache_dir):
        return Executable(spec.name, "kernel", arch, PTX, f"sha256:{hashlib.sha256(PTX.encode()).hexdigest()}")

    def _run_case(self, world, contestant, request):
        case = contestant.case
        self.ran.append(case.id)
        world.found = next((found for part, found in self.findings.items() if part in case.id), ())
        for part, outcome in self.outcomes.items():
            if part not in case.id:
                continue
            if isinstance(outcome, BaseException):
                world.healthy = not isinstance(outcome, WorldFailure)
                raise outcome
            return outcome
        return GOOD if request.check else None


TWO = "algorithms=[one_shot,two_shot]"


def record_files(folder):
    """All records under folder/records."""
    found = folder.glob("records/**/*.json")
    return [path for path in found if path.name != COMMAND_JSON and not is_shared_file(path)]


@dataclass(frozen=True)
class Outcome:
    """How a command line ended, and what it left in its folder."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def records(self):
        """All records, in the order in which they were made."""
        found = [json.loads(load(path).to_json()) for path in record_files(self.folder)]
        return sorted(found, key=lambda record: (record["started"], record["id"]))

    @property
    def statuses(self):
        return sorted(record["status"] for record in self.records)


def in_thread():
    """A follower of a mirror in this process, where MLflow is imported once for all tests."""
    read_message, write_message = os.pipe()
    read_answer, write_answer = os.pipe()
    ends = os.fdopen(read_message), os.fdopen(write_answer, "w")
    follower = threading.Thread(target=follow, args=ends, daemon=True)
    follower.start()
    return Connection(os.fdopen(write_message, "w"), os.fdopen(read_answer), follower.join)


@pytest.fixture
def script():
    return Script(connect=in_thread)


@pytest.fixture
def symlab(tmp_path, monkeypatch, capsys, script):
    """symlab("+exp=allreduce_bf16"): the command line in tmp_path, on stub worlds, untracked unless it says so.

    Two algorithms run where neither an experiment nor a key says which.
    """
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()

    def run(*arguments, track=False):
        looks = any(one[0] == "-" and one != "-m" for one in arguments)
        said = " ".join(arguments)
        more = [] if looks or "algorithms=" in said or "exp=" in said else [TWO]
        more += [] if looks or track or "track" in said else ["track=none"]
        code = main([*arguments, *more], script.tools())
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err, tmp_path)

    return run


@pytest.fixture(autouse=True)
def _no_hydra_left():
    yield
    GlobalHydra.instance().clear()


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """The URI of an MLflow database that all tests share: making one takes a second and more."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def mlflow_runs(database):
    """mlflow_runs(experiment): the runs there, {"parents": [..], "children": [..]}, oldest first."""

    def runs(experiment):
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=database)
        found = client.get_experiment_by_name(experiment)
        every = client.search_runs([found.experiment_id], order_by=["attributes.start_time ASC"]) if found else []
        return {
            "parents": [run for run in every if "mlflow.parentRunId" not in run.data.tags],
            "children": [run for run in every if "mlflow.parentRunId" in run.data.tags],
        }

    return runs


def is_running(process):
    """Whether a process is there; a zombie is."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def ctrl_c_raises():
    """Ctrl-C as Python has it: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(folder, code, *arguments, **options):
    """A Python program in a process of its own, whose output is read."""
    return begun("-c", textwrap.dedent(code), *arguments, cwd=folder, **options)
