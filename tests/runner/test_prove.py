"""From records to what is proven: what counts, and what is no proof."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernels.matrix.proofs import Tally, read
from reports.record.record import FabricInfo, KernelInfo, Record, Status
from runner.prove import main, proof_of
from tests.reports.synthetic import record, refused

SIMULATED = FabricInfo("simulator", "sm_90a", 4, 1 << 20, True, "", True)


def kernel(sources: str = "aaaa", name: str = "all_reduce/one_shot") -> KernelInfo:
    return KernelInfo(name, "kernel", "sm_90a", "sha256:1", "sha256:2", f"sha256:{sources}", "dsl", 1, 512)


def passed(size_bytes: int = 1024, sources: str = "aaaa", **changes: object) -> Record:
    return record("one_shot", size_bytes, kernel=kernel(sources), is_timed=False, **changes)  # type: ignore[arg-type]


def test_each_case_counts_once_and_baselines_do_not() -> None:
    again = dataclasses.replace(passed(), ended="2030-01-02T00:00:00.000+00:00")
    gone = refused("two_shot", 2048)
    proof = proof_of([passed(), again, passed(2048), record("nccl"), gone])
    assert proof.specs == {
        "all_reduce/one_shot": Tally(2, 0, (4,), "aaaa"),
        "all_reduce/two_shot": Tally(0, 1, (), "-"),
    }
    assert proof.date == "2030-01-02"
    assert proof.machine.startswith("4 x ")


def test_simulated_records_are_the_simulators() -> None:
    assert proof_of([passed(fabric=SIMULATED)]).machine == "simulator"


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record("nccl")], "no case of a kernel"),
        ([passed(), dataclasses.replace(passed(2048), status=Status.FAILED, check=None, reason="died")], "is FAILED"),
        ([dataclasses.replace(passed(), check=None, reason="check was off")], "was not checked"),
        ([passed(), passed(2048, "bbbb")], "ran from 2 versions of its sources"),
        ([passed(), passed(2048, fabric=SIMULATED)], "records of one machine are wanted"),
    ],
)
def test_what_proves_nothing_is_said(records: list[Record], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        proof_of(records)


def test_the_command_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, one in enumerate([passed(), passed(2048)]):
        (tmp_path / f"{number}.json").write_text(one.to_json())
    target = tmp_path / "out" / "machine.json"
    assert main([str(tmp_path), "-o", str(target)]) == 0
    assert "1 kernels, 2 cases passed, 0 refused" in capsys.readouterr().out
    assert read(target).specs["all_reduce/one_shot"].passed == 2
    assert main([str(tmp_path / "nowhere"), "-o", str(target)]) == 2
    assert capsys.readouterr().err.startswith("symlab: error: ")
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1
