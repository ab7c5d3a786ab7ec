"""Items "commit" and "kernels": each finds what contradicts the records, and names what they do not hold."""

import dataclasses

import pytest

from symlab.evidence.audit.code import _run_by
from symlab.evidence.audit.items import Outcome
from tests.reports.export.sweeps import OWN, RING_LL, nccl_record
from tests.reports.synthetic import KIB, record
from tests.symlab.evidence.audit.complete_set import (
    ENVIRONMENT,
    PTX,
    audited,
    changed,
    kept,
    kernel,
    records,
    tells,
    with_environment,
    with_request,
)
from tests.symlab.evidence.audit.invented_records import digest

FINDING, NOT_COMPARABLE, NOT_CAPTURED = Outcome.FINDING, Outcome.NOT_COMPARABLE, Outcome.NOT_CAPTURED
CAPTURED, DOES_NOT_APPLY = Outcome.CAPTURED, Outcome.DOES_NOT_APPLY


def dirty(**changes):
    kept_diff = {"file": "source.diff", "digest": f"sha256:{digest('diff')}", "left_out_bytes": 0}
    return ENVIRONMENT["git"] | {"dirty": True, "changed_files": 2, "kept_diff": kept_diff} | changes


def test_changes_to_the_commit(tmp_path):
    place = kept(tmp_path / "records", with_environment(records(), git=dirty()))
    tells(audited(place=place), "commit", NOT_COMPARABLE)
    path = place / "command0" / "source.diff"
    path.write_text("diff", encoding="utf-8")
    tells(audited(place=place), "commit", CAPTURED)
    tells(audited(with_environment(records(), git=dirty(kept_diff=None))), "commit", NOT_CAPTURED)


def test_untracked_files_are_named():
    names = ["report.html", *(f"notes/{number}.txt" for number in range(50))]
    git = ENVIRONMENT["git"] | {"dirty": True, "untracked_files": 1234, "untracked": names[:50]}
    tells(audited(with_environment(records(), git=git)), "commit", NOT_CAPTURED)
    both = dirty(untracked_files=1, untracked=["x.py"])
    tells(audited(with_environment(records(), git=both)), "commit", NOT_COMPARABLE, NOT_CAPTURED)


@pytest.mark.parametrize("git", [None, {"commit": ""}])
def test_a_missing_commit(git):
    audit = audited(with_environment(records(), git=git, not_captured={"git": "not a git repository"}))
    tells(audit, "commit", NOT_CAPTURED)


def with_kernel(record, **changes):
    return changed(record, kernel=dataclasses.replace(record.kernel, **changes))


@pytest.fixture
def worlds():
    """Two worlds of one case with different PTX of different sources, and equal code."""
    one, two = (record for record in records(2) if record.kernel is not None)
    moved = {"ptx_digest": f"sha256:{'2' * 64}", "source_digest": f"sha256:{'3' * 64}"}
    return [with_kernel(one, code_digest="sha256:1"), with_kernel(two, code_digest="sha256:1", **moved)]


def test_worlds_of_other_code(worlds):
    """Moved lines are no other code; of two worlds without code digests PTX is compared."""
    one, two = worlds
    tells(audited(worlds), "kernels", CAPTURED)
    tells(audited([one, with_kernel(two, code_digest="sha256:2")]), "kernels", CAPTURED, FINDING)
    older = changed(with_kernel(one, code_digest=None), schema=2)
    tells(audited([older, two]), "kernels", CAPTURED, NOT_COMPARABLE)
    tells(audited([older, changed(with_kernel(two, code_digest=None), schema=2)]), "kernels", CAPTURED, FINDING)


def test_another_architecture_has_other_ptx():
    members = [record for record in records(4) if record.kernel is not None]
    for place in (2, 3):
        fabric = members[place].fabric
        assert fabric is not None
        other = dataclasses.replace(kernel("for another"), arch="sm_100a")
        members[place] = changed(members[place], kernel=other, fabric=dataclasses.replace(fabric, arch="sm_100a"))
    tells(audited(members), "kernels", CAPTURED)


def test_what_can_not_be_compared_is_not_verified():
    tells(audited(records(1)), "kernels", CAPTURED, DOES_NOT_APPLY)
    for silent in ({"ptx_digest": ""}, {"source_digest": ""}):
        members = [with_kernel(one, **silent) if one.kernel else one for one in records()]
        wanted = (NOT_CAPTURED, DOES_NOT_APPLY) if "ptx_digest" in silent else (NOT_CAPTURED,)
        tells(audited(members), "kernels", *wanted)


def test_stored_ptx_that_was_changed_or_is_gone(tmp_path):
    place = kept(tmp_path / "records")
    tells(audited(place=place), "kernels", CAPTURED)
    paths = sorted(place.rglob("*.ptx"))
    paths[0].write_text(PTX + " ", encoding="utf-8")
    tells(audited(place=place), "kernels", FINDING)
    for path in paths:
        path.unlink()
    tells(audited(place=place), "kernels", FINDING)


def test_what_nccl_was_asked_for_and_what_is_named_agree():
    settings = (OWN, RING_LL)
    plain, restricted = (nccl_record(one, KIB) for one in settings)
    for honest in (plain, restricted, record("nccl"), record("torch/two_shot")):
        assert [text for text in _run_by(honest) if "asked NCCL" in text] == []
    lies = (
        dataclasses.replace(plain, library=restricted.library),
        dataclasses.replace(restricted, library=plain.library),
        with_request(plain, configuration={"library": {"nccl_algo": "Star"}}),
    )
    for lie in lies:
        assert len([text for text in _run_by(lie) if "asked NCCL" in text]) == 1
