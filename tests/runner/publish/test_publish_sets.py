"""A set for publication, world by world: what runs, in which order, what is kept at once, what later calls go on with.

What worlds give here is invented; test_publish_worlds.py runs real ones in the simulator.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reports import publish as machines
from reports.audit.order import alternates, pairs
from reports.record.bundle import PLAN_NAME, read
from reports.record.record import FabricInfo, Record, Status
from runner.interrupt import Interrupted
from runner.publish import command
from runner.publish.command import LATER, Options, Seams, publish
from runner.publish.pages import write_level
from runner.publish.plan import Plan, PlannedWorld, missing_text, read_plan
from runner.publish.running import Ran
from runner.records.lock import FolderLock
from runner.request_error import RequestError
from symlab.command import main
from tests.reports.synthetic import KIB, MIB, record, study

ASKED = ("fabric=simulator", "world_size=4")


def invented(world: int, is_timed: bool = False, **changes: object) -> tuple[Record, ...]:
    """The records of a world; with times a figure is drawn of them, which takes a second."""
    sizes = [(name, size) for size in (KIB, MIB) for name in ("one_shot", "nccl")]
    return tuple(record(name, size, world=world, is_timed=is_timed, **changes) for name, size in sizes)


@dataclass
class Machine:
    """A machine without processes: what worlds give by their number, what they were asked, and its clock."""

    ran: list[tuple[Path, tuple[str, ...]]] = field(default_factory=list)
    outcomes: dict[int, Ran | BaseException] = field(default_factory=dict)
    seconds_a_world: float = 60.0
    is_timed: bool = False
    now_s: float = 0.0
    levels: list[Path] = field(default_factory=list)

    def run(self, code: Path, arguments: Sequence[str]) -> Ran:
        number = len(self.ran)
        self.ran.append((code, tuple(arguments)))
        self.now_s += self.seconds_a_world
        outcome = self.outcomes.get(number, Ran(invented(number, self.is_timed), 0))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def level(self, place: Path, records: Sequence[Record], *_: object) -> bool:
        self.levels.append(place)
        return True

    def seams(self, **more: object) -> Seams:
        return replace(Seams(run=self.run, now=lambda: self.now_s, level=self.level), **more)  # type: ignore[arg-type]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "invented-x4"


def asked(folder: Path, *experiments: str, **more: object) -> Options:
    return replace(Options(folder, ASKED, experiments or ("barrier",), worlds=2), **more)  # type: ignore[arg-type]


def names_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_set_has_a_bundle_for_each_world_and_the_files_of_a_published_machine(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.is_timed = True
    assert publish(asked(folder, "barrier", "allreduce_bf16"), machine.seams()) == 0
    worlds = {f"{name}-world{number}.jsonl.xz" for name in ("barrier", "allreduce_bf16") for number in (1, 2)}
    assert names_of(folder) == {*worlds, PLAN_NAME, "README.md", "table.md", "figure.svg"}
    assert len(read([folder])) == 16
    assert [arguments for _, arguments in machine.ran] == [
        (f"+exp={name}", *ASKED, "track=none") for name in ("barrier", "allreduce_bf16") * 2
    ]
    assert machine.levels == [folder]
    said = capsys.readouterr().out
    assert "[4/4] allreduce_bf16-world2: stored, 4 cases: 4 passed, 60 s" in said
    assert f"4 of 4 worlds in {folder}\n" in said
    assert said.endswith(f"to publish it: mv {folder} reports/published/invented-x4 && symlab publish --derive\n")


def test_put_among_the_published_machines_nothing_of_it_changes(machine: Machine, tmp_path: Path) -> None:
    """Table, figure and page are those that `python -m reports published` makes and asks for."""
    machine.is_timed = True
    place = tmp_path / machines.PLACE
    (tmp_path / "README.md").write_text("# Title\n")
    folder = place / "invented-x4"
    assert publish(asked(folder), machine.seams()) == 0
    (place / "README.md").write_text("<!-- published: invented-x4 -->\n<!-- end -->\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    machines.refresh(tmp_path)
    machines.refresh(tmp_path, is_check=True)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_of_two_commits_one_set_is_put_among_the_published_machines(
    machine: Machine, repository: Path, tmp_path: Path
) -> None:
    """Its folder lies one level deeper, where no set of a machine is looked for."""
    machine.is_timed = True
    folder, place = tmp_path / "turns", tmp_path / machines.PLACE
    assert publish(asked(folder, commits=("first", "second")), machine.seams(root=repository)) == 0
    assert (folder / PLAN_NAME).is_file()
    (tmp_path / "README.md").write_text("# Title\n")
    place.mkdir(parents=True)
    (place / "README.md").write_text("<!-- published: invented-x4 -->\n<!-- end -->\n")
    moved = shutil.move(folder / "after", place / "invented-x4")
    machines.refresh(tmp_path)
    machines.refresh(tmp_path, is_check=True)
    assert len(machines.machines(tmp_path)["invented-x4"]) == 8
    assert not (Path(moved) / PLAN_NAME).exists()


def test_what_is_there_never_runs_again(machine: Machine, folder: Path) -> None:
    assert publish(asked(folder), machine.seams()) == 0
    files = {path: path.stat().st_mtime_ns for path in folder.glob("*.xz")}
    assert publish(Options(folder), machine.seams()) == 0
    assert len(machine.ran) == 2
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.xz")} == files


@pytest.mark.slow
def test_further_worlds_and_experiments_extend_the_plan_and_the_page(machine: Machine, folder: Path) -> None:
    publish(asked(folder), machine.seams())
    assert "2 of 2 worlds" in (folder / "README.md").read_text()
    (folder / "level.json").write_text("{}")
    assert publish(Options(folder, worlds=3), machine.seams()) == 0
    assert "3 of 3 worlds" in (folder / "README.md").read_text()
    assert not (folder / "level.json").exists(), "it was the level of a smaller set"
    assert publish(Options(folder, experiments=("allreduce_bf16",)), machine.seams()) == 0
    assert len(machine.ran) == 6
    page = (folder / "README.md").read_text()
    assert "6 of 6 worlds" in page
    assert "symlab publish invented-x4 --experiment barrier --experiment allreduce_bf16 --worlds 3" in page


@pytest.mark.slow
def test_a_copy_of_the_folder_goes_on_elsewhere_after_a_kill(machine: Machine, folder: Path, tmp_path: Path) -> None:
    """SIGKILL between two worlds leaves the plan and the bundles; nothing says the call has ended."""

    class Killed(BaseException):
        pass

    machine.outcomes[1] = Killed()
    with pytest.raises(Killed):
        publish(asked(folder), machine.seams())
    assert names_of(folder) >= {PLAN_NAME, "barrier-world1.jsonl.xz", "README.md", "table.md"}
    elsewhere = tmp_path / "elsewhere" / "invented-x4"
    shutil.copytree(folder, elsewhere)
    assert publish(Options(elsewhere), machine.seams()) == 0
    assert len(machine.ran) == 3
    assert len(read([elsewhere])) == 8


@pytest.mark.slow
def test_a_failing_world_is_named_and_the_others_run(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.outcomes[1] = Ran((), 1, "rank 2 was lost")
    assert publish(asked(folder, worlds=3), machine.seams()) == 1
    assert len(machine.ran) == 3
    said = capsys.readouterr().out
    assert "[2/3] barrier-world2: FAILED: rank 2 was lost" in said
    assert "not there yet: barrier, world 2" in said
    assert "barrier-world2 failed at" in (folder / "README.md").read_text()
    assert machine.levels == [], "a set that is not whole has no level"
    assert publish(Options(folder), machine.seams()) == 0
    assert len(machine.ran) == 4
    plan = read_plan(folder)
    assert plan is not None
    assert plan.failures == ()
    assert "failed" not in (folder / "README.md").read_text().replace("wrong, failed or late", "")


@pytest.mark.slow
def test_a_refused_experiment_is_asked_once_a_call(machine: Machine, folder: Path) -> None:
    machine.outcomes[0] = Ran((), 2, "no GPU is here (fabric), give fabric=simulator")
    assert publish(asked(folder, "barrier", "allreduce_bf16"), machine.seams()) == 1
    assert [arguments[0] for _, arguments in machine.ran] == ["+exp=barrier", *["+exp=allreduce_bf16"] * 2]


def test_a_wrong_case_is_kept_and_named(machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What failed is a result: another run would hide it."""
    bad = record("one_shot", KIB, world=1, is_timed=False, status=Status.FAILED, check=None, reason="it hung")
    machine.outcomes[1] = Ran((*invented(1)[1:], bad), 1)
    assert publish(asked(folder), machine.seams()) == 1
    assert f"barrier-world2: {bad.id}: FAILED: it hung" in capsys.readouterr().out
    assert publish(Options(folder), machine.seams()) == 1, "as long as it is there"
    assert len(machine.ran) == 2
    (line,) = [one for one in (folder / "README.md").read_text().splitlines() if one.startswith("| barrier-world2")]
    assert line.endswith("| 4 | 3 | 0 | 1 |")


