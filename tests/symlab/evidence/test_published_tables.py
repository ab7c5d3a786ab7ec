"""What is published equals what its bundles make; and every way to differ is noticed."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.record import bundle
from reports.record.seal import MANIFEST, digest_of, seal
from reports.table.compare import rows
from symlab.evidence import published
from tests.golden import same_text
from tests.reports.synthetic import KIB, MIB, study

ROOT = Path(__file__).parents[3]
MACHINE = "invented-x4"
README = f"# Title\n\n<!-- excerpt: {MACHINE} -->\nold\n<!-- end -->\n\nMore.\n"
SECTIONS = README.replace("excerpt", "published")
READMES = {"README.md": README, f"{published.PLACE.as_posix()}/README.md": SECTIONS}


def published_in(root, bundles):
    """A project with one machine whose bundles, records by name, were just published."""
    folder = root / published.PLACE / MACHINE
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("by which commands\n", encoding="utf-8")
    for name, text in READMES.items():
        (root / name).write_text(text, encoding="utf-8")
    for name, records in bundles.items():
        bundle.write(records, folder / f"{name}.jsonl.xz")
    published.refresh(root)
    return root


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Not to be changed."""
    bundles = {
        f"{dtype}-n{ranks}": study(("one_shot", "nccl"), (KIB, MIB), worlds=2, dtype=dtype, world_size=ranks)
        for dtype in ("bfloat16", "float32")
        for ranks in (2, 4)
    }
    return published_in(tmp_path_factory.mktemp("published"), bundles)


@pytest.fixture
def project(finished, tmp_path):
    """The same for this test alone."""
    return Path(shutil.copytree(finished, tmp_path / "project"))


def test_table_figure_and_readme_are_made(project):
    folder = project / published.PLACE / MACHINE
    others = {path.name for path in folder.iterdir() if not path.name.endswith(bundle.SUFFIX)}
    assert others == {"README.md", "table.md", "figure.svg"}
    shown = published.featured(bundle.read([folder]))
    assert shown.heading.startswith("all_reduce bfloat16, accumulator float32, sum, 4 ranks")
    assert bundle.digest(shown.records) in (folder / "figure.svg").read_text(encoding="utf-8")
    place = project / published.PLACE
    readme = (place / "README.md").read_text(encoding="utf-8")
    same_text(readme + (folder / "table.md").read_text(encoding="utf-8"))
    for link in (f"({MACHINE}/{name})" for name in ("figure.svg", "table.md", "README.md")):
        assert link in readme
        assert (place / link.strip("()")).is_file()


def test_the_projects_readme_has_the_first_the_middle_and_the_last_size(project):
    folder = project / published.PLACE / MACHINE
    sizes = [KIB << shift for shift in range(7)]
    for path in folder.glob(f"*{bundle.SUFFIX}"):
        path.unlink()
    (project / published.PLACE / MANIFEST).unlink(missing_ok=True)
    contestants = ("one_shot", "two_shot", "nccl", "nvshmem")
    bundle.write(study(contestants, sizes, worlds=2, dtype="bfloat16", world_size=4), folder / "all.jsonl.xz")
    published.refresh(project)
    readme = (project / "README.md").read_text(encoding="utf-8")
    same_text(readme)
    whole = {row.algorithm: row for row in rows(published.featured(bundle.read([folder]))) if row.size_bytes == KIB}
    ours, library = (whole[name].figure("median_us") for name in ("one_shot", "nccl"))
    (line,) = [one for one in readme.splitlines() if one.startswith("| 1 KiB")]
    assert line.endswith(f"| {ours / library:.2f} |")


def test_the_projects_readme_says_what_its_three_rows_compare():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ((shown, excerpt),) = re.findall(r"<!-- excerpt: (\S+) -->(.*?)<!-- end -->", readme, re.DOTALL)
    days = {name: published.machine_and_day(name)[1] for name in bundle.published_sets(ROOT)}
    assert days[shown] == max(days.values())
    assert excerpt.count("| size |") == 1
    assert len(re.findall(r"^\| \d", excerpt, re.MULTILINE)) == 3
    for words in ("NVSHMEM_DISABLE_NVLS=1", "NCCL_NVLS_ENABLE=0", "in place: nccl", "libraries: NCCL", "NVIDIA H200"):
        assert words in excerpt


