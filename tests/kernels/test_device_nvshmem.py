"""Kernels on NVSHMEM's device functions in the simulator: right and clean, and what is said of each mistake.

They are compiled with the bitcode of nvidia-nvshmem-cu13, which `make foreign` installs.
"""

from pathlib import Path

import pytest

import symlab
from cases.ops import collective
from kernels.brought import spec_at
from kernels.catalogue import NVSHMEM_FILES, retuned
from kernels.nvshmem_bitcode import bitcode
from kernels.tuning import Step, Tuning
from simulator.run.decode import decode
from symlab.command import main
from tests.kernels.launching import Launches
from tests.kernels.rank_behind import world_behind

MISTAKEN = Path(__file__).with_name("nvshmem_sabotaged.py")
SMALL = Tuning((Step(threads=64, blocks=2, loads_in_flight=2, reason="small data"),))
RANKS = 3
FOUND = bitcode("sm_90a")
ABSENT = "" if FOUND and FOUND.version.startswith("3.8.") else "there is no bitcode of NVSHMEM 3.8 (make foreign)"

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.skipif(bool(ABSENT), reason=ABSENT)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    made = tmp_path_factory.mktemp("cache")
    made.chmod(0o700)
    return made


def ended(name, cache, launches=2):
    kernel = symlab.kernel(f"{MISTAKEN}:{name}")
    case = symlab.case(kernel, size_bytes="1K", ranks=2)
    return symlab.run(case, kernel=kernel, races=True, cache_dir=cache, launches=launches)


def test_without_a_mistake_the_kernel_is_right_and_clean(cache):
    done = ended("RIGHT", cache)
    assert (done.status, done.reason) == ("PASSED", "")


@pytest.mark.parametrize(
    ("name", "launches"),
    [("OVERTAKEN", 2), ("UNREAD", 1)],
    ids=["a signal that overtakes a put", "data read before its signal"],
)
def test_a_mistake_is_a_race(name, launches, cache):
    done = ended(name, cache, launches)
    assert done.status == "WRONG"
    assert done.reason.startswith("race: ")
    assert "of output by rank" in done.reason


def test_a_buffer_that_is_reused_is_a_deadlock_of_a_later_launch(cache):
    assert ended("REUSED", cache, 1).status == "PASSED"
    assert ended("REUSED", cache).status == "DEADLOCK"


def test_a_signal_that_is_missing_is_a_deadlock_that_says_whose_and_what_is_expected(cache):
    done = ended("SILENT", cache)
    assert done.status == "DEADLOCK"
    assert "rank 1, block 0, thread 0 spins: sees 0 at 0x" in done.reason
    assert "byte 264 of tensor 'words'" in done.reason
    assert "compared with 1 (setp.eq.b64)" in done.reason


def ready(executable, is_by_block=True):
    """The executable, once its PTX is read: 3 MB take seconds, for which ranks that run would have to wait."""
    decode(executable.ptx, executable.entry)  # as the fabric calls it
    decode(executable.ptx, executable.entry, is_by_block)  # as a launch does
    return executable


def seen_behind(spec, fit_case, compiled, monkeypatch):
    """What four launches in a row come to, by the rank that is as far behind the others as they let it."""
    op = collective(spec.op)
    changes = {**({"root": 1} if op.rooted else {}), **({"counts": "skewed"} if op.sends else {})}
    case = fit_case(spec, world_size=RANKS, **changes, **({} if spec.op == "barrier" else {"size_bytes": 192}))
    executable = ready(compiled(spec, case, "sm_90a"))
    found = {}
    for rank in range(RANKS):
        work = Launches(spec, case, executable, count=4, world=world_behind(rank, monkeypatch))
        work.run(schedule="random", granularity="block")
        found[rank] = work.seen()
    return found


@pytest.mark.parametrize("name", NVSHMEM_FILES)
def test_launches_in_a_row_are_right_whichever_rank_is_far_behind(name, fit_case, compiled, monkeypatch):
    spec = retuned(name, SMALL)
    assert seen_behind(spec, fit_case, compiled, monkeypatch) == dict.fromkeys(range(RANKS), "right")


def test_a_signal_that_replaces_one_that_was_not_seen_is_a_deadlock(fit_case, compiled, monkeypatch):
    """The root is never too far behind: who waits for its data waits for it."""
    spec = spec_at(f"{MISTAKEN}:HASTY")
    found = seen_behind(spec, fit_case, compiled, monkeypatch)
    assert found == {0: "Deadlock", 1: "right", 2: "Deadlock"}


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
@pytest.mark.parametrize(("size_bytes", "root"), [(2, 0), (34, 2), (190, 1), (6_000, 2)])
def test_a_reduction_by_puts_reaches_the_root_alone(placement, size_bytes, root, fit_case, compiled):
    """Of sizes with empty slices and odd ends, at addresses that are not aligned; under the race checker."""
    spec = retuned("reduce/nvshmem_put", SMALL)
    case = fit_case(spec, size_bytes=size_bytes, root=root, offset=1, placement=placement)
    work = Launches(spec, case, ready(compiled(spec, case, "sm_90a"), is_by_block=False), count=2)
    world = work.run(races=True, schedule="random", seed=size_bytes)
    assert (work.seen(), world.findings) == ("right", ())


@pytest.mark.parametrize("counts", ["skewed", "zeros"])
def test_messages_of_any_counts_are_put_where_they_belong(counts, fit_case, compiled):
    """At addresses that are not aligned, and with other rows in each launch; under the race checker."""
    spec = retuned("all_to_all_v/nvshmem_put_signal", SMALL)
    case = fit_case(spec, size_bytes=606, counts=counts, offset=1)
    executable = ready(compiled(spec, case, "sm_90a"), is_by_block=False)
    work = Launches(spec, case, executable, count=3, seeds=(0, 4, 2))
    world = work.run(races=True, schedule="random", seed=5)
    assert (work.seen(), world.findings) == ("right", ())


def test_the_collective_of_thirty_lines_is_right_and_clean(cache, tmp_path):
    """The page's own text."""
    readme = Path(__file__).parents[2] / "kernels" / "README.md"
    code = readme.read_text(encoding="utf-8").split("```python next.py\n")[1].split("```")[0]
    assert len(code.strip().splitlines()) < 40
    file = tmp_path / "next.py"
    file.write_text(code, encoding="utf-8")
    kernel = symlab.kernel(f"{file}:SPEC")
    case = symlab.case(kernel, size_bytes="1K", ranks=3)
    done = symlab.run(case, kernel=kernel, races=True, cache_dir=cache)
    assert (done.status, done.reason) == ("PASSED", "")


def test_the_experiment_runs_one_algorithm_of_each_op(cache, tmp_path):
    where = [f"records={tmp_path / 'records'}", f"cache_dir={cache}", "track=none"]
    assert main(["run", "+exp=device_nvshmem", *where]) == 0
    found = symlab.records(tmp_path / "records")
    assert sorted(f"{one.case.op}/{one.case.algorithm}" for one in found) == sorted(NVSHMEM_FILES)
    assert {str(one.status) for one in found} == {"PASSED"}, "right, and no race"
