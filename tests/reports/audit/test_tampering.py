"""Each kind of tampering, sealed again by the project's own seal, is found where it is said to be, or listed."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import Record
from reports.audit.checklist import Audit, check
from reports.audit.items import Outcome
from reports.audit.worker import Rerun, predictions_asked
from reports.record.bundle import read
from reports.record.seal import MANIFEST
from tests.reports.audit.complete_set import answer
from tests.reports.audit.tampered_kinds import KINDS, SHOWN, SHOWN_UNFINDABLE, changed_tree
from tests.reports.audit.tampered_predictions import make_predicted
from tests.reports.audit.tampered_workers import SLURM, worked
from tests.reports.audit.tampering import LOAD, NOWHERE, Kind, every, make_measured, put, reseal

ROOT = Path(__file__).parents[3]
README = ROOT / "reports" / "audit" / "README.md"

INVENTED = ("measured", "predicted")
"""Sets of which the worker's answer is invented, too, but for predictions."""

HEADING = "## What no software here can find"


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured") / "records"
    make_measured(folder)
    return folder


@pytest.fixture(scope="session")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predicted") / "records"
    make_predicted(folder)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a command leaves: all_reduce and broadcast in the simulator, said to be of an unchanged HEAD."""
    from runner.environment.commits import tree_of

    folder = tmp_path_factory.mktemp("run") / "records"
    for op, algorithms in (("all_reduce", "one_shot,two_shot"), ("broadcast", "push")):
        words = [f"op={op}", f"algorithms=[{algorithms}]", "sizes.list=[64]", "world_size=2", "dtype=float32"]
        words += ["fabric.name=simulator", "track=none", f"records={folder}"]
        subprocess.run([sys.executable, "-m", "symlab", "run", "-q", *words], cwd=ROOT, check=True, capture_output=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    tree = tree_of(ROOT, head.stdout.strip())
    if isinstance(tree, str):
        pytest.skip(f"git does not have the commit: {tree}")
    git = {"commit": head.stdout.strip(), "branch": "main", "dirty": False, "changed_files": 0, "untracked_files": 0}
    every(put("environment.git", git | {"changed": [], "untracked": [], "diff_digest": ""}))(folder)
    every(put("environment.sources", dict(tree.sources)))(folder)
    for name, digest in tree.code.kernels.items():
        every(put("kernel.source_digest", digest), f"/{name.replace('/', '-')}-")(folder)
    for path in folder.rglob("source*.diff"):
        path.unlink()
    reseal(folder)
    return folder


@pytest.fixture(scope="session")
def stressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a command leaves that ran a case in two random orders."""
    folder = tmp_path_factory.mktemp("stressed") / "records"
    words = ["op=all_reduce", "algorithms=[two_shot]", "sizes.list=[8]", "world_size=2", "stress=late_rank"]
    words += ["stress_seeds=2", "fabric.name=simulator", "track=none", f"records={folder}"]
    subprocess.run([sys.executable, "-m", "symlab", "run", "-q", *words], cwd=ROOT, check=True, capture_output=True)
    return folder


def worker(records: list[Record], places: list[Path], is_rerun: bool = False) -> dict[str, Any]:
    """What the worker says, without a process of its own and without the sources, which no kind changes. is_rerun: with
    all cases run again."""
    from runner import audit_worker
    from runner.environment.commits import commits

    jobs = audit_worker.jobs_of(records)
    recomposed, configurations = audit_worker.configurations(jobs, lambda text: None)
    parts: dict[str, Any] = {}
    if is_rerun:
        asked = asdict(Rerun(patience_s=None))
        parts["rerun"] = audit_worker.rerun(records, asked, 1 << 20, lambda text: None)
    return answer(**parts) | {
        "configurations": configurations,
        "cases": audit_worker.cases(jobs, recomposed),
        "inputs": audit_worker.inputs(records, 1 << 20, lambda text: None),
        "secrets": audit_worker.secrets(records),
        "commits": commits(records, places),
    }


def audited(folder: Path, of: str, is_rerun: bool = False) -> Audit:
    """The checklist of a folder. What the worker says of the invented set is invented, too."""
    from runner import audit_worker

    records = read([folder])
    said = copy.deepcopy(answer()) if of in INVENTED else worker(records, [folder], is_rerun)
    if of == "predicted":
        said["predictions"] = audit_worker.predictions(records, predictions_asked(records), lambda text: None)
    return check(records, [folder], ask=lambda *_: (said, ""))


