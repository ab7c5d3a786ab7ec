"""What a kernel's code is made of: all that its files import, found in their text, wherever they lie."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import sources
from kernels.catalogue import find
from kernels.sources import ROOT, digest_of, sources_of
from tests.golden import refused

RING = """
import json
import numpy
from typing import TYPE_CHECKING
from kernels import shares
from memory.fabric import Traits
import lent.inner.deep as deep
from lent import loose
from . import beside
from .package.module import NAME
if TYPE_CHECKING:
    from .typed import Type
try:
    from .tried import missing
except ImportError:
    missing = None
def body(frame):
    if frame:
        from .inside import late
class Holder:
    from .held import value
"""

FILES = {
    "own/ring.py": RING,
    "own/beside.py": "from .package import other\n",
    "own/package/__init__.py": "",
    "own/package/module.py": "from ..twice import NAME\n",
    "own/package/other.py": "from . import module\n",
    "own/twice.py": "NAME = 1\n",
    "own/typed.py": "",
    "own/tried.py": "",
    "own/inside.py": "import kernels.shares\n",
    "own/held.py": "",
    "own/unused.py": "",
    "path/lent/__init__.py": "",
    "path/lent/loose.py": "",
    "path/lent/unused.py": "",
    "path/lent/inner/deep.py": "import bought\nimport given\n",
    "path/site-packages/bought.py": "",
    "target/given.py": "",
    "target/given-1.0.dist-info/METADATA": "",
}
"""By path: what a user's kernel may look like, with a package of its own on the path, and two installed modules,
the second as `pip install --target` and PYTHONPATH have it."""

UNUSED = (
    "own/unused.py",
    "path/lent/unused.py",
    "path/site-packages/bought.py",
    *[name for name in FILES if "given" in name],
)


def written(folder):
    """FILES in a folder; the path of the kernel's file."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder / "own/ring.py")


@pytest.fixture
def lent(tmp_path, monkeypatch):
    """A folder with FILES whose packages are on the path."""
    folder = tmp_path / "lent"
    written(folder)
    for path in ("path", "path/site-packages", "target"):
        monkeypatch.syspath_prepend(folder / path)
    sources._top_level.cache_clear()
    yield folder
    sources._top_level.cache_clear()


def test_every_import_is_followed_and_installed_packages_are_not(lent):
    found = sources_of((str(lent / "own/ring.py"),))
    outside = {source.path.relative_to(lent).as_posix() for source in found if source.path.is_relative_to(lent)}
    assert outside == set(FILES) - set(UNUSED)
    assert {source.name for source in found if source.path.is_relative_to(ROOT)} == {
        "kernels/__init__.py",
        *(source.name for source in sources_of((str(ROOT / "kernels/shares.py"),))),
    }
    assert {source.name for source in found if not source.path.is_relative_to(ROOT)} == {
        Path(name).name for name in outside
    }


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_edit_of_anything_imported_changes_the_digest(lent, tmp_path, name):
    """Of one imported by the path, too: so both states are at the same place, one after the other."""
    before = digest_of((str(lent / "own/ring.py"),))
    copy = tmp_path / "copy"
    assert digest_of((written(copy),)) == before, "where a file lies is no part of it"
    (lent / name).write_text(FILES[name] + "# edited\n")
    for kept in (digest_of, sources_of, sources.read, sources._imported):
        kept.cache_clear()
    assert (digest_of((str(lent / "own/ring.py"),)) != before) == (name not in UNUSED)


def test_a_file_is_what_it_was_when_first_read(tmp_path):
    file = tmp_path / "once.py"
    file.write_text("A = 1\n")
    (source,) = sources_of((str(file),))
    assert not source.changed
    file.write_text("A = 2\n")
    assert sources_of((str(file),)) == (source,)
    assert source.content == b"A = 1\n"
    assert source.changed
    file.unlink()
    assert source.changed


def test_packages_that_a_file_lies_in_belong_to_it(tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    (inner / "ring.py").write_text("from ....... import beyond\nfrom . import absent\n")
    assert {source.path for source in sources_of((str(inner / "ring.py"),))} == {
        inner / "ring.py",
        inner / "__init__.py",
        inner.parent / "__init__.py",
    }


def test_a_file_without_imports_that_can_be_read_counts_by_itself(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("def (:\n")
    assert [source.name for source in sources_of((str(file),))] == ["broken.py"]
    with refused():
        sources_of((str(tmp_path / "gone.py"),))


LOADED = """
import importlib, json, sys
from cases.case import Case
case = Case(*json.loads(sys.argv[2]))
(spec,) = (one for one in importlib.import_module(sys.argv[1]).KERNELS if one.name == case.name)
spec.build(case)
print(json.dumps([one.__file__ for name, one in sys.modules.items() if name.split(".")[0] == "kernels"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "case"),
    [
        ("one_way", ["all_reduce", "lamport", "bfloat16", "float32", "sum", 1024, 2]),
        ("bulk", ["all_gather", "bulk", "uint8", "none", "none", 1024, 2]),
    ],
)
def test_all_that_building_a_kernel_has_imported_is_in_its_sources(file, case):
    """A process that imports nothing else, and so has only what the kernel needs."""
    command = [sys.executable, "-c", LOADED, f"kernels.ways.{file}", json.dumps(case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={})
    loaded = {Path(file).relative_to(ROOT).as_posix() for file in json.loads(done.stdout)}
    found = {source.name for source in sources_of(find(f"{case[0]}/{case[1]}").files)}
    assert {"kernels/dsl/frame.py", "kernels/dsl/arithmetic.py", f"kernels/ways/{file}.py"} <= loaded
    assert loaded <= found


def test_kernels_differ_in_what_they_are_made_of():
    made = {
        spec.name: {source.name for source in sources_of(spec.files)}
        for spec in map(find, ("all_reduce/one_shot", "all_reduce/lamport", "all_gather/bulk"))
    }
    plain = made["all_reduce/one_shot"]
    inbox = {f"kernels/dsl/{name}.py" for name in ("inbox", "messages", "slots")}
    assert inbox <= made["all_reduce/lamport"]
    assert not inbox & plain
    assert "kernels/dsl/bulk.py" in made["all_gather/bulk"]
    assert all(name.startswith(("kernels/", "cases/")) for names in made.values() for name in names)


def test_every_checkout_gives_the_same_digest(tmp_path):
    for name in ("kernels", "memory", "cases"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from kernels.compile import source_digest; from kernels.ways.one_way import KERNELS"

    def digest():
        command = [sys.executable, "-c", f"{program}; print(source_digest(KERNELS[0]))"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={})
        return done.stdout.strip()

    assert digest() == digest_of(find("all_reduce/lamport").files)
    with (tmp_path / "kernels" / "dsl" / "rank_barriers.py").open("a") as file:
        file.write("\n")
    assert digest() != digest_of(find("all_reduce/lamport").files)
