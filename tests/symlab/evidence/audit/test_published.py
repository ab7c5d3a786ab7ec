"""What is published is audited: the seal over all of it, tables, each machine's records; any changed byte is found."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.record import bundle
from reports.record.seal import MANIFEST, seal
from symlab.evidence import published
from symlab.evidence.audit import worker
from symlab.evidence.audit.items import Outcome, Point
from symlab.evidence.audit.published import audit_published
from tests.golden import same_text
from tests.symlab.evidence.audit.complete_set import answer, records
from tests.symlab.evidence.test_published_tables import MACHINE, published_in

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return published_in(tmp_path_factory.mktemp("project"), {"all_reduce": records()})


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "ask", silent_worker)
    return Path(shutil.copytree(finished, tmp_path / "project"))


def silent_worker(*_):
    return answer()


def audited(root, capsys):
    capsys.readouterr()
    return main(["published", "--audit", "--root", str(root)]), capsys.readouterr().out


def test_all_that_is_published_is_verified(project, capsys):
    code, out = audited(project, capsys)
    assert code == 0
    verdict = "DATA VERIFIED IN PART: data recomputed in 1 of 2; times stated, not verified; consistent; unsigned"
    assert f"{MACHINE}: {verdict}\n" in out
    assert "reports/published: every file is as its manifest has it" in out
    assert "FINDING" not in out


@pytest.mark.parametrize(
    "name",
    [
        f"{MACHINE}/all_reduce.jsonl.xz",
        f"{MACHINE}/table.md",
        f"{MACHINE}/figure.svg",
        f"{MACHINE}/README.md",
        "README.md",
        MANIFEST,
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_any_changed_byte_is_found_and_named(name, share, project, capsys):
    path = project / published.PLACE / name
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    code, out = audited(project, capsys)
    assert code == 1
    # Where the manifest and a file disagree nobody can tell which of them was changed: both are named.
    named = [line for line in out.splitlines() if line.startswith("FINDING: ")]
    assert any(MANIFEST in line if name == MANIFEST else f"reports/published/{name}: changed" in line for line in named)
    assert main(["published", "--check", "--root", str(project)]) == 2
    assert Path(name).name in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_is_gone_or_new_is_found(project, capsys):
    folder = project / published.PLACE
    (folder / MACHINE / "README.md").rename(folder / MACHINE / "NOTES.md")
    (folder / MACHINE / "README.md").write_text("by which commands\n", encoding="utf-8")
    code, out = audited(project, capsys)
    assert (code, f"{MACHINE}/NOTES.md: not in {MANIFEST}" in out) == (1, True)
    (folder / MACHINE / "NOTES.md").unlink()
    assert audited(project, capsys)[0] == 0
    (folder / "README.md").unlink()
    code, out = audited(project, capsys)
    assert (code, "reports/published/README.md: missing" in out) == (1, True)


def findings_of(root, capsys):
    code, out = audited(root, capsys)
    return "\n".join([str(code), *(line for line in out.splitlines() if "FINDING" in line)])


@pytest.mark.parametrize(
    ("name", "was", "sealed"),
    [
        (f"reports/published/{MACHINE}/table.md", "10\\.1", "9.1"),
        ("README.md", "10\\.1", "9.1"),
        ("reports/published/README.md", "All sizes", "Some sizes"),
        (f"reports/published/{MACHINE}/{published.FIGURE}", "sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}"),
    ],
)
def test_what_was_sealed_with_other_figures_is_found(name, was, sealed, project, capsys):
    path = project / name
    text, count = re.subn(was, sealed, path.read_text(encoding="utf-8"))
    assert count
    path.write_text(text, encoding="utf-8")
    seal(project / published.PLACE)
    same_text(findings_of(project, capsys))


def test_a_finding_of_the_worker_counts(project, capsys, monkeypatch):
    found = answer(cases=[Point(Outcome.FINDING, "a case is missing")])
    monkeypatch.setattr(worker, "ask", lambda *_: found)
    same_text(findings_of(project, capsys))


@pytest.mark.parametrize("is_gone", [False, True])
def test_records_that_were_changed_are_not_sealed_by_following_the_advice(is_gone, project, capsys):
    """Quicker samples, packed again as a bundle: their table and their manifest would be right."""
    path = project / published.PLACE / MACHINE / "all_reduce.jsonl.xz"
    before = {one: one.read_bytes() for one in sorted((project / published.PLACE).rglob("*")) if one.is_file()}
    records = [
        replace(one, timing=replace(one.timing, samples_us=[[0.9 * us for us in row] for row in one.timing.samples_us]))
        for one in bundle.read([path])
        if one.timing
    ]
    if is_gone:
        bundle.write(records, path.with_name("other.jsonl.xz"), is_quick=True)
        path.unlink()
    else:
        bundle.write(records, path, is_quick=True)
    for words in (["--check"], []):
        assert main(["published", *words, "--root", str(project)]) == 2
        said = capsys.readouterr().err
        assert f"{path.name}: {'missing' if is_gone else 'changed'}" in said
        assert "put them back (git restore reports/published)" in said
    assert {one: one.read_bytes() for one in before if one.is_file() and one != path}.items() <= before.items()


def test_making_it_again_seals_it_again(project, capsys):
    path = project / published.PLACE / "README.md"
    path.write_text(path.read_text(encoding="utf-8") + "\nMore to say.\n", encoding="utf-8")
    assert audited(project, capsys)[0] == 1
    assert main(["published", "--check", "--root", str(project)]) == 2
    says = "if git diff reports/published shows what you meant, run python -m reports published"
    assert says in capsys.readouterr().err
    assert main(["published", "--root", str(project)]) == 0
    assert f"reports/published/{MANIFEST}: written" in capsys.readouterr().out
    assert audited(project, capsys)[0] == 0


def test_without_a_manifest_it_is_refused(project, capsys):
    (project / published.PLACE / MANIFEST).unlink()
    assert main(["published", "--audit", "--root", str(project)]) == 2
    assert "there is no manifest here" in capsys.readouterr().err


def test_nothing_published_is_not_auditable(tmp_path, capsys):
    (tmp_path / "README.md").write_text("# Title\n", encoding="utf-8")
    assert audit_published(tmp_path, print) == 2
    assert capsys.readouterr().out == "nothing is published\n"


def test_make_audits():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\t@$(RUN) reports published --audit\n" in makefile
    assert worker.PATIENCE_S >= 60