def test_a_world_of_another_machine_is_not_mixed_in(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = FabricInfo("nvshmem", "sm_100a", 4, 1 << 33, False, "no", False, "other GPUs")
    machine.outcomes[1] = Ran(invented(1, fabric=other), 0)
    assert publish(asked(folder), machine.seams()) == 1
    says = "it ran on nvshmem sm_100a Invented GPU, and the set is of nvshmem sm_90a Invented GPU"
    assert says in capsys.readouterr().out
    assert len(read([folder])) == 4


def test_simulated_worlds_of_other_settings_are_of_one_machine(machine: Machine, folder: Path) -> None:
    """As of experiments with another order of threads."""
    for number, order in enumerate(("fair order", "random order")):
        fabric = FabricInfo("simulator", "sm_90a", 4, 1 << 20, False, "no", True, f"PTX interpreter, {order}")
        machine.outcomes[number] = Ran(invented(number, fabric=fabric, library=""), 0)
    assert publish(asked(folder), machine.seams()) == 0


@pytest.mark.slow
def test_no_world_begins_that_would_end_after_the_limit(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A world takes a minute: the third one would end at 180 s, the limit is 170 s."""
    assert publish(asked(folder, worlds=5, limit_s=170.0), machine.seams()) == LATER
    assert len(machine.ran) == 2
    said = capsys.readouterr().out
    assert "not there yet: barrier, world 3, 4, 5" in said
    assert "the same command runs what is left" in said
    assert publish(Options(folder), machine.seams()) == 0
    assert len(machine.ran) == 5


@pytest.mark.slow
def test_a_limit_that_is_too_short_for_a_world_is_refused(machine: Machine, folder: Path) -> None:
    """No call with it would ever run one: "the same command runs what is left" would be untrue for ever."""
    assert publish(asked(folder, worlds=3, limit_s=61.0), machine.seams()) == LATER
    assert len(machine.ran) == 1
    with pytest.raises(RequestError) as error:
        publish(asked(folder, worlds=3, limit_s=60.0), machine.seams())
    assert str(error.value) == "a world of barrier took 1.0 min (--limit-minutes), give more"
    assert len(machine.ran) == 1
    assert publish(asked(folder, worlds=3, limit_s=61.0), machine.seams()) == LATER
    assert len(machine.ran) == 2


def test_the_audit_does_not_begin_after_the_limit(
    machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor are kernels compiled; the next call does both."""
    compiled: list[Path] = []
    monkeypatch.setattr("runner.publish.pages.write_kernels", lambda place, *rest: compiled.append(place))

    def slower(code: Path, arguments: Sequence[str]) -> Ran:
        """The second world takes longer than the first, and so ends after the limit."""
        machine.seconds_a_world = 60.0 + 60.0 * len(machine.ran)
        return machine.run(code, arguments)

    seams = machine.seams(run=slower)
    assert publish(asked(folder, limit_s=170.0), seams) == LATER
    assert (len(machine.ran), machine.levels, compiled) == (2, [], [])
    said = capsys.readouterr().out
    assert f"2 of 2 worlds in {folder}\n{folder}: the audit is left\nthe same command runs what is left\n" in said
    assert publish(asked(folder, limit_s=170.0), seams) == 0
    assert (len(machine.ran), machine.levels, compiled) == (2, [folder], [folder])


def test_an_interrupt_leaves_what_is_stored_and_says_so(machine: Machine, folder: Path) -> None:
    machine.outcomes[1] = Interrupted(15)
    with pytest.raises(Interrupted) as interrupt:
        publish(asked(folder), machine.seams())
    assert interrupt.value.exit_code == 143
    assert interrupt.value.__notes__ == [f"1 of 2 worlds are in {folder}; the same command goes on"]
    assert not list(folder.glob(".*")), "the lock is gone"


@pytest.mark.slow
def test_plan_shows_what_runs_and_writes_nothing(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(asked(folder, plan=True), machine.seams()) == 0
    assert "2 worlds to run: time not measured" in capsys.readouterr().out
    assert not folder.exists()
    assert machine.ran == []
    machine.outcomes[1] = Ran((), 1, "rank 2 was lost")
    publish(asked(folder, worlds=3), machine.seams())
    capsys.readouterr()
    assert publish(Options(folder, plan=True), machine.seams()) == 0
    said = capsys.readouterr().out
    assert "barrier-world1" in said
    assert "stored" in said
    assert "rank 2 was lost" in said
    assert "1 world to run: about 1.0 min" in said


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of two commits, tags first and second, whose file says which one it is."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch", "main")
    for name in ("first", "second"):
        (root / "which").write_text(name)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", name)
        git(root, "tag", name)
    return root


def test_code_that_is_not_that_of_a_commit_is_said_before_worlds_run(
    machine: Machine, folder: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its records no kernels could be compiled later, which was known only once they had been published."""
    (repository / "untracked").write_text("")
    options = asked(folder, "barrier_gpus", overrides=("world_size=2",), worlds=1)
    assert publish(options, machine.seams(root=repository)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("note: this code differs from its commit, or files beside it are untracked: ")
    (repository / "untracked").unlink()
    assert publish(replace(options, worlds=2), machine.seams(root=repository)) == 0
    assert "note:" not in capsys.readouterr().out


@pytest.mark.slow
def test_worlds_of_two_commits_alternate_each_in_a_set_of_its_own(
    machine: Machine, folder: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.is_timed = True
    seen: list[str] = []

    def run(code: Path, arguments: Sequence[str]) -> Ran:
        seen.append((code / "which").read_text())
        return machine.run(code, arguments)

    options = asked(folder, worlds=5, commits=("first", "second"))
    assert publish(options, machine.seams(run=run, root=repository)) == 0
    order = "".join({"first": "A", "second": "B"}[one] for one in seen)
    plan = read_plan(folder)
    assert plan is not None
    assert order == "".join(pairs(5, f"{plan.seed} {plan.experiments[0]}"))
    assert alternates(order)
    for side in ("before", "after"):
        assert len(list((folder / side).glob("*.jsonl.xz"))) == 5
        assert {"README.md", "table.md", "figure.svg"} <= {path.name for path in (folder / side).iterdir()}
    assert machine.levels == [folder / "before", folder / "after"]
    page = (folder / "README.md").read_text()
    assert f"- `before`: commit {git(repository, 'rev-parse', 'first')}, 5 of 5 worlds" in page
    assert "symlab audit invented-x4/before invented-x4/after" in page
    assert f"symlab audit {folder / 'before'} {folder / 'after'}" in capsys.readouterr().out
    assert len(git(repository, "worktree", "list").splitlines()) == 1, "the worktrees are gone"


def test_an_experiment_that_todays_tree_lacks_is_that_of_the_commits(
    machine: Machine, folder: Path, repository: Path
) -> None:
    """Each commit composes its own experiments."""
    options = asked(folder, "of_long_ago", commits=("first", "second"))
    assert publish(options, machine.seams(root=repository)) == 0
    assert [arguments[0] for _, arguments in machine.ran] == ["+exp=of_long_ago"] * 4


@pytest.mark.slow
def test_a_folder_that_would_change_the_tree_is_refused(machine: Machine, repository: Path) -> None:
    """The worlds' own records would say that their sources are not those of their commit."""
    (repository / ".gitignore").write_text("records/\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "ignored")
    seams = machine.seams(root=repository)
    with pytest.raises(RequestError) as error:
        publish(asked(repository / "reports" / "x4"), seams)
    assert "would be of a changed tree (FOLDER), give a folder such as records/x4" in str(error.value)
    assert machine.ran == []
    assert publish(asked(repository / "records" / "x4"), seams) == 0
    assert git(repository, "status", "--porcelain") == ""
    options = asked(repository / "reports" / "x4", worlds=1, commits=("first", "second"))
    assert publish(options, seams) == 0, "worlds of commits run in worktrees"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"experiments": ("no_such",)}, "no_such"),
        ({"overrides": ("records=x",)}, "publish decides records (records), leave it out"),
        ({"overrides": ("+track=none",)}, "publish decides track (track), leave it out"),
        ({"overrides": ("world_size=0",)}, "world_size"),
        ({"commits": ("no-such-commit", "HEAD")}, "git here has no commit no-such-commit (--commits)"),
        ({"commits": ("HEAD", "HEAD")}, "give two"),
        ({"experiments": ()}, "there is no plan yet (--experiment)"),
    ],
)
def test_wrong_requests_run_nothing(
    machine: Machine, folder: Path, change: dict[str, tuple[str, ...]], says: str
) -> None:
    with pytest.raises(RequestError) as error:
        publish(asked(folder, **change), machine.seams())
    assert says in str(error.value)
    assert machine.ran == []
    assert not folder.exists()


