"""Specs by their places: loaded from modules and files, sent to other processes, refused in one line."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels import catalogue
from kernels.all_reduce import one_shot
from kernels.brought import spec_at
from kernels.family import spec_with
from kernels.sources import ROOT, sources_of
from kernels.spec import Case, KernelSpec
from kernels.tuning import Step, Tuning
from runner.world.rank import pickled_work
from tests.kernels.own_kernel import RING, write_ring

CASE = Case("send_recv", "ring", "uint8", "none", "none", 1 << 20, 2)

ELSEWHERE = """
import pickle, sys
from kernels.spec import Case
try:
    spec = pickle.load(sys.stdin.buffer)
except ValueError as error:
    print(error)
else:
    print(spec.name, spec.launch(Case("send_recv", spec.algorithm, "uint8", "none", "none", 1 << 20, 2)).grid[0])
"""


def elsewhere(sent: bytes) -> str:
    """What a pickled spec is to a process that has loaded nothing."""
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_a_module_and_a_name_are_a_spec() -> None:
    assert spec_at("kernels.all_reduce.one_shot:SPEC") is one_shot.SPEC
    assert str(one_shot.SPEC.origin) == "kernels.all_reduce.one_shot:SPEC"


def test_a_file_and_a_name_are_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_ring(tmp_path / "my")
    spec = spec_at(f"{file}:SPEC")
    assert (spec.name, spec.launch(CASE).grid[0]) == ("send_recv/ring", 2)
    assert spec_at("my/ring.py:SPEC", tmp_path) is spec
    monkeypatch.chdir(tmp_path / "my")
    assert spec_at("ring.py:SPEC") is spec
    assert spec_at("./ring.py:TRIAL").launch(CASE).grid[0] == 4
    assert {"ring.py", "steps.py", "kernels/dsl/frame.py"} <= {one.name for one in sources_of(spec.files)}


def test_files_of_the_same_name_are_modules_of_their_own(tmp_path: Path) -> None:
    files = [write_ring(tmp_path / str(blocks), blocks) for blocks in (3, 5)]
    first, second = (spec_at(f"{file}:SPEC") for file in files)
    assert [spec.launch(CASE).grid[0] for spec in (first, second)] == [3, 5]
    assert [spec.launch(CASE).grid[0] for spec in pickle.loads(pickle.dumps((first, second)))] == [3, 5]


def test_a_file_within_packages_reaches_all_of_them(tmp_path: Path) -> None:
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
def test_a_bare_import_beside_the_file_belongs_to_it(tmp_path: Path, edited: str) -> None:
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

    def loaded() -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout

    first = loaded()
    assert first.endswith("['deeper_on_path.py', 'ring.py', 'steps_on_path.py']\n")
    (tmp_path / edited).write_text((tmp_path / edited).read_text() + "\n# another line\n")
    assert loaded().split()[0] != first.split()[0]


@pytest.mark.parametrize("name", ["SPEC", "TRIAL"])
def test_a_spec_crosses_to_another_process(tmp_path: Path, name: str) -> None:
    spec = spec_at(f"{write_ring(tmp_path)}:{name}")
    sent = pickle.dumps(spec)
    assert pickle.loads(sent) is spec
    assert elsewhere(sent) == f"send_recv/ring {spec.launch(CASE).grid[0]}"
    assert elsewhere(pickle.dumps(catalogue.find("send_recv/push"))).startswith("send_recv/push ")


@pytest.mark.parametrize("edited", ["ring.py", "steps.py"])
def test_what_changed_meanwhile_is_refused_on_the_other_side(tmp_path: Path, edited: str) -> None:
    file = write_ring(tmp_path)
    sent = pickle.dumps(spec_at(f"{file}:SPEC"))
    path = tmp_path / edited
    path.write_text(path.read_text() + "\n# another line\n")
    assert elsewhere(sent) == f"{file}:SPEC or what it imports changed after it was first loaded: run it again"
    path.unlink()
    gone = {"ring.py": f"the source {file} can't be read", "steps.py": f"{file}:SPEC: ring.py:8 raises Module"}
    assert elsewhere(sent).startswith(gone[edited])


def test_a_file_that_changed_is_not_loaded_again(tmp_path: Path) -> None:
    file = write_ring(tmp_path)
    spec_at(f"{file}:SPEC")
    file.write_text(RING.replace("= spec_of(BLOCKS)", "= spec_of(9)"))
    with pytest.raises(ValueError, match=r"ring\.py changed after this process first read it: run it again$"):
        spec_at(f"{file}:TRIAL")


def test_what_has_no_name_does_not_travel() -> None:
    spec = replace(catalogue.find("send_recv/push"), summary="another one")
    assert spec.origin is None
    with pytest.raises(pickle.PicklingError, match=r"the spec of send_recv/push is bound to no name: assign it to one"):
        pickle.dumps(spec)
    with pytest.raises(ValueError, match=r"send_recv/push is bound to no name"):
        pickled_work(print, [spec])


def test_the_file_that_names_a_kernel_is_part_of_its_code(tmp_path: Path) -> None:
    file = tmp_path / "tuned.py"
    file.write_text(
        "from kernels.all_reduce.one_shot import spec_of\n"
        "from kernels.tuning import Step, Tuning\n"
        "TUNED = spec_of(Tuning((Step(threads=96, blocks=3, loads_in_flight=2, reason='a test'),)))\n"
    )
    spec = spec_at(f"{file}:TUNED")
    assert spec.name == "all_reduce/one_shot"
    assert {one.name for one in sources_of(spec.files)} == {
        "tuned.py",
        *(one.name for one in sources_of(one_shot.SPEC.files)),
    }


@pytest.mark.parametrize(
    ("text", "content", "message"),
    [
        ("ring.py", "", r"^'ring\.py' names no kernel: give file\.py:NAME or package\.module:NAME$"),
        (":SPEC", "", r"^':SPEC' names no kernel: give"),
        ("ring.py:", "", r"^'ring\.py:' names no kernel: give"),
        ("absent.py:SPEC", "", r"^absent\.py:SPEC: there is no file /.*/absent\.py$"),
        ("./ring:SPEC", "", r"^\./ring:SPEC: there is no file /.*/ring$"),
        ("./ring.txt:SPEC", "", r"^\./ring\.txt:SPEC: ring\.txt is no Python file: give file\.py:NAME$"),
        ("ring.py:SPEC", "", r"^/.*/ring\.py:SPEC: there is no SPEC in it: it has no KernelSpec$"),
        ("ring.py:SPECS", RING, r"ring\.py:SPECS: there is no SPECS in it: did you mean SPEC\?$"),
        ("ring.py:X", RING, r"there is no X in it: its kernels are SPEC, TRIAL$"),
        ("ring.py:Step", RING, r"Step is of type type, not KernelSpec: its kernels are SPEC, TRIAL$"),
        ("ring.py:BLOCKS", RING, r"BLOCKS is of type int, not KernelSpec: its kernels are SPEC, TRIAL$"),
        ("ring.py:SPEC", "\nx = 1\nx.y\n", r"ring\.py:3 raises AttributeError: 'int' object has no attribute"),
        ("ring.py:SPEC", "raise ValueError('one\\ntwo')\n", r"ring\.py:1 raises ValueError: one two$"),
        ("ring.py:SPEC", "raise SystemExit\n", r"ring\.py:1 raises SystemExit: no message$"),
        ("ring.py:SPEC", "import os\nos._exit(0)\n", r"ring\.py:2 raises SystemExit: os\._exit would end this process"),
        ("ring.py:SPEC", "from os import abort\nabort()\n", r"ring\.py:2 raises SystemExit: os\.abort would end"),
        ("ring.py:SPEC", "x = 1\ndef (:\n", r"ring\.py:SPEC: ring\.py:2 is no Python: "),
        ("ring.py:SPEC", "import nowhere\n", r"ring\.py:1 raises ModuleNotFoundError: No module named 'nowhere'$"),
        ("ring.py:SPEC", RING.replace("send_recv/ring", "ring"), r"'ring' names no kernel: give op/algorithm"),
        ("ring.py:SPEC", RING.replace("v/ring", "v/../x"), r"SPEC: 'send_recv/\.\./x' is no op/algorithm in"),
        ("ring.py:SPEC", RING.replace("out_of_place", "out_place"), r"ring\.py:20 raises ValueError: send_recv/ri"),
        ("ring.py:SPEC", RING.replace("threads=96", "threads=9"), r"ring\.py:23 raises ValueError: a step's threads"),
        ("nowhere.ring:SPEC", "", r"^nowhere\.ring:SPEC: there is no module nowhere$"),
        ("kernels.nowhere:SPEC", "", r"^kernels\.nowhere:SPEC: there is no module kernels\.nowhere$"),
        ("kernels.catalogue:OPS", "", r"^kernels\.catalogue:OPS: OPS is of type tuple, not KernelSpec: it has no"),
    ],
)  # fmt: skip
def test_what_gives_no_spec_is_said_in_one_line(tmp_path: Path, text: str, content: str, message: str) -> None:
    write_ring(tmp_path).write_text(content)
    (tmp_path / "ring.txt").write_text("")
    with pytest.raises(ValueError, match=message) as caught:
        spec_at(text, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_module_that_failed_is_tried_again(tmp_path: Path) -> None:
    file = write_ring(tmp_path)
    (tmp_path / "steps.py").unlink()
    with pytest.raises(ValueError, match="raises ModuleNotFoundError"):
        spec_at(f"{file}:SPEC")
    write_ring(tmp_path)
    assert isinstance(spec_at(f"{file}:SPEC"), KernelSpec)


def test_a_body_must_stand_in_a_file() -> None:
    scope: dict[str, object] = {"__name__": "nowhere"}
    exec("def body(frame): pass", scope)
    tuning = Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a test"),))
    with pytest.raises(ValueError, match=r"^all_reduce/typed_in: its body is not in a file: give a function of"):
        spec_with("all_reduce/typed_in", scope["body"], tuning, buffers=(), vectors=lambda case: 1)  # type: ignore[arg-type]


def test_a_module_that_is_edited_after_its_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old code would be compiled, and kept under the new sources' key."""
    write_ring(tmp_path / "edited_after_import")
    (tmp_path / "edited_after_import" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("edited_after_import.ring")
    steps = tmp_path / "edited_after_import" / "steps.py"
    steps.write_text(steps.read_text() + "\n# edited\n")
    with pytest.raises(ValueError, match="imported .* before it was brought, and the file changed since"):
        spec_at("edited_after_import.ring:SPEC")


def test_a_helper_that_is_edited_later_is_refused_with_its_kernel(tmp_path: Path) -> None:
    file = write_ring(tmp_path / "my")
    spec_at(f"{file}:SPEC")
    steps = file.parent / "steps.py"
    steps.write_text(steps.read_text() + "\n# edited\n")
    with pytest.raises(ValueError, match=r"steps\.py changed after this process first read it"):
        spec_at(f"{file}:TRIAL")


def test_what_a_failed_file_had_imported_is_imported_anew(tmp_path: Path) -> None:
    file = write_ring(tmp_path / "my")
    file.write_text(file.read_text() + "\nimport no_such_module_of_mine\n")
    with pytest.raises(ValueError, match="no_such_module_of_mine"):
        spec_at(f"{file}:SPEC")
    here = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    assert str(file.parent / "steps.py") not in here
