"""A set for publication, world by world: what runs, in which order, what is kept at once, what later calls go on with.

What worlds give here is invented; test_publish_worlds.py runs real ones in the simulator.
"""

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cases.record.record import FabricInfo, Status
from reports.record.bundle import KERNELS_NAME, PLAN_NAME, read
from runner.interrupt import Interrupted
from runner.records.lock import FolderLock
from runner.request_error import RequestError
from symlab.command import main
from symlab.evidence import published as machines
from symlab.evidence.publish import command
from symlab.evidence.publish.command import Options, Seams, publish
from symlab.evidence.publish.pages import audited
from symlab.evidence.publish.plan import Plan, PlannedWorld, missing_text, read_plan
from symlab.evidence.publish.running import Ran
from tests.golden import refused, same_text
from tests.reports.synthetic import KIB, MIB, record
from tests.repository import git

ASKED = ("fabric=simulator", "world_size=4")


def invented(world, is_timed=False, **changes):
    """The records of a world; with times a figure is drawn of them, which takes a second."""
    sizes = [(name, size) for size in (KIB, MIB) for name in ("one_shot", "nccl")]
    return tuple(record(name, size, world=world, is_timed=is_timed, **changes) for name, size in sizes)


@dataclass
class Machine:
    """A machine without processes: what worlds give by their number, and what they were asked."""

    folder: Path = Path()
    ran: list[tuple[Path, tuple[str, ...]]] = field(default_factory=list)
    outcomes: dict[int, Ran | BaseException] = field(default_factory=dict)
    is_timed: bool = False
    audits: list[Path] = field(default_factory=list)

    def run(self, code, arguments):
        number = len(self.ran)
        self.ran.append((code, tuple(arguments)))
        outcome = self.outcomes.get(number, Ran(invented(number, self.is_timed), 0))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def audit(self, place, records, *_):
        self.audits.append(place)
        return True

    def seams(self, **more):
        return replace(Seams(run=self.run, audit=self.audit), **more)

    def asked(self, *experiments, **more):
        return replace(Options(self.folder, ASKED, experiments or ("barrier",), worlds=2), **more)

    def publish(self, *experiments, seams=None, **more):
        """The exit code of a first call, for two worlds of an experiment; more: other options."""
        return publish(self.asked(*experiments, **more), seams or self.seams())

    def again(self, **more):
        """The exit code of a call that goes on with the folder's plan."""
        return publish(replace(Options(self.folder), **more), self.seams())

    @property
    def page(self):
        return (self.folder / "README.md").read_text()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "invented-x4")


def names_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_set_has_a_bundle_for_each_world_and_the_files_of_a_published_machine(machine, capsys):
    machine.is_timed = True
    assert machine.publish("barrier", "allreduce_bf16") == 0
    worlds = {f"{name}-world{number}.jsonl.xz" for name in ("barrier", "allreduce_bf16") for number in (1, 2)}
    assert names_of(machine.folder) == {*worlds, PLAN_NAME, "README.md", "table.md", "figure.svg"}
    assert len(read([machine.folder])) == 16
    assert [arguments for _, arguments in machine.ran] == [
        (f"+exp={name}", *ASKED, "track=none") for name in ("barrier", "allreduce_bf16") * 2
    ]
    assert machine.audits == [machine.folder]
    same_text(capsys.readouterr().out, COMMIT)


COMMIT = r"\b[0-9a-f]{12}\b"


def test_put_among_the_published_machines_nothing_of_it_changes(machine, tmp_path):
    """Table, figure and page are those that `python -m reports published` makes and asks for."""
    machine.is_timed = True
    place = tmp_path / machines.PLACE
    (tmp_path / "README.md").write_text("# Title\n")
    machine.folder = place / "invented-x4"
    assert machine.publish() == 0
    (place / "README.md").write_text("<!-- published: invented-x4 -->\n<!-- end -->\n")
    before = {path: path.read_bytes() for path in machine.folder.iterdir()}
    machines.refresh(tmp_path)
    machines.refresh(tmp_path, is_check=True)
    assert {path: path.read_bytes() for path in machine.folder.iterdir()} == before


