"""symlab check and python -m simulator: what they print, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import simulator.ptx.assembler as assembler
from simulator.__main__ import main as door
from simulator.isa import TABLE
from symlab.command import main

SUM = Path(__file__).parents[1] / "symlab" / "sum.ptx"
UNKNOWN = "  frobnicate.u32 %r1, %r2;\n"


@pytest.fixture
def no_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "find_ptxas", lambda: None)


@pytest.fixture
def fake_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ptxas that takes everything for sm_90 and refuses line 12 for other architectures."""
    path = tmp_path / "bin" / "ptxas"
    path.parent.mkdir()
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.5, V13.5.37"; exit 0; fi\n'
        'if [ "$1" = -arch=sm_90 ]; then exit 0; fi\n'
        "echo \"ptxas $2, line 12; error   : Unknown symbol '%r9'\" >&2\n"
        'echo "ptxas fatal   : Ptx assembly aborted due to errors" >&2\n'
        "exit 255\n"
    )
    path.chmod(0o755)
    monkeypatch.setattr(assembler, "find_ptxas", lambda: path)
    return path


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = main(["check", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_a_file_that_is_supported(no_ptxas: None, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys, str(SUM))
    assert code == 0
    assert lines[0] == f"{SUM}: sm_90, 1 kernel: sum"
    assert lines[1] == "simulator: has all forms"
    assert lines[2] == "PTX: .version 8.0; its forms need 7.8"
    assert lines[3].startswith(
        "ptxas: not installed, so what hardware refuses is unknown (pip install nvidia-cuda-nvcc"
    )


def test_all_unsupported_forms_are_listed_with_lines(
    no_ptxas: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SUM.read_text(encoding="utf-8").replace("done:\n", f"done:\n{UNKNOWN * 14}  wgmma.fence.sync.aligned;\n")
    path = tmp_path / "sum.ptx"
    path.write_text(text, encoding="utf-8")
    first = 1 + text.splitlines().index(UNKNOWN.rstrip("\n"))
    code, lines = checked(capsys, str(path))
    assert code == 1
    assert lines[1] == "simulator: 2 unsupported forms, in 15 lines"
    named = ", ".join(str(first + number) for number in range(12))
    assert lines[2] == f"  14 x frobnicate.u32: lines {named} and 2 more"
    assert lines[3] == f"  1 x wgmma.fence.sync.aligned (planned): line {first + 14}"


def test_what_the_simulator_can_not_read_is_said(
    no_ptxas: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.ptx"
    text = SUM.read_text(encoding="utf-8").rstrip().removesuffix("}")
    path.write_text(text, encoding="utf-8")
    first = 1 + text[: text.index("{")].count("\n")
    code, lines = checked(capsys, str(path))
    assert code == 1
    said = f"PTX line {first}: a brace opens here and is never closed: the closing brace is missing"
    assert lines[0] == f"{path}: the simulator can't read it: {said}"
    path.write_text(SUM.read_text(encoding="utf-8").replace("{", "\n", 1), encoding="utf-8")
    code, lines = checked(capsys, str(path))
    assert code == 1
    assert "kernel sum has no body, it is only declared" in lines[0]


def test_device_side_allocation_is_one_clear_line(
    no_ptxas: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "heap.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".extern .func (.param .b64 got) malloc (.param .b64 size);\n.extern .func free (.param .b64 given);\n"
        ".visible .entry k(.param .u64 out) {\n.reg .b64 %rd<3>;\n{ .param .b64 size;\n.param .b64 got;\n"
        "st.param.b64 [size], 64;\ncall.uni (got), malloc, (size);\nld.param.b64 %rd1, [got]; }\n"
        "{ .param .b64 given;\nst.param.b64 [given], %rd1;\ncall.uni free, (given); }\nret; }\n",
        encoding="utf-8",
    )
    code, lines = checked(capsys, str(path))
    assert code == 1
    said = [line.strip() for line in lines if "device-side" in line]
    assert said == [
        f"device-side {name} is unsupported: give the kernel a buffer for it" for name in ("malloc", "free")
    ]


LATE = """.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %d<4>;
elect.sync %r1|%p1, -1;
add.u32 %r1, %r2, %r3;
elect.sync %r2|%p1, -1;
fence.proxy.async;
multimem.red.relaxed.sys.global.add.u32 [%d1], %r1;
ret;
}
"""


def test_a_version_below_its_forms_is_a_finding(
    no_ptxas: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "late.ptx"
    path.write_text(LATE, encoding="utf-8")
    code, lines = checked(capsys, str(path))
    assert code == 1
    assert lines[1:6] == [
        "simulator: has all forms",
        "PTX: .version 7.8 is too old, its forms need 8.1",
        "  2 x elect.sync needs .version 8.0: lines 7, 9",
        "  1 x fence.proxy.async needs .version 8.0: line 10",
        "  1 x multimem.red.relaxed.sys.global.add.u32 needs .version 8.1: line 11",
    ]
    path.write_text(LATE.replace(".version 7.8", ".version 8.1"), encoding="utf-8")
    code, lines = checked(capsys, str(path))
    assert (code, lines[2]) == (0, "PTX: .version 8.1; its forms need 8.1")
    path.write_text(LATE.replace("sm_90", "sm_100a").replace("7.8", "8.1"), encoding="utf-8")
    code, lines = checked(capsys, str(path))
    assert (code, lines[3]) == (1, "  1 x .target sm_100a needs .version 8.6: line 2")


@pytest.mark.parametrize("directive", [".reqnctapercluster 2, 1, 1", ".maxclusterrank 4", ".explicitcluster"])
def test_clusters_need_an_architecture_that_has_them(
    no_ptxas: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], directive: str
) -> None:
    path = tmp_path / "cluster.ptx"
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n.maxntid 32\n"
        f"{directive}\n{{\n.reg .b32 %r<4>;\nbarrier.cluster.arrive;\nmov.u32 %r1, %cluster_ctarank;\nret;\n}}\n"
    )
    path.write_text(text, encoding="utf-8")
    code, lines = checked(capsys, str(path))
    assert code == 1
    name = directive.split()[0]
    assert f"  1 x {name}: line 6" in lines
    assert "      sm_80 has no clusters: they take sm_90 or later" in lines
    assert "  1 x barrier.cluster.arrive: line 9" in lines
    assert "  1 x mov.u32: line 10" in lines
    path.write_text(text.replace("sm_80", "sm_90"), encoding="utf-8")
    assert checked(capsys, str(path))[0] == 0


def test_what_ptxas_refuses_is_listed(fake_ptxas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = checked(capsys, str(SUM))
    assert (code, lines[3]) == (0, "ptxas 13.5.37: assembles it for sm_90")
    code, lines = checked(capsys, str(SUM), "--arch", "sm_100a")
    assert code == 1
    assert lines[3:] == ["ptxas 13.5.37: refuses it for sm_100a", "  line 12: Unknown symbol '%r9'"]


def test_a_ptxas_that_is_too_old_refuses_nothing(fake_ptxas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "ptxas $2, line 1; fatal   : Unsupported .version 9.4; current version is '9.0'"
    fake_ptxas.write_text(
        fake_ptxas.read_text().replace("exit 0; fi\nif", f'exit 0; fi\necho "{said}"; exit 255\nif', 1)
    )
    code, lines = checked(capsys, str(SUM))
    assert code == 0
    assert lines[3].startswith("ptxas 13.5.37: too old for this file, so what hardware refuses is unknown: Unsupported")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.ptx"], "none.ptx: No such file or directory, give a PTX file"),
        ([str(Path(__file__))], "no .target, give a PTX module"),
        ([str(SUM), "--arch", "hopper"], "'hopper' is no architecture (--arch), give one such as sm_90a"),
        ([], "missing argument 'FILE.ptx' (see symlab check --help)"),
    ],
)
def test_a_wrong_request_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("symlab: error: ")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_module_without_a_kernel_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "device.ptx"
    path.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .func help() { ret; }\n")
    assert main(["check", str(path)]) == 2
    assert "no kernel (.entry), give PTX with one" in capsys.readouterr().err


def test_a_file_that_is_not_text_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"\x7fELF\xff\xfe")
    assert main(["check", str(path)]) == 2
    assert "not text, give a PTX file" in capsys.readouterr().err


WRONG_FILES = {
    "empty": b"",
    "spaces": b" \n\n",
    "zeros": bytes(64),
    "machine code": b"\x7fELF" + bytes(range(256)),
    "Latin-1": ".version 8.0\n.target sm_90\n.entry n\xe9() { ret; }\n".encode("latin-1"),
    "UTF-16": ".version 8.0\n.target sm_90\n.entry n() { ret; }\n".encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf.version 8.0\n.target sm_90\n.entry n() { ret; }\n",
    "no target": b".version 8.0\n.entry n() { ret; }\n",
    "no entry": b".version 8.0\n.target sm_90\n",
    "prose": b"a text about kernels\n",
    "Python": b"def add(one, other):\n    return one + other\n",
}


@pytest.mark.parametrize("content", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_that_is_no_ptx_is_refused_in_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.ptx"
    path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert str(path) in said.err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_may_end_as_on_other_systems(end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "windows.ptx"
    path.write_bytes(f".version 8.0{end}.target sm_90{end}.entry n(){end}{{ ret; }}{end}".encode())
    assert main(["check", str(path)]) == 0
    assert "1 kernel: n" in capsys.readouterr().out


def test_the_forms_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert door([]) == 0
    by_opcode = capsys.readouterr().out
    assert door(["--forms"]) == 0
    assert capsys.readouterr().out == by_opcode
    assert any(line.split()[:2] == ["lop3", "1"] for line in by_opcode.splitlines())
    assert door(["--all"]) == 0
    assert capsys.readouterr().out.splitlines() == sorted(TABLE)


def test_the_table_is_written_into_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import simulator.commands as commands

    page = tmp_path / "README.md"
    page.write_text("before\n<!-- forms -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(commands, "README", page)
    assert door(["--readme"]) == 0
    written = page.read_text()
    assert written.startswith("before\n<!-- forms -->\n\n| opcode |")
    assert "old" not in written
    assert written.endswith("<!-- end -->\nafter\n")
    assert commands.included(written) == written