def test_making_it_again_changes_nothing(project, capsys):
    files = {path: path.stat().st_mtime_ns for path in project.rglob("*") if path.is_file()}
    capsys.readouterr()
    published.refresh(project)
    published.refresh(project, is_check=True)
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*") if path.is_file()} == files
    digest = digest_of(project / published.PLACE)
    assert capsys.readouterr().out == f"published machines: 1, files written: 0, manifest {digest}\n"


def test_the_projects_readme_names_the_digest_of_the_manifest(project):
    path, manifest = project / "README.md", project / published.PLACE / MANIFEST
    path.write_text(f"{path.read_text(encoding='utf-8')}sealed: <!-- manifest --><!-- end -->\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not as the bundles have it: README.md; run"):
        published.refresh(project, is_check=True)
    published.refresh(project)
    published.refresh(project, is_check=True)
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert f"sealed: <!-- manifest -->`sha256:{digest}`<!-- end -->\n" in path.read_text(encoding="utf-8")
    (project / published.PLACE / MACHINE / "README.md").write_text("by other commands\n", encoding="utf-8")
    published.refresh(project)
    other = hashlib.sha256(manifest.read_bytes()).hexdigest()
    assert other != digest
    assert f"`sha256:{other}`" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*READMES, f"reports/published/{MACHINE}/table.md"])
def test_a_changed_figure_is_noticed_and_mended(project, name):
    path = project / name
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace("| 1 KiB | ", "| 1 KiB | 0").replace("All sizes", "Some sizes"), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != right
    with pytest.raises(ValueError, match=f"not as the bundles have it: {name}; run python -m reports published"):
        published.refresh(project, is_check=True)
    published.refresh(project)
    assert path.read_text(encoding="utf-8") == right


def test_other_records_need_everything_anew(project):
    folder = project / published.PLACE / MACHINE
    records = study(("one_shot", "nccl"), (4 * MIB,), worlds=2, dtype="bfloat16", world_size=4)
    bundle.write(records, folder / "more.jsonl.xz")
    with pytest.raises(ValueError, match=r"table\.md.*README\.md.*figure\.svg"):
        published.refresh(project, is_check=True)
    (folder / "figure.svg").unlink()
    published.refresh(project)
    published.refresh(project, is_check=True)


def test_a_machine_without_a_place_gets_one_at_the_end_of_the_page(project):
    page = project / published.PLACE / "README.md"
    page.write_text("# Title\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"not as the bundles have it: reports/published/README\.md"):
        published.refresh(project, is_check=True)
    published.refresh(project)
    published.refresh(project, is_check=True)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# Title\n\n## 4 x Invented GPU\n\n<!-- published: {MACHINE} -->\n\n![time and bus")
    assert text.endswith("<!-- end -->\n")


def test_days_of_one_machine_are_linked_with_each_other(project):
    first = project / published.PLACE / MACHINE
    second = first.with_name(f"{MACHINE}-2026-11-24")
    shutil.copytree(first, second)
    published.refresh(project)
    published.refresh(project, is_check=True)
    text = (project / published.PLACE / "README.md").read_text(encoding="utf-8")
    assert f"\n## 4 x Invented GPU, 2026-11-24\n\n<!-- published: {second.name} -->\n" in text
    all_of_them = f"all of them: `symlab history reports/published/{MACHINE}*`."
    for other in (first, second):
        assert text.count(f"On other days: [{other.name}]({other.name}/table.md); {all_of_them}") == 1
    assert published.machine_and_day(second.name) == (MACHINE, "2026-11-24")
    assert published.machine_and_day("h200-x2") == ("h200-x2", "")


def test_a_machine_without_its_commands_is_said(project):
    (project / published.PLACE / MACHINE / "README.md").unlink()
    with pytest.raises(ValueError, match="it says by which commands the bundles were made"):
        published.refresh(project)


def test_without_bundles_there_is_nothing_and_its_places_are_empty(tmp_path):
    (tmp_path / published.PLACE).mkdir(parents=True)
    for name, text in READMES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    seal(tmp_path / published.PLACE)
    with pytest.raises(ValueError, match=r"README\.md.*README\.md"):
        published.refresh(tmp_path, is_check=True)
    published.refresh(tmp_path)
    for name, text in READMES.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text.replace("old\n", "")
        (tmp_path / name).write_text("no place\n", encoding="utf-8")
    published.refresh(tmp_path)
    published.refresh(tmp_path, is_check=True)


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_a_folder_that_is_no_project_is_not_in_order(tmp_path, arguments, capsys):
    for root in (tmp_path, tmp_path / "gone"):
        assert main(["published", "--root", str(root), *arguments]) == 2
        assert f"{root}: no README.md here; --root is the project's folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