def test_what_is_there_never_runs_again(machine):
    assert machine.publish() == 0
    files = {path: path.stat().st_mtime_ns for path in machine.folder.glob("*.xz")}
    assert machine.again() == 0
    assert len(machine.ran) == 2
    assert {path: path.stat().st_mtime_ns for path in machine.folder.glob("*.xz")} == files


@pytest.mark.slow
def test_a_world_that_was_removed_runs_again(machine):
    machine.publish(experiments=("barrier", "allreduce_bf16"))
    assert "4 of 4 worlds" in machine.page
    assert "symlab publish invented-x4 --experiment barrier --experiment allreduce_bf16 --worlds 2" in machine.page
    (machine.folder / KERNELS_NAME).write_text("{}")
    (machine.folder / "barrier-world2.jsonl.xz").unlink()
    assert machine.again() == 0
    assert len(machine.ran) == 5
    assert not (machine.folder / KERNELS_NAME).exists(), "they were those of other records"


@pytest.mark.slow
def test_a_copy_of_the_folder_goes_on_elsewhere_after_a_kill(machine, tmp_path):
    """SIGKILL between two worlds leaves the plan and the bundles; nothing says the call has ended."""

    class Killed(BaseException):
        pass

    machine.outcomes[1] = Killed()
    with pytest.raises(Killed):
        machine.publish()
    assert names_of(machine.folder) >= {PLAN_NAME, "barrier-world1.jsonl.xz", "README.md", "table.md"}
    elsewhere = tmp_path / "elsewhere" / "invented-x4"
    machine.folder = Path(shutil.copytree(machine.folder, elsewhere))
    assert machine.again() == 0
    assert len(machine.ran) == 3
    assert len(read([elsewhere])) == 8


@pytest.mark.slow
def test_a_failing_world_is_named_and_the_others_run(machine, capsys):
    machine.outcomes[1] = Ran((), 1, "rank 2 was lost")
    assert machine.publish(worlds=3) == 1
    assert len(machine.ran) == 3
    same_text(capsys.readouterr().out, COMMIT)
    assert machine.audits == [], "a set that is not whole is not audited"
    assert machine.again() == 0
    assert len(machine.ran) == 4


@pytest.mark.slow
def test_a_refused_experiment_is_asked_once_a_call(machine):
    machine.outcomes[0] = Ran((), 2, "no GPU is here (fabric), give fabric=simulator")
    assert machine.publish("barrier", "allreduce_bf16") == 1
    assert [arguments[0] for _, arguments in machine.ran] == ["+exp=barrier", *["+exp=allreduce_bf16"] * 2]


def test_a_wrong_case_is_kept_and_named(machine, capsys):
    """What failed is a result: another run would hide it."""
    bad = record("one_shot", KIB, world=1, is_timed=False, status=Status.FAILED, check=None, reason="it hung")
    machine.outcomes[1] = Ran((*invented(1)[1:], bad), 1)
    assert machine.publish() == 1
    assert f"barrier-world2: {bad.id}: FAILED: it hung" in capsys.readouterr().out
    assert machine.again() == 1, "as long as it is there"
    assert len(machine.ran) == 2
    (line,) = [one for one in machine.page.splitlines() if one.startswith("| barrier-world2")]
    assert line.endswith("| 4 | 3 | 0 | 1 |")


def test_a_world_of_another_machine_is_not_mixed_in(machine, capsys):
    other = FabricInfo("nvshmem", "sm_100a", 4, 1 << 33, False, "no", False, "other GPUs")
    machine.outcomes[1] = Ran(invented(1, fabric=other), 0)
    assert machine.publish() == 1
    same_text(capsys.readouterr().out, COMMIT)
    assert len(read([machine.folder])) == 4


