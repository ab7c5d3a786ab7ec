"""symlab.run: the runner's own run and record of one case, with outputs and inputs of one's own."""

import json
import threading
from dataclasses import replace

import pytest
import torch

import symlab
from cases.record.record import Status, from_json
from runner.world.fabrics import HostOffer
from symlab import requests
from tests.golden import refused
from tests.kernels.own_kernel import write_ring
from tests.patience import NEVER_S
from tests.rooms import needs


@pytest.fixture
def case():
    return symlab.case("all_reduce/two_shot", size_bytes="4K", ranks=3, dtype="bfloat16")


@pytest.mark.slow
def test_a_case_ends_as_the_runners_record(case):
    done = symlab.run(case)
    assert (done.status, done.reason, done.verified) == (Status.PASSED, "", True)
    record = done.record
    assert record.id == case.id
    assert record.check == done.check
    assert done.check.launches == 2
    assert record.kernel.ptx_digest == symlab.compile(case).digest
    assert record.fabric.simulated
    assert record.counters["instructions"] > 0
    assert record.environment.packages
    assert record.timing is None
    assert from_json(record.to_json()) == record
    assert done.outputs is None


def test_what_a_notebook_shows_of_it_is_one_line(case):
    done = symlab.run(case, outputs=True)
    assert repr(done) == f"<run of {case.id}: PASSED>"
    failed = replace(done, status=Status.FAILED, reason="rank 1: no data\nmore")
    assert repr(failed) == f"<run of {case.id}: FAILED: rank 1: no data>"


def test_outputs_come_home_unchecked_and_only_where_the_op_gives_some():
    case = symlab.case("reduce/pull", size_bytes=64, ranks=3, root=1)
    done = symlab.run(case, outputs=True, check=False)
    assert (done.status, done.check, done.verified) == (Status.PASSED, None, False)
    assert [one is None for one in done.outputs] == [True, False, True]
    assert torch.equal(done.outputs[1], symlab.make_reference(case)[1])


def test_inputs_of_ones_own_are_added_and_checked_and_named_by_no_record():
    case = symlab.case("all_reduce/one_shot", size_bytes=16, ranks=2, inputs="exact")
    inputs = [torch.tensor([0.1, 1, 2, 3]), torch.tensor([0.2, 10, 20, 30])]
    done = symlab.run(case, inputs=inputs, outputs=True)
    assert (done.status, done.record) == (Status.PASSED, None)
    assert done.check.method == "bitwise_fold", "nothing is known of them: they are not exact"
    assert all(torch.equal(one, inputs[0] + inputs[1]) for one in done.outputs if one is not None)
    assert done.case.inputs == "normal"
    again = symlab.run(case, inputs=[one * 2 for one in inputs], outputs=True)
    assert torch.equal(again.outputs[0], (inputs[0] + inputs[1]) * 2)


def test_inputs_that_were_changed_are_other_inputs():
    case = symlab.case("all_reduce/one_shot", size_bytes=16, ranks=2)
    inputs = [torch.ones(4), torch.ones(4)]
    first = symlab.run(case, inputs=inputs).check
    inputs[1] += 1
    second = symlab.run(case, inputs=inputs).check
    assert [len(first.input_digests), len(set(first.input_digests)), len(set(second.input_digests))] == [2, 1, 2]
    assert first.output_digests != second.output_digests


@pytest.mark.slow
def test_a_kernel_that_breaks_its_promise_is_wrong_with_inputs_of_ones_own_too():
    """A kernel that adds in the order of the ranks, and says that it begins with rank 2."""
    spec = replace(
        symlab.kernel("all_reduce/one_shot"),
        fold="from_next_rank",
        owner=lambda case, rank: torch.ones(case.numel, dtype=torch.int64),
    )
    case = symlab.case(spec, size_bytes="4K", ranks=3)
    done = symlab.run(case, kernel=spec, outputs=True)
    assert (done.status, done.record.status, done.verified) == (Status.WRONG, Status.WRONG, False)
    assert "elements are wrong; first at rank 0" in done.reason
    assert done.outputs is not None, "what is wrong can be looked at"
    inputs = [torch.full((1024,), value) for value in (2.0**-24, 2.0**-24, 1.0)]
    mine = symlab.run(case, kernel=spec, inputs=inputs)
    assert (mine.status, mine.record) == (Status.WRONG, None)
    assert mine.check.wrong == 6 * 1024