def findings(audit: Audit) -> dict[int, str]:
    return {
        item.number: "\n".join(point.evidence for point in item.points if point.outcome is Outcome.FINDING)
        for item in audit.items
        if item.outcome is Outcome.FINDING
    }


def tampered(kind: Kind, base: Path, folder: Path) -> Path:
    """The set with the change, sealed again; but for kinds that say themselves that they are not."""
    place = Path(shutil.copytree(base, folder / "records", symlinks=True))
    manifests = {path: path.read_bytes() for path in place.rglob(MANIFEST)}
    kind.change(place)
    mark = place / "unsealed"
    if mark.exists():
        mark.unlink()
        changed_itself = any(path.read_bytes() != data for path, data in manifests.items())
        for path, data in manifests.items() if not changed_itself else ():
            path.write_bytes(data)
    else:
        reseal(place)
    return place


def is_slow(kind: Kind) -> bool:
    return kind.of not in INVENTED or kind in (*SHOWN, *SHOWN_UNFINDABLE)


def parameters(wanted: Callable[[Kind], bool]) -> list[Any]:
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(kind, id=kind.name, marks=marks[is_slow(kind)]) for kind in KINDS if wanted(kind)]


SLOW = [pytest.param(of, marks=pytest.mark.slow) for of in ("run", "stressed")]


@pytest.mark.parametrize("of", [*INVENTED, *SLOW])
def test_what_nothing_was_changed_in_has_no_finding(of: str, request: pytest.FixtureRequest) -> None:
    audit = audited(request.getfixturevalue(of), of)
    assert findings(audit) == {}
    assert audit.exit_code == 0


@pytest.mark.parametrize("launcher", ["joblib", SLURM])
def test_workers_that_nothing_was_changed_in_are_no_finding(launcher: str, measured: Path, tmp_path: Path) -> None:
    place = tampered(Kind("none", "measured", worked(launcher), NOWHERE), measured, tmp_path)
    assert findings(audited(place, "measured")) == {}


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found not in (LOAD, NOWHERE) and not kind.by_rerun))
def test_it_is_found_and_by_which_item(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    audit = audited(tampered(kind, request.getfixturevalue(kind.of), tmp_path), kind.of)
    assert kind.found in findings(audit), findings(audit)
    assert audit.exit_code == 1


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found == LOAD))
def test_it_can_not_be_read(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = tampered(kind, request.getfixturevalue(kind.of), tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # each says something else, in one line
        read([place])
    assert len(str(caught.value).splitlines()) == 1
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found == NOWHERE))
def test_what_nothing_finds_is_listed(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    audit = audited(tampered(kind, request.getfixturevalue(kind.of), tmp_path), kind.of)
    assert findings(audit) == {}, "it is found: say by which item, and take it off the list in the README"


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.by_rerun))
def test_what_only_a_rerun_finds_is_found_by_it(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = tampered(kind, request.getfixturevalue(kind.of), tmp_path)
    assert findings(audited(place, kind.of)) == {}, "it is found without a rerun: say by which item"
    audit = audited(place, kind.of, is_rerun=True)
    assert list(findings(audit)) == [kind.found], findings(audit)
    assert audit.exit_code == 1


@pytest.mark.slow
def test_a_changed_tree_that_is_said_to_be_changed_has_no_finding(run: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(run, tmp_path / "records"))
    changed_tree(place)
    reseal(place)
    audit = audited(place, "run")
    assert findings(audit) == {}
    assert "changed tree" in audit.verdict


@pytest.mark.slow
def test_a_rerun_of_what_was_not_changed_has_no_finding(run: Path) -> None:
    audit = audited(run, "run", is_rerun=True)
    assert findings(audit) == {}
    assert {3, 9, 19} <= set(audit.level.verified)
    assert (audit.level.recomputed, audit.exit_code) == (3, 0)


def listed(heading: str) -> list[tuple[str, str]]:
    """The lines of the table below a heading of the README."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index(f"{heading}\n") :].removeprefix(heading).partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", section, re.MULTILINE)[2:]


def test_the_readme_lists_what_nothing_finds() -> None:
    assert [name for name, _ in listed(HEADING)] == [kind.name for kind in KINDS if kind.found == NOWHERE]


def test_the_readme_counts_the_kinds() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 90
    found = sum(kind.found != NOWHERE and not kind.by_rerun for kind in KINDS)
    only = sum(kind.by_rerun for kind in KINDS)
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"of {len(KINDS)} kinds of change" in text
    assert f"{found} are found" in text
    assert f"{only} only by `--rerun`" in text
