"""symlab check: what it prints, and its exit codes."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import simulator.ptx.assembler as assembler
from symlab.command import main
from tests.golden import same_text

PATH = Path(__file__).parents[1] / "sum.ptx"
SUM = PATH.read_text(encoding="utf-8")
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
UNKNOWN = "  frobnicate.u32 %r1, %r2;\n"


@pytest.fixture
def no_ptxas(monkeypatch):
    monkeypatch.setattr(assembler, "find_ptxas", lambda: None)


@pytest.fixture
def fake_ptxas(tmp_path, monkeypatch):
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


@dataclass(slots=True)
class Check:
    """symlab check of a text, or of what a file holds; what it prints is kept."""

    capsys: pytest.CaptureFixture[str]
    path: Path

    def __call__(self, content, *arguments):
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        code = main(["check", str(self.path), *arguments])
        said = self.capsys.readouterr()
        same_text(said.out + said.err)
        assert (not said.out and said.err.count("\n") == 1) == (code == 2)
        return code


@pytest.fixture
def check(no_ptxas, tmp_path, capsys):
    return Check(capsys, tmp_path / "module.ptx")


def test_what_a_module_has_besides_the_simulators_forms_is_listed_with_lines(check):
    assert check(SUM) == 0
    assert check(SUM.replace("done:\n", f"done:\n{UNKNOWN * 14}  tcgen05.shift.cta_group::1.down [%r1];\n")) == 1


def test_what_the_simulator_can_not_read_is_said(check):
    assert check(SUM.rstrip().removesuffix("}")) == 1
    assert check(SUM.replace("{", "\n", 1)) == 1


def test_device_side_allocation_is_one_clear_line(check):
    code = check(
        HEAD + ".extern .func (.param .b64 got) malloc (.param .b64 size);\n.extern .func free (.param .b64 given);\n"
        ".visible .entry k(.param .u64 out) {\n.reg .b64 %rd<3>;\n{ .param .b64 size;\n.param .b64 got;\n"
        "st.param.b64 [size], 64;\ncall.uni (got), malloc, (size);\nld.param.b64 %rd1, [got]; }\n"
        "{ .param .b64 given;\nst.param.b64 [given], %rd1;\ncall.uni free, (given); }\nret; }\n"
    )
    assert code == 1


@pytest.mark.parametrize("directive", [".reqnctapercluster 2, 1, 1", ".maxclusterrank 4", ".explicitcluster"])
def test_clusters_need_an_architecture_that_has_them(check, directive):
    text = (
        HEAD + f".visible .entry k()\n.maxntid 32\n{directive}\n"
        "{\n.reg .b32 %r<4>;\nbarrier.cluster.arrive;\nmov.u32 %r1, %cluster_ctarank;\nret;\n}\n"
    )
    assert check(text.replace("sm_90", "sm_80")) == 1
    assert check(text) == 0


def test_what_ptxas_refuses_is_listed_unless_it_is_too_old(check, fake_ptxas):
    assert check(SUM) == 0
    assert check(SUM, "--arch", "sm_100a") == 1
    said = "ptxas $2, line 1; fatal   : Unsupported .version 9.4; current version is '9.0'"
    fake_ptxas.write_text(
        fake_ptxas.read_text().replace("exit 0; fi\nif", f'exit 0; fi\necho "{said}"; exit 255\nif', 1)
    )
    assert check(SUM) == 0


WRONG_FILES = {
    "empty": b"",
    "spaces": b" \n\n",
    "zeros": bytes(64),
    "machine code": b"\x7fELF" + bytes(range(256)),
    "Latin-1": (HEAD + ".entry n\xe9() { ret; }\n").encode("latin-1"),
    "UTF-16": (HEAD + ".entry n() { ret; }\n").encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + (HEAD + ".entry n() { ret; }\n").encode(),
    "no target": b".version 8.0\n.entry n() { ret; }\n",
    "no entry": HEAD.encode(),
    "a function alone": (HEAD + ".visible .func help() { ret; }\n").encode(),
    "prose": b"a text about kernels\n",
    "Python": b"def add(one, other):\n    return one + other\n",
}


@pytest.mark.parametrize("content", WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_that_is_no_ptx_is_refused_in_one_line(content, check):
    assert check(content) == 2
    assert list(check.path.parent.iterdir()) == [check.path]


@pytest.mark.parametrize(
    "arguments", [["none.ptx"], [str(PATH), "--arch", "hopper"], [], [str(PATH), "--assumption", "vector_9"]]
)
def test_a_wrong_request_is_one_line(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", *arguments]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    same_text(said.err)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_lines_may_end_as_on_other_systems(end, check):
    assert check((HEAD + ".entry n()\n{ ret; }\n").replace("\n", end)) == 0


STRUCT = (
    HEAD
    + """.visible .entry k(.param .align 8 .b8 given[88], .param .u32 rank, .param .f32 scale)
.maxntid 16
{
.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<3>;
ld.param.u32 %r1, [given+76]; ld.param.u64 %d1, [given+64]; ld.param.f32 %f1, [scale];
mov.u32 %r2, %tid.x; mul.wide.u32 %d2, %r2, 8; mov.b64 %d3, given; add.s64 %d4, %d3, %d2;
setp.ge.u32 %p1, %r2, 2; @%p1 ret;
ld.param.u64 %d5, [%d4]; cvta.to.global.u64 %d6, %d5; ld.global.f32 %f2, [%d6]; st.global.v2.b16 [%d1], {%h1, %h2};
ret;
}
.visible .entry waits(.param .u64 flag)
{
.reg .b32 %r<3>; .reg .b64 %d<3>; ld.param.u64 %d1, [flag];
again: ld.acquire.sys.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra again; ret;
}
""".replace(".reg .f32 %f<3>;", ".reg .f32 %f<3>; .reg .pred %p<2>; .reg .b16 %h<3>;").replace(
        ".reg .b32 %r<3>;", ".reg .b32 %r<3>; .reg .pred %p<2>;"
    )
)


def test_arguments_are_proposed_and_tried(check):
    """An array of addresses by an index, fields at offsets, words by their names; and a kernel that waits for a flag."""
    assert check(STRUCT) == 0


WORD = HEAD + ".entry k(.param .u64 off) { .reg .b64 %d; ld.param.u64 %d, [off]; st.global.u32 [%d], 1; ret; }"


@pytest.mark.parametrize("text", [STRUCT, WORD], ids=["a struct", "a word of YAML"])
def test_what_is_proposed_runs_as_op_custom(text, check, tmp_path, monkeypatch, capsys):
    check.path.write_text(text)
    assert main(["check", "--assumption", "vector_8", str(check.path)]) == 0
    proposal = capsys.readouterr().out.partition("\n\n")[2].partition("# a launch")[0]
    assert "assumptions: [vector_8]" in proposal
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    (tmp_path / "conf" / "exp" / "mine.yaml").write_text(f"# @package _global_\n{proposal}")
    monkeypatch.chdir(tmp_path)
    how = ["fabric=simulator", "track=none", "check.races=false"]
    assert main(["run", "--config-dir", "conf", "+exp=mine", *how]) == 0