@needs("evidence")
@pytest.mark.slow
def test_the_record_says_what_composes_to_it_and_can_be_replayed():
    """An audit composes the overrides again; a replay runs the case of the record again."""
    from symlab.evidence.audit.items import Tally
    from symlab.evidence.replay.rebuild import Wishes, rebuilt
    from symlab.evidence.replay.recomposed import configurations, jobs_of

    case = symlab.case("all_reduce/one_shot", size_bytes=64, ranks=2, dtype="float16", inputs="edge", seed=5, offset=1)
    with symlab.world(ranks=2, schedule="random", seed=3, heap_bytes="1M", multicast=False) as world:
        record = symlab.run(case, world=world, launches=3, deadline_s=NEVER_S).record
    assert record.fabric.settings["schedule"] == "random"
    assert record.request.configuration["fabric"]["heap_bytes"] == "1M"
    _, found = configurations(jobs_of([record]), lambda text: None)
    assert found == Tally(agree=[("job 1 of ",)])
    again = rebuilt([record], Wishes(machine=lambda: HostOffer(0, "no GPU driver found", False)))
    assert again.left_out == ()
    assert [one.cases for one in again.command.jobs] == [(case,)]


def test_a_library_needs_gpus():
    done = symlab.run(symlab.case("all_reduce/nccl", size_bytes="1K"))
    assert done.status is Status.REFUSED
    assert "needs GPUs" in done.reason


def test_a_brought_kernel_runs(tmp_path):
    place = f"{write_ring(tmp_path)}:SPEC"
    case = symlab.case(place, size_bytes="1K", ranks=3)
    done = symlab.run(case, kernel=place, cache_dir=tmp_path)
    assert done.verified, done.reason
    assert list(tmp_path.glob("send_recv-ring-*.json"))
    with refused():
        symlab.run(case)


def test_a_kernel_that_never_ends_is_a_status(case):
    with symlab.world(ranks=3, step_budget=3) as world:
        done = symlab.run(case, world=world)
        assert done.status is Status.TIMEOUT
        assert not world.healthy
        with refused():
            symlab.run(case, world=world)


def test_cases_share_a_world(case):
    with symlab.world(ranks=3) as world:
        assert [symlab.run(one, world=world).status for one in (case, replace(case, seed=1))] == [Status.PASSED] * 2
        assert world.healthy
    with refused():
        symlab.run(case, world=world)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launches", 0),
        ("deadline_s", 0),
        ("timing", "graph"),
        ("timing", "often"),
        ("cache_dir", "/proc/version"),
        ("kernel", "all_reduce/one_shot"),
        *(("inputs", [torch.zeros(2048)] * ranks) for ranks in (1, 3)),
    ],
)
def test_wrong_arguments_are_value_errors(case, key, value):
    before = threading.active_count()
    with refused():
        symlab.run(case, **{key: value})
    assert threading.active_count() == before


def test_a_name_is_no_case():
    for use in (symlab.run, symlab.compile, symlab.make_inputs):
        with refused():
            use("all_reduce/two_shot")


def test_what_does_not_fit_is_known_before(case):
    with symlab.world(ranks=3, heap_bytes="4K") as world, refused():
        symlab.run(case, world=world)
    with symlab.world(ranks=2) as world, refused():
        symlab.run(case, world=world)
    odd = replace(case, size_bytes=4100)
    with refused():
        symlab.run(replace(odd, op="reduce_scatter", algorithm="pull"))


def test_memory_that_the_host_has_not_is_known_before(case, monkeypatch):
    monkeypatch.setattr(requests, "available_bytes", lambda: 1 << 20)
    with refused(ValueError, r"[\d.]+G"):
        symlab.run(case)


@pytest.mark.slow
def test_a_record_has_no_home_folder_and_no_secret(case, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    record = symlab.run(case, cache_dir=tmp_path / "somebody" / "cache").record
    assert "somebody" not in json.dumps(record.document())
