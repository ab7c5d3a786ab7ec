"""Specs by their places: loaded from modules and files, sent to other processes, refused in one line."""

import importlib
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from cases.case import Case
from kernels import catalogue
from kernels.brought import spec_at
from kernels.catalogue import find
from kernels.family import Work, spec_with
from kernels.sources import ROOT, sources_of
from kernels.spec import KernelSpec
from kernels.tuning import Step, Tuning
from runner.world.rank import pickled_work
from tests.golden import refused
from tests.kernels.own_kernel import RING, write_ring

CASE = Case("send_recv", "ring", "uint8", "none", "none", 1 << 20, 2)

ELSEWHERE = """
import pickle, sys
from cases.case import Case
try:
    spec = pickle.load(sys.stdin.buffer)
except ValueError as error:
    print(error)
else:
    print(spec.name, spec.launch(Case("send_recv", spec.algorithm, "uint8", "none", "none", 1 << 20, 2)).grid[0])
"""


def elsewhere(sent):
    """What a pickled spec is to a process that has loaded nothing."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_module_and_a_name_are_a_spec():
    found = spec_at("conf.exp.own.ring:SPEC")
    assert (found.name, str(found.origin)) == ("all_gather/ring", "conf.exp.own.ring:SPEC")


def test_a_file_and_a_name_are_a_spec(tmp_path, monkeypatch):
    file = write_ring(tmp_path / "my")
    spec = spec_at(f"{file}:SPEC")
    assert (spec.name, spec.launch(CASE).grid[0]) == ("send_recv/ring", 2)
    assert spec_at("my/ring.py:SPEC", tmp_path) is spec
    monkeypatch.chdir(tmp_path / "my")
    assert spec_at("ring.py:SPEC") is spec
    assert spec_at("./ring.py:TRIAL").launch(CASE).grid[0] == 4
    assert {"ring.py", "steps.py", "kernels/dsl/frame.py"} <= {one.name for one in sources_of(spec.files)}


def test_files_of_the_same_name_are_modules_of_their_own(tmp_path):
    files = [write_ring(tmp_path / str(blocks), blocks) for blocks in (3, 5)]
    first, second = (spec_at(f"{file}:SPEC") for file in files)
    assert [spec.launch(CASE).grid[0] for spec in (first, second)] == [3, 5]
    assert [spec.launch(CASE).grid[0] for spec in pickle.loads(pickle.dumps((first, second)))] == [3, 5]


def test_a_file_within_packages_reaches_all_of_them(tmp_path):
    inner = tmp_path / "outer" / "inner"
    file = write_ring(inner)
    beside = "from .steps import BLOCKS, following"
    assert beside in RING
    file.write_text(RING.replace(beside, "from .steps import following\nfrom ..names import BLOCKS"))
    (tmp_path / "outer" / "names.py").write_text("BLOCKS = 7\n")
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("")
    spec = spec_at(f"{file}:SPEC")
    assert spec.launch(CASE).grid[0] == 7
    assert "names.py" in {one.name for one in sources_of(spec.files)}


@pytest.mark.parametrize("edited", ["ring.py", "steps_on_path.py", "deeper_on_path.py"])
def test_a_bare_import_beside_the_file_belongs_to_it(tmp_path, edited):
    """The file puts its folder on sys.path when it runs: before and after that the sources are the same."""
    file = write_ring(tmp_path)
    (tmp_path / "steps.py").rename(tmp_path / "steps_on_path.py")
    steps = tmp_path / "steps_on_path.py"
    steps.write_text(f"import deeper_on_path\n{steps.read_text()}")
    (tmp_path / "deeper_on_path.py").write_text("DEPTH = 2\n")
    here = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
    file.write_text(RING.replace("from .steps import", f"{here}from steps_on_path import"))
    before = {one.name for one in sources_of((str(file),))}
    assert before >= {"ring.py", "steps_on_path.py", "deeper_on_path.py"}
    code = (
        "import sys\nfrom kernels.brought import spec_at\nfrom kernels.sources import sources_of\n"
        f"spec = spec_at({str(file) + ':SPEC'!r})\n"
        "print(spec.origin.digest, sorted(one.name for one in sources_of(spec.files) if '/' not in one.name))\n"
    )

    def loaded():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout

    first = loaded()
    assert first.endswith("['deeper_on_path.py', 'ring.py', 'steps_on_path.py']\n")
    (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n# another line\n")
    assert loaded().split()[0] != first.split()[0]


@pytest.mark.parametrize("name", ["SPEC", "TRIAL"])
def test_a_spec_crosses_to_another_process(tmp_path, name):
    spec = spec_at(f"{write_ring(tmp_path)}:{name}")
    sent = pickle.dumps(spec)
    assert pickle.loads(sent) is spec
    assert elsewhere(sent) == f"send_recv/ring {spec.launch(CASE).grid[0]}"
    assert elsewhere(pickle.dumps(catalogue.find("send_recv/push"))).startswith("send_recv/push ")


@pytest.mark.parametrize("edited", ["ring.py", "steps.py"])
def test_what_changed_meanwhile_is_refused_on_the_other_side(tmp_path, edited):
    file = write_ring(tmp_path)
    sent = pickle.dumps(spec_at(f"{file}:SPEC"))
    path = tmp_path / edited
    path.write_text(path.read_text() + "\n# another line\n")
    assert elsewhere(sent) == f"{file}:SPEC or what it imports changed after it was first loaded: run it again"
    path.unlink()
    gone = {"ring.py": f"the source {file} can't be read", "steps.py": f"{file}:SPEC: ring.py:8 raises Module"}
    assert elsewhere(sent).startswith(gone[edited])


@pytest.mark.parametrize("edited", ["ring.py", "steps.py"])
def test_a_file_that_changed_is_not_loaded_again(tmp_path, edited):
    file = write_ring(tmp_path)
    spec_at(f"{file}:SPEC")
    path = file.parent / edited
    path.write_text(path.read_text() + "\n# edited\n")
    with refused():
        spec_at(f"{file}:TRIAL")


def test_what_has_no_name_does_not_travel():
    spec = replace(catalogue.find("send_recv/push"), summary="another one")
    assert spec.origin is None
    with refused(pickle.PicklingError):
        pickle.dumps(spec)
    with refused():
        pickled_work(print, [spec])


def test_the_file_that_names_a_kernel_is_part_of_its_code(tmp_path):
    file = tmp_path / "tuned.py"
    file.write_text(
        "from kernels.ways.pull import KERNELS\n"
        "from kernels.tuning import Step, Tuning\n"
        "TUNED = KERNELS[0].retuned(Tuning((Step(threads=96, blocks=3, loads_in_flight=2, reason='a test'),)))\n"
    )
    spec = spec_at(f"{file}:TUNED")
    assert spec.name == "all_reduce/one_shot"
    assert {one.name for one in sources_of(spec.files)} == {
        "tuned.py",
        *(one.name for one in sources_of(find("all_reduce/one_shot").files)),
    }


NO_PLACE = ("ring.py", ":SPEC", "ring.py:", "absent.py:SPEC", "./ring:SPEC", "./ring.txt:SPEC", "ring.py:SPEC")
MODULES = ("nowhere.ring:SPEC", "kernels.nowhere:SPEC", "kernels.catalogue:NAMES")
CHANGED = {"send_recv/ring": "ring", "v/ring": "v/../x", "out_of_place": "out_place", "threads=96": "threads=9"}
FAILING = (
    "\nx = 1\nx.y\n",
    "raise ValueError('one\\ntwo')\n",
    "raise SystemExit\n",
    "x = 1\ndef (:\n",
    "import nowhere\n",
    *(RING.replace(old, new) for old, new in CHANGED.items()),
)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        *((text, "") for text in (*NO_PLACE, *MODULES)),
        *((f"ring.py:{name}", RING) for name in ("SPECS", "X", "Step", "BLOCKS")),
        *(("ring.py:SPEC", content) for content in FAILING),
    ],
    ids=lambda one: one if "\n" not in one else "",
)
def test_what_gives_no_spec_is_said_in_one_line(tmp_path, text, content):
    write_ring(tmp_path).write_text(content)
    (tmp_path / "ring.txt").write_text("")
    with refused():
        spec_at(text, tmp_path)


def test_a_module_that_failed_is_tried_again(tmp_path):
    file = write_ring(tmp_path)
    (tmp_path / "steps.py").unlink()
    with refused(ValueError, r"symlab_brought_\w+"):
        spec_at(f"{file}:SPEC")
    write_ring(tmp_path)
    assert isinstance(spec_at(f"{file}:SPEC"), KernelSpec)


def test_a_body_must_stand_in_a_file():
    scope = {"__name__": "nowhere"}
    exec("def body(frame): pass", scope)
    tuning = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a test"),))
    with refused():
        spec_with("all_reduce/typed_in", scope["body"], tuning, buffers=(), work=Work(lambda case: 1))


def test_a_module_that_is_edited_after_its_import_is_refused(tmp_path, monkeypatch):
    """Its old code would be compiled, and kept under the new sources' key."""
    write_ring(tmp_path / "edited_after_import")
    (tmp_path / "edited_after_import" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("edited_after_import.ring")
    steps = tmp_path / "edited_after_import" / "steps.py"
    steps.write_text(steps.read_text() + "\n# edited\n")
    with refused():
        spec_at("edited_after_import.ring:SPEC")


def test_what_a_failed_file_had_imported_is_imported_anew(tmp_path):
    file = write_ring(tmp_path / "my")
    file.write_text(file.read_text() + "\nimport no_such_module_of_mine\n")
    with refused():
        spec_at(f"{file}:SPEC")
    here = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    assert str(file.parent / "steps.py") not in here