def test_simulated_worlds_of_other_settings_are_of_one_machine_without_times(machine):
    """As of experiments with another order of threads."""
    for number, order in enumerate(("fair order", "random order")):
        fabric = FabricInfo("simulator", "sm_90a", 4, 1 << 20, False, "no", True, f"PTX interpreter, {order}")
        machine.outcomes[number] = Ran(invented(number, fabric=fabric, library=""), 0)
    assert machine.publish() == 0
    assert "The simulator ran it: there are no times and no bandwidths, and so no figure." in machine.page
    assert not (machine.folder / "figure.svg").exists()
    assert "GB/s" not in (machine.folder / "table.md").read_text()


def test_an_interrupt_leaves_what_is_stored_and_says_so(machine):
    """The plan has been written with each world."""
    machine.outcomes |= {0: Ran((), 1, "rank 2 was lost"), 2: Interrupted(15)}
    with pytest.raises(Interrupted) as interrupt:
        machine.publish(worlds=3)
    assert interrupt.value.exit_code == 143
    assert interrupt.value.__notes__ == [f"1 of 3 worlds are in {machine.folder}; the same command goes on"]
    assert not list(machine.folder.glob(".*")), "the lock is gone"
    assert {path.name for path in machine.folder.glob("*.xz")} == {"barrier-world2.jsonl.xz"}


@pytest.fixture
def repository(tmp_path):
    """A repository of one commit."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    (root / "file").write_text("")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


@pytest.mark.slow
def test_a_folder_that_would_change_the_tree_is_refused(machine, repository):
    """The worlds' own records would say that their sources are not those of their commit."""
    (repository / ".gitignore").write_text("records/\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "ignored")
    seams = machine.seams(root=repository)
    changing = machine.asked(folder=repository / "reports" / "x4", worlds=1)
    with refused(RequestError):
        publish(changing, seams)
    assert machine.ran == []
    assert publish(machine.asked(folder=repository / "records" / "x4"), seams) == 0
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "change",
    [
        {"experiments": ("no_such",)},
        {"overrides": ("records=x",)},
        {"overrides": ("+track=none",)},
        {"overrides": ("world_size=0",)},
        {"experiments": ()},
        {"experiments": ("a/b", "a-b")},
    ],
)
def test_wrong_requests_run_nothing(machine, tmp_path, change):
    """Such as experiments whose bundles would have the same names: the second one's worlds would count as done."""
    with refused(RequestError, COMMIT):
        machine.publish(**change)
    assert machine.ran == []
    assert list(tmp_path.iterdir()) == []


def test_another_request_for_a_folder_with_a_plan_is_refused(machine):
    machine.publish()
    folder = machine.folder
    folder.with_name("a-b").mkdir()
    Plan(("a/b",), ASKED, worlds=2).write(folder.with_name("a-b"))
    for options in (
        Options(folder, ("world_size=2",)),
        Options(folder, worlds=1),
        Options(folder, worlds=3),
        Options(folder, experiments=("barrier", "allreduce_bf16")),
        Options(folder, ASKED, multirun=True),
        Options(folder.with_name("a-b"), experiments=("a-b",)),
    ):
        with refused(RequestError):
            publish(options, machine.seams())
    assert len(machine.ran) == 2


def test_other_code_does_not_go_on_with_a_set(machine, tmp_path):
    machine.publish()
    other = tmp_path / "other"
    (other / "kernels").mkdir(parents=True)
    (other / "kernels" / "new.py").write_text("")
    kept = (machine.folder / "barrier-world2.jsonl.xz").rename(tmp_path / "kept")
    with refused(RequestError, COMMIT):
        publish(Options(machine.folder), machine.seams(root=other))
    kept.rename(machine.folder / "barrier-world2.jsonl.xz")
    (machine.folder / "figure.svg").unlink(missing_ok=True)
    assert publish(Options(machine.folder), machine.seams(root=other)) == 0, "nothing is left to run: files are made"
    assert len(machine.ran) == 2


