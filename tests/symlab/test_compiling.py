"""symlab.compile: what the runner compiles, with its digests, and no GPU."""

import hashlib
import logging
import pickle
from dataclasses import replace

import symlab
from cases.code_digest import code_digest, without_lines
from kernels.compile import executable
from tests.golden import refused
from tests.kernels.own_kernel import write_ring


def test_it_is_the_runners_executable(tmp_path):
    case = symlab.case("send_recv/push", size_bytes="1K", ranks=3)
    compiled = symlab.compile(case, arch="sm_100a", cache_dir=tmp_path)
    assert compiled.executable == executable(symlab.kernel("send_recv/push"), case, "sm_100a", tmp_path)
    assert (compiled.arch, compiled.case, compiled.kernel.name) == ("sm_100a", case, "send_recv/push")
    assert f".entry {compiled.entry}(" in compiled.ptx
    assert ".target sm_100a" in compiled.ptx
    assert compiled.cubin[:4] == b"\x7fELF"
    assert compiled.digest == f"sha256:{hashlib.sha256(compiled.ptx.encode()).hexdigest()}"
    assert compiled.code_digest == code_digest(compiled.ptx) != compiled.digest
    assert compiled.code_digest == f"sha256:{hashlib.sha256(without_lines(compiled.ptx).encode()).hexdigest()}"
    assert compiled.launch == symlab.kernel("send_recv/push").launch(case)
    assert list(tmp_path.glob("send_recv-push-sm_100a-*.json")), "the folder of compiled kernels is the given one"


def test_it_can_be_sent_to_other_processes(tmp_path):
    """World.run pickles what it hands to ranks on GPUs."""
    place = f"{write_ring(tmp_path)}:SPEC"
    for name, kernel in (("send_recv/push", None), (place, place)):
        compiled = symlab.compile(symlab.case(name, size_bytes="1K"), kernel=kernel)
        assert pickle.loads(pickle.dumps(compiled)) == compiled


def test_a_brought_kernel_is_compiled(tmp_path):
    place = f"{write_ring(tmp_path)}:SPEC"
    compiled = symlab.compile(symlab.case(place, size_bytes="1K"), kernel=place, cache_dir=tmp_path)
    assert "send_recv_ring" in compiled.entry
    assert compiled.launch.threads == 96


def test_what_can_not_be_compiled_is_a_value_error():
    small = replace(symlab.case("all_reduce/lamport", size_bytes="4K"), size_bytes=1 << 30)
    with refused():
        symlab.compile(small)
    with refused():
        symlab.compile(replace(small, algorithm="one_shut"))
    with refused():
        symlab.compile(symlab.case("all_reduce/nccl", size_bytes="4K"))


def test_an_architecture_without_the_kernel_is_a_value_error():
    with refused():
        symlab.compile(symlab.case("all_reduce/one_shot", size_bytes="4K"), arch="sm_70")


def test_another_kernel_than_the_cases_is_a_value_error():
    case = symlab.case("all_reduce/one_shot", size_bytes="4K")
    with refused():
        symlab.compile(case, kernel="all_reduce/two_shot")


def test_a_cache_that_can_not_be_written_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    case = symlab.case("barrier/peers", size_bytes=4)
    with caplog.at_level(logging.WARNING):
        assert symlab.compile(case, cache_dir=tmp_path / "file" / "folder").ptx
    assert "can't be written" in caplog.text


def test_what_a_notebook_shows_of_it_is_one_line():
    case = symlab.case("all_reduce/one_shot", size_bytes="1K")
    assert repr(symlab.compile(case)) == f"<all_reduce/one_shot for sm_90a, compiled for {case.id}>"
