"""The files that say where kernels are proven: read, written, refused when they are something else."""

import dataclasses
import json
import re

import pytest

from kernels.catalogue import SPECS
from kernels.matrix.proofs import PLACE, Proof, Tally, proofs, read, written
from tests.golden import refused, same_text

SPECS_OF_IT = {"all_reduce/one_shot": Tally(5, 1, (2, 4), "digest")}
PROOF = Proof(machine="4 x NVIDIA H200", date="2026-11-21", commit="abc", specs=SPECS_OF_IT)


def test_what_is_written_is_read(tmp_path):
    assert proofs(tmp_path) == ()
    coded = dataclasses.replace(
        PROOF, specs={"all_reduce/one_shot": Tally(5, 1, (2, 4), "digest", "sha256:1")}, code_from="compiled later"
    )
    for number, proof in enumerate((PROOF, coded, dataclasses.replace(PROOF, machine="simulator", specs={}))):
        (tmp_path / f"{number}.json").write_text(written(proof))
    found = proofs(tmp_path)
    assert found[1:] == (PROOF, coded)
    assert [proof.simulated for proof in found] == [True, False, False], "the simulator comes first"
    same_text(written(PROOF))  # what it does not have is not written: an older proof stays as it was


@pytest.mark.parametrize(
    "change",
    [
        {"date": 5},
        {"specs": []},
        {"specs": {"all_reduce/one_shot": {"passed": "1", "refused": 0, "world_sizes": [2], "sources": "x"}}},
        {"specs": {"all_reduce/one_shot": {"passed": 1, "refused": 0, "world_sizes": ["2"], "sources": "x"}}},
        {"specs": {"all_reduce/one_shot": {"passed": 1}}},
        {"specs": {"all_reduce/one_shot": {"passed": 1, "refused": 0, "world_sizes": [2], "sources": "x", "code": 1}}},
        {"code_from": 1},
    ],
)
def test_another_files_content_is_refused_by_name(tmp_path, change):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({**json.loads(written(PROOF)), **change}))
    with refused():
        read(path)


def test_what_is_no_json_or_not_there_is_refused_by_name(tmp_path):
    path = tmp_path / "odd.json"
    with refused():
        read(path)
    path.write_text("{")
    with refused():
        read(path)


def test_the_committed_files_name_kernels_that_there_are():
    known = {spec.name for spec in SPECS}
    for proof in proofs():
        assert set(proof.specs) <= known
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", proof.date)
        assert written(proof) == next(path.read_text() for path in PLACE.glob("*.json") if read(path) == proof)