def test_an_experiment_that_changed_meanwhile_is_refused(machine, tmp_path):
    own = tmp_path / "own"
    (own / "exp").mkdir(parents=True)
    text = "# @package _global_\n# mine\nop: barrier\nworld_size: 2\n"
    (own / "exp" / "mine.yaml").write_text(text)
    options = Options(machine.folder, ("fabric=simulator",), ("mine",), worlds=1, config_dir=own)
    assert publish(options, machine.seams()) == 0
    assert machine.ran[0][1][:3] == ("--config-dir", str(own), "+exp=mine")
    (own / "exp" / "mine.yaml").write_text(text + "launches: 3\n")
    (machine.folder / "mine-world1.jsonl.xz").unlink()
    with refused(RequestError):
        publish(options, machine.seams())


@pytest.mark.parametrize(
    ("of", "becomes"),
    [
        (r"(?s).+", "[]"),
        (r"(?s).{20}$", ""),
        ('"worlds": 2', '"worlds": "2"'),
        ('"worlds": 2', '"worlds": 0'),
    ],
)
def test_a_damaged_plan_is_one_line(machine, of, becomes):
    machine.publish()
    path = machine.folder / PLAN_NAME
    damaged, changes = re.subn(of, becomes, path.read_text(), count=1)
    assert changes
    path.write_text(damaged)
    with pytest.raises(RequestError, match=f"^{re.escape(str(path))} is no plan.*$"):
        machine.again()


@pytest.mark.slow
def test_a_damaged_bundle_is_named(machine):
    machine.publish()
    path = machine.folder / "barrier-world1.jsonl.xz"
    path.write_bytes(path.read_bytes()[:100])
    with refused(RequestError):
        machine.again()
    path.unlink()
    assert machine.again() == 0
    assert len(machine.ran) == 3


@pytest.mark.slow
def test_a_folder_of_something_else_is_left_alone(machine, tmp_path):
    """Such as a published set with a page that somebody wrote."""
    machine.folder.mkdir()
    (machine.folder / "README.md").write_text("mine")
    (tmp_path / "file").write_text("")
    for place in (machine.folder, tmp_path / "file", tmp_path / "file" / "below"):
        with refused(RequestError):
            machine.publish(folder=place)
    assert machine.page == "mine"
    assert machine.ran == []


@pytest.mark.slow
def test_a_finding_of_the_audit_is_said(machine, capsys):
    """Invented records are of a commit that no audit finds, and name no configuration that composes."""
    assert machine.publish(worlds=1, seams=machine.seams(audit=audited)) == 1
    said = capsys.readouterr().out
    assert "FINDING: " in said


def test_two_calls_at_once_are_refused(machine):
    """The second call comes while the first runs a world."""

    def run(code, arguments):
        with refused(RequestError, r"process \d+ on \S+"):
            machine.again()
        return machine.run(code, arguments)

    assert machine.publish(worlds=1, seams=machine.seams(run=run)) == 0


def test_a_call_goes_on_with_what_another_one_left_just_before_it_had_the_lock(machine, monkeypatch):
    """The plan is read with the lock held: one that this call read before would not have what the other wrote."""
    machine.outcomes[1] = Ran((), 1, "rank 2 was lost")
    assert machine.publish() == 1

    def taken_after_another_call(place):
        monkeypatch.setattr(command, "FolderLock", FolderLock)
        assert machine.again() == 0
        return FolderLock(place)

    monkeypatch.setattr(command, "FolderLock", taken_after_another_call)
    assert machine.again() == 0
    assert len(machine.ran) == 3


def test_a_plan_comes_back_as_it_was_written_and_is_no_record(tmp_path):
    plan = Plan(("a", "b"), ("x=1",), True, 7, "0" * 40, {}, {"a": "sha256:1"})
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan
    assert list(missing_text([PlannedWorld("a", 3), PlannedWorld("a", 1)])) == ["a, world 1, 3"]
    with refused(ValueError):
        read([tmp_path])


def test_the_command_line_reaches_it_and_names_wrong_options(tmp_path, capsys):
    folder = str(tmp_path / "set")
    barrier = (folder, "-e", "barrier")
    for arguments in ([folder], [*barrier, "--worlds", "0"]):
        assert main(["publish", *arguments]) == 2
        same_text(capsys.readouterr().err)