def test_experiments_whose_bundles_would_have_the_same_names_are_refused(machine: Machine, folder: Path) -> None:
    """The second one's worlds would count as done."""
    says = "the bundles of a/b and a-b would have the same names (--experiment)"
    with pytest.raises(RequestError) as error:
        publish(asked(folder, "a/b", "a-b"), machine.seams())
    assert says in str(error.value)
    assert machine.ran == []
    folder.mkdir()
    Plan(("a/b",), ASKED, worlds=2).write(folder)
    with pytest.raises(RequestError) as error:
        publish(Options(folder, experiments=("a-b",)), machine.seams())
    assert says in str(error.value)


def test_another_request_for_a_folder_with_a_plan_is_refused(machine: Machine, folder: Path) -> None:
    publish(asked(folder), machine.seams())
    for options, says in (
        (Options(folder, ("world_size=2",)), "the plan has other overrides (overrides)"),
        (Options(folder, worlds=1), "the plan has 2 worlds, not 1 (--worlds)"),
        (Options(folder, ASKED, multirun=True), "the plan has other --multirun"),
    ):
        with pytest.raises(RequestError) as error:
            publish(options, machine.seams())
        assert says in str(error.value)
    assert len(machine.ran) == 2


def test_other_code_does_not_go_on_with_a_set(machine: Machine, folder: Path, tmp_path: Path) -> None:
    publish(asked(folder), machine.seams())
    other = tmp_path / "other"
    (other / "kernels").mkdir(parents=True)
    (other / "kernels" / "new.py").write_text("")
    with pytest.raises(RequestError) as error:
        publish(Options(folder, worlds=3), machine.seams(root=other))
    assert "the plan is of other code than is here" in str(error.value)
    (folder / "figure.svg").unlink(missing_ok=True)
    assert publish(Options(folder), machine.seams(root=other)) == 0, "where nothing is left to run, files are made"
    assert len(machine.ran) == 2


