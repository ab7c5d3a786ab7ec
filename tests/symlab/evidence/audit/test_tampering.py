"""Each kind of tampering, sealed again by the project's own seal, is found where it is said to be, or listed."""

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from reports.record.bundle import read
from reports.record.seal import MANIFEST
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.items import Outcome, Tally
from symlab.evidence.audit.level import with_outcome
from symlab.evidence.audit.material import Material
from symlab.evidence.replay.rerun_results import Found, RerunResults
from tests.symlab.evidence.audit.complete_set import answer
from tests.symlab.evidence.audit.tampered_kinds import KINDS, changed_tree
from tests.symlab.evidence.audit.tampering import LOAD, UNFINDABLE, every, make_measured, put, reseal

ROOT = Path(__file__).parents[4]
README = ROOT / "symlab" / "evidence" / "audit" / "README.md"

SOURCES = ("same", "same_code", "changed", "older", "gone", "not_comparable")

NOT_RERUN = RerunResults(Found(Tally([("a case", "all_reduce/one_shot", "simulator")])), 0, 1, [])
"""What comes of a rerun of one case that is in no set."""

HEADING = "## What no software here can find"


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "records"
    make_measured(folder)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """What a command leaves: all_reduce and broadcast in the simulator, said to be of an unchanged HEAD."""
    from symlab.evidence.replay.commits import tree_of

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
    for path in folder.rglob("source*.diff"):
        path.unlink()
    reseal(folder)
    return folder


@pytest.fixture(scope="session")
def stressed(tmp_path_factory):
    """What a command leaves that ran a case in two random orders."""
    folder = tmp_path_factory.mktemp("stressed") / "records"
    words = ["op=all_reduce", "algorithms=[two_shot]", "sizes.list=[8]", "world_size=2", "stress=late_rank"]
    words += ["stress_seeds=2", "fabric.name=simulator", "track=none", f"records={folder}"]
    subprocess.run([sys.executable, "-m", "symlab", "run", "-q", *words], cwd=ROOT, check=True, capture_output=True)
    return folder


def said(records, of, folder, is_rerun):
    """What the worker says, without a process of its own and without the sources, which no kind changes; of the
    invented set that is invented, too."""
    from symlab.evidence import recompute
    from symlab.evidence.replay import rerun

    if of == "measured":
        return answer()
    wanted = worker.Wanted(rerun=worker.Rerun(patience_s=None))
    with ExitStack() as stack:
        stack.enter_context(patch.object(recompute, "sources", lambda *_, **__: {key: [] for key in SOURCES}))
        if not is_rerun:
            stack.enter_context(patch.object(rerun, "rerun", lambda *_: NOT_RERUN))
        return recompute.answer(Material(tuple(records), (folder,)), wanted, lambda text: None)


def audited(folder, of, is_rerun=False):
    """The checklist of a folder."""
    records = read([folder])
    found = said(records, of, folder, is_rerun)
    with patch.object(worker, "ask", lambda *_: found):
        return check(records, [folder])


def findings(audit):
    return {
        item.name: "\n".join(point.evidence for point in item.points if point.outcome is Outcome.FINDING)
        for item in audit.items
        if item.outcome is Outcome.FINDING
    }


def tampered(kind, base, folder):
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


def parameters(wanted):
    marks = {True: [pytest.mark.slow], False: []}
    return [pytest.param(kind, id=kind.name, marks=marks[kind.of != "measured"]) for kind in KINDS if wanted(kind)]


SLOW = [pytest.param(of, marks=pytest.mark.slow) for of in ("run", "stressed")]


@pytest.mark.parametrize("of", ["measured", *SLOW])
def test_what_nothing_was_changed_in_has_no_finding(of, request):
    audit = audited(request.getfixturevalue(of), of)
    assert findings(audit) == {}
    assert audit.exit_code == 0


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found not in (LOAD, *UNFINDABLE) and not kind.by_rerun))
def test_it_is_found_and_by_which_item(kind, request, tmp_path):
    audit = audited(tampered(kind, request.getfixturevalue(kind.of), tmp_path), kind.of)
    assert kind.found in findings(audit), findings(audit)
    assert audit.exit_code == 1


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found == LOAD))
def test_it_can_not_be_read(kind, request, tmp_path):
    place = tampered(kind, request.getfixturevalue(kind.of), tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # each says something else, in one line
        read([place])
    assert len(str(caught.value).splitlines()) == 1
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.found in UNFINDABLE))
def test_what_nothing_finds_is_listed(kind, request, tmp_path):
    audit = audited(tampered(kind, request.getfixturevalue(kind.of), tmp_path), kind.of)
    assert findings(audit) == {}, "it is found: say by which item, and take it off the list in the README"


@pytest.mark.parametrize("kind", parameters(lambda kind: kind.by_rerun))
def test_what_only_a_rerun_finds_is_found_by_it(kind, request, tmp_path):
    place = tampered(kind, request.getfixturevalue(kind.of), tmp_path)
    assert findings(audited(place, kind.of)) == {}, "it is found without a rerun: say by which item"
    audit = audited(place, kind.of, is_rerun=True)
    assert list(findings(audit)) == [kind.found], findings(audit)
    assert audit.exit_code == 1


@pytest.mark.slow
def test_a_changed_tree_that_is_said_to_be_changed_has_no_finding(run, tmp_path):
    place = Path(shutil.copytree(run, tmp_path / "records"))
    changed_tree(place)
    reseal(place)
    audit = audited(place, "run")
    assert findings(audit) == {}
    assert "changed tree" in audit.verdict


@pytest.mark.slow
def test_a_rerun_of_what_was_not_changed_has_no_finding(run):
    audit = audited(run, "run", is_rerun=True)
    assert findings(audit) == {}
    assert {"kernels", "data", "replay"} <= set(with_outcome(audit.items, Outcome.VERIFIED))
    assert (audit.level.data.recomputed, audit.exit_code) == (3, 0)


def listed(heading):
    """The lines of the table below a heading of the README."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index(f"{heading}\n") :].removeprefix(heading).partition("\n## ")[0]
    return re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", section, re.MULTILINE)[2:]


def test_the_page_lists_what_nothing_finds():
    assert [name for name, _ in listed(HEADING)] == list(UNFINDABLE)
    assert {kind.found for kind in KINDS} >= set(UNFINDABLE)


def test_the_page_counts_the_kinds():
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 90
    found = sum(kind.found not in UNFINDABLE and not kind.by_rerun for kind in KINDS)
    only = sum(kind.by_rerun for kind in KINDS)
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert f"of {len(KINDS)} kinds of change" in text
    assert f"{found} are found" in text
    assert f"{only} only by running cases again" in text
