"""From records to what is proven: what counts, and what is no proof."""

import dataclasses
from pathlib import Path

import pytest

from cases.case import Case
from cases.record.record import FabricInfo, KernelInfo, Status
from kernels.catalogue import find
from kernels.matrix.proofs import Tally, read
from kernels.matrix.variants import code_of, compiled, variants
from symlab.evidence.prove import main, proof_of
from tests.golden import refused as refused_text
from tests.reports.synthetic import record, refused

SIMULATED = FabricInfo("simulator", "sm_90a", 4, 1 << 20, True, "", True)

NO_CACHE = Path("unused")
"""For records without code digests: nothing is compiled."""


def kernel(sources="aaaa", name="all_reduce/one_shot"):
    return KernelInfo(name, "kernel", "sm_90a", "sha256:1", "sha256:2", f"sha256:{sources}", "dsl", 1, 512)


def passed(size_bytes=1024, sources="aaaa", **changes):
    return record("one_shot", size_bytes, kernel=kernel(sources), is_timed=False, **changes)


def test_each_case_counts_once_and_baselines_do_not():
    again = dataclasses.replace(passed(), ended="2030-01-02T00:00:00.000+00:00")
    gone = refused("two_shot", 2048)
    proof = proof_of([passed(), again, passed(2048), record("nccl"), gone], NO_CACHE)
    assert proof.specs == {
        "all_reduce/one_shot": Tally(2, 0, (4,), "aaaa"),
        "all_reduce/two_shot": Tally(0, 1, (), "-"),
    }
    assert proof.date == "2030-01-02"
    assert proof.machine.startswith("4 x ")


def test_records_name_the_simulator_or_as_many_gpus_as_there_were():
    assert proof_of([passed(fabric=SIMULATED)], NO_CACHE).machine == "simulator"
    one = passed()
    shared = dataclasses.replace(one.fabric, settings={"share_gpus": True})
    gpus = [dict(next(iter(one.environment.gpus or ())))]
    environment = dataclasses.replace(one.environment, gpus=gpus)
    machine = proof_of([dataclasses.replace(one, fabric=shared, environment=environment)], NO_CACHE).machine
    assert one.case.world_size == 4
    assert machine.startswith("1 x ")
    assert machine.endswith(", shared by ranks")


@pytest.mark.parametrize(
    "records",
    [
        [record("nccl")],
        [passed(), dataclasses.replace(passed(2048), status=Status.FAILED, check=None, reason="died")],
        [dataclasses.replace(passed(), check=None, reason="check was off")],
        [passed(), passed(2048, "bbbb")],
        [passed(), passed(2048, fabric=SIMULATED)],
    ],
    ids=["no kernel", "failed", "unchecked", "two versions", "two machines"],
)
def test_what_proves_nothing_is_said(records):
    with refused_text():
        proof_of(records, NO_CACHE)


def barrier(code, world_size=2):
    """A record of barrier/peers, whose kernel has two variants only, with a code digest."""
    case = Case("barrier", "peers", "uint32", "none", "none", 4, world_size)
    ran = dataclasses.replace(kernel(name="barrier/peers"), code_digest=code)
    fabric = dataclasses.replace(SIMULATED, world_size=world_size)
    made = record("one_shot", is_timed=False)
    return dataclasses.replace(made, id=case.id, case=case, kernel=ran, fabric=fabric)


@pytest.fixture(scope="session")
def cache(compile_cache):
    return compile_cache


def code_here(name, cache):
    """The code digest of a barrier of two ranks."""
    (one, _) = variants(find(name))
    return compiled(find(name), [one], cache)[one.label]


def test_records_with_code_prove_the_kernels_whole_code(cache):
    tally = proof_of([barrier(code_here("barrier/peers", cache))], cache).specs["barrier/peers"]
    assert tally.code == code_of(find("barrier/peers"), cache).code
    assert tally.sources == "aaaa", "whatever the sources were"


def test_a_record_without_code_among_others_leaves_the_sources(cache):
    older = barrier("", 4)
    older = dataclasses.replace(older, kernel=dataclasses.replace(older.kernel, code_digest=None))
    proof = proof_of([barrier(code_here("barrier/peers", cache)), older], cache)
    assert proof.specs["barrier/peers"] == Tally(2, 0, (2, 4), "aaaa", None)


def test_code_of_another_kernel_is_found(cache):
    liar = barrier(code_here("barrier/multimem", cache))
    with pytest.raises(ValueError, match="barrier-peers-.* ran other code .* than this checkout compiles to"):
        proof_of([liar], cache)


def test_the_command_writes_the_file(tmp_path, capsys):
    for number, one in enumerate([passed(), passed(2048)]):
        (tmp_path / f"{number}.json").write_text(one.to_json())
    target = tmp_path / "out" / "machine.json"
    assert main([str(tmp_path), "-o", str(target)]) == 0
    assert "1 kernel, 2 cases passed, 0 refused" in capsys.readouterr().out
    assert read(target).specs["all_reduce/one_shot"].passed == 2
    assert main([str(tmp_path / "nowhere"), "-o", str(target)]) == 2
    assert capsys.readouterr().err.startswith("symlab: error: ")
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