def test_an_experiment_that_changed_meanwhile_is_refused(machine: Machine, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "exp").mkdir(parents=True)
    text = "# @package _global_\n# mine\nop: barrier\nworld_size: 2\n"
    (own / "exp" / "mine.yaml").write_text(text)
    options = Options(folder, ("fabric=simulator",), ("mine",), worlds=1, config_dir=own)
    assert publish(options, machine.seams()) == 0
    assert machine.ran[0][1][:3] == ("--config-dir", str(own), "+exp=mine")
    (own / "exp" / "mine.yaml").write_text(text + "launches: 3\n")
    with pytest.raises(RequestError) as error:
        publish(replace(options, worlds=2), machine.seams())
    assert "mine is another experiment here than in the plan" in str(error.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "[]",
        lambda text: text[:-20],
        lambda text: text.replace('"worlds": 2', '"worlds": "2"'),
        lambda text: text.replace('"worlds": 2', '"worlds": 0'),
        lambda text: text.replace('"commits": []', '"commits": ["a"]'),
        lambda text: text.replace('"failures": []', '"failures": [1]'),
        lambda text: text.replace('"seconds": {', '"seconds": {"x": -1, '),
        lambda text: text.replace('"seconds": {', f'"seconds": {{"x": {10**400}, '),
    ],
)
def test_a_damaged_plan_is_one_line(machine: Machine, folder: Path, damage: Callable[[str], str]) -> None:
    publish(asked(folder), machine.seams())
    path = folder / PLAN_NAME
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    with pytest.raises(RequestError) as error:
        publish(Options(folder), machine.seams())
    assert f"{path} is no plan" in str(error.value)


