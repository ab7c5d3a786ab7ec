"""A kernel of a user's own that is made of the project's pieces: what is said of it names the user's line."""

import pytest

import symlab
from cases.code_digest import code_digest
from kernels.compile import executable
from kernels.dsl import device
from kernels.sources import PACKAGE
from reports.record.bundle import read
from runner.__main__ import main
from tests.kernels.own_kernel import write_ring
from tests.rooms import needs


def line_of(file, text):
    lines = file.read_text().splitlines()
    return f"{file.name}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_only_a_users_kernel_has_the_users_lines_in_its_code(arch, tmp_path):
    ring = write_ring(tmp_path)
    for kernel, lines in ((f"{ring}:SPEC", ("frame.arrive()", "frame.wait()", "frame.copy(")), ("send_recv/push", ())):
        case = symlab.case(kernel, size_bytes="4K", ranks=2)
        made = executable(symlab.kernel(kernel), case, arch, tmp_path / "compiled")
        assert ("/* at " in made.ptx) == bool(lines)
        for text in lines:
            assert f"/* at {line_of(ring, text)} */" in made.ptx


def test_a_kernel_has_the_same_code_when_its_lines_move(tmp_path):
    made = []
    for above in ("", "# a line\n"):
        ring = write_ring(tmp_path / f"with{len(above)}")
        ring.write_text(above + ring.read_text())
        case = symlab.case(f"{ring}:SPEC", size_bytes="4K", ranks=2)
        made.append(executable(symlab.kernel(f"{ring}:SPEC"), case, "sm_90a", tmp_path / "compiled").ptx)
    assert made[0] != made[1]
    assert code_digest(made[0]) == code_digest(made[1])


def test_the_projects_own_files_are_no_users_by_whatever_path(tmp_path):
    (tmp_path / "link").symlink_to(PACKAGE.parent)
    for folder in (PACKAGE.parent, tmp_path / "link"):
        assert device._users_file(f"{folder}/kernels/dsl/frame.py") == ""
        assert device._users_file(f"{folder}/kernels/compile.py") is None
    (tmp_path / "a{b}$.py").touch()
    assert device._users_file(f"{tmp_path}/a{{b}}$.py") == "a_b__.py"
    assert device._users_file("<string>") == ""


def test_what_an_installer_put_elsewhere_is_no_users(tmp_path, monkeypatch):
    """As by pip install --target: the DSL itself may lie so."""
    (tmp_path / "some-1.0.dist-info").mkdir()
    (tmp_path / "some.py").touch()
    assert device._users_file.__wrapped__(f"{tmp_path}/some.py") == "some.py"
    monkeypatch.syspath_prepend(tmp_path)
    assert device._users_file.__wrapped__(f"{tmp_path}/some.py") == ""


@needs("checks")
def test_a_race_names_the_users_line_and_the_librarys(tmp_path):
    ring = write_ring(tmp_path)
    ring.write_text(ring.read_text().replace("    frame.wait()\n", "").replace("    frame.leave()\n", ""))
    keys = ["op=send_recv", f"algorithms=[{ring}:SPEC]", "sizes=[4K]", "world_size=2", "baselines=none", "track=none"]
    assert main([*keys, f"records={tmp_path / 'records'}"]) == 1
    (record,) = read([tmp_path / "records"])
    assert record.reason.startswith("race: ")
    assert f"({line_of(ring, 'frame.copy(')} by way of kernels/dsl/frame.py:" in record.reason