@pytest.mark.slow
def test_a_damaged_bundle_is_named(machine: Machine, folder: Path) -> None:
    publish(asked(folder), machine.seams())
    path = folder / "barrier-world1.jsonl.xz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RequestError) as error:
        publish(Options(folder), machine.seams())
    assert "barrier-world1.jsonl.xz" in str(error.value)
    assert "remove it, and its world runs again" in str(error.value)
    path.unlink()
    assert publish(Options(folder), machine.seams()) == 0
    assert len(machine.ran) == 3


@pytest.mark.slow
def test_a_folder_of_something_else_is_left_alone(machine: Machine, folder: Path, tmp_path: Path) -> None:
    """Such as a published set with a page that somebody wrote."""
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    (tmp_path / "file").write_text("")
    for place, says in (
        (folder, f"{folder} holds other files, such as README.md, and no plan (FOLDER)"),
        (tmp_path / "file", "can't be written to (File exists; FOLDER)"),
        (tmp_path / "file" / "below", "can't be written to (Not a directory; FOLDER)"),
    ):
        with pytest.raises(RequestError) as error:
            publish(asked(place), machine.seams())
        assert says in str(error.value)
    assert (folder / "README.md").read_text() == "mine"
    assert machine.ran == []


@pytest.mark.slow
def test_a_finding_of_the_audit_is_said_and_leaves_no_level(
    machine: Machine, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invented records are of a commit that no audit finds, and name no configuration that composes."""
    assert publish(asked(folder, worlds=1, rerun=0), replace(machine.seams(), level=write_level)) == 1
    said = capsys.readouterr().out
    assert "FINDING: " in said
    assert "level.json is not written: there are findings" in said
    assert not (folder / "level.json").exists()


def test_two_calls_at_once_are_refused(machine: Machine, folder: Path) -> None:
    """The second call comes while the first runs a world."""
    said: list[str] = []

    def run(code: Path, arguments: Sequence[str]) -> Ran:
        with pytest.raises(RequestError) as error:
            publish(Options(folder), machine.seams())
        said.append(str(error.value))
        return machine.run(code, arguments)

    assert publish(asked(folder, worlds=1), machine.seams(run=run)) == 0
    assert "still works in invented-x4 (FOLDER)" in said[0]


def test_a_call_goes_on_with_what_another_one_left_just_before_it_had_the_lock(
    machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert publish(asked(folder), machine.seams()) == 0

    def taken_after_another_call(place: Path) -> FolderLock:
        monkeypatch.setattr(command, "FolderLock", FolderLock)
        machine.outcomes[3] = Ran((), 1, "it broke")
        assert publish(Options(folder, worlds=4), machine.seams()) == 1
        return FolderLock(place)

    monkeypatch.setattr(command, "FolderLock", taken_after_another_call)
    machine.outcomes[4] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        publish(Options(folder), machine.seams())
    plan = read_plan(folder)
    assert plan is not None
    assert plan.worlds == 4
    assert [(one.world, one.why) for one in plan.failures] == [("barrier-world4", "it broke")]


def test_a_refused_request_leaves_no_folder(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no plan yet"):
        publish(Options(tmp_path / "new" / "set"), machine.seams())
    assert list(tmp_path.iterdir()) == []


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    plan = Plan(("a", "b"), ("x=1",), True, 7, ("0" * 40, "1" * 40), "", {}, {"a": "sha256:1"})
    world = PlannedWorld("a", 3, "after")
    plan = plan.failing(world, "2026-01-01T00:00:00+00:00", "why").passing(PlannedWorld("b", 1, "before"), 12.34)
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan
    assert json.loads((tmp_path / PLAN_NAME).read_text())["seconds"] == {"before/b-world1": 12.3}
    assert list(missing_text([world, PlannedWorld("a", 1, "after")])) == ["after: a, world 1, 3"]


def test_a_plan_is_no_record(tmp_path: Path) -> None:
    """A folder of bundles with a plan is read as before."""
    Plan(("a",)).write(tmp_path)
    with pytest.raises(ValueError, match="no records here"):
        read([tmp_path])


def test_the_command_line_reaches_it_and_names_wrong_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "set")
    assert main(["publish", folder, "-e", "barrier", "--worlds", "1", "--plan", *ASKED]) == 0
    assert "1 world to run" in capsys.readouterr().out
    for arguments, says in (
        ([folder], "there is no plan yet"),
        ([folder, "-e", "barrier", "--worlds", "0"], "worlds"),
        ([folder, "-e", "barrier", "--limit-minutes", "nan"], "--limit-minutes"),
        ([folder, "-e", "barrier", "--commits", "HEAD"], "commits"),
    ):
        assert main(["publish", *arguments]) == 2
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1


def test_a_simulated_set_says_that_it_has_no_times(machine: Machine, folder: Path) -> None:
    simulated = FabricInfo("simulator", "sm_90a", 4, 1 << 20, False, "no", True, "PTX interpreter")
    for number in range(2):
        machine.outcomes[number] = Ran(invented(number, fabric=simulated, library=""), 0)
    assert publish(asked(folder), machine.seams()) == 0
    page = (folder / "README.md").read_text()
    assert "The simulator ran it: there are no times and no bandwidths, and so no figure." in page
    assert not (folder / "figure.svg").exists()
    assert "GB/s" not in (folder / "table.md").read_text()


@pytest.mark.slow
def test_records_of_a_study_are_read_as_worlds(machine: Machine, folder: Path) -> None:
    """Five worlds of one case are one line of the table, with their number."""
    for number in range(5):
        some = study(("one_shot", "nccl"), (KIB,), worlds=number + 1)
        machine.outcomes[number] = Ran(tuple(one for one in some if one.request.command == f"command{number}"), 0)
    assert publish(asked(folder, worlds=5), machine.seams()) == 0
    assert "worlds: 5 new worlds a case" in (folder / "table.md").read_text()
