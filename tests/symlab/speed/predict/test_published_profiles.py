"""What lies beside the published records is what they name, and what the simulator gives today."""

import lzma

import pytest

from kernels.tuned_name import base_of
from reports.record.bundle import KERNELS_NAME, published_sets
from reports.record.bundle import PUBLISHED as PLACE
from runner.request.experiments import CONF
from symlab.speed.predict import recorded_kernels
from symlab.speed.predict.evidence import COMMAND, profile_key
from symlab.speed.predict.published import machines, missing, works
from symlab.speed.predict.recorded_kernels import PROFILES, read_profiles
from symlab.speed.predict.splits import FITTED_TO
from symlab.speed.predict.stored_score import PLACE as SCORE

ROOT = CONF.parent
NAMES = tuple(published_sets(ROOT))
FITTED = tuple(FITTED_TO)
"""The sets whose cases are sampled: others may have other kernels."""

SAMPLE = (
    ("all_reduce", "one_shot", 65536),
    ("all_reduce", "lamport", 16384),
    ("all_gather", "bulk", 16384),
    ("reduce_scatter", "push", 65536),
)
SLOW_SAMPLE = (
    ("all_reduce", "two_shot", 268435456),
    ("all_reduce", "two_shot_lamport", 262144),
    ("broadcast", "two_shot", 4194304),
    ("all_to_all", "pull", 1048576),
    ("reduce", "pull", 16777216),
    ("send_recv", "push", 67108864),
)


@pytest.fixture(scope="module")
def records():
    return machines(ROOT)


@pytest.mark.parametrize("name", NAMES)
def test_all_sets_have_kernels_and_profiles(records, name):
    late = missing(ROOT / PLACE / name, records.get(name, ()))
    assert not late, f"{name}: {', '.join(late)} missing or of other records; run {COMMAND}"
    assert SCORE.is_file()


def test_the_sets_that_constants_are_fitted_to_are_published():
    assert set(FITTED) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_ptx_has_the_digests_of_the_records(records, name):
    if name not in records:
        pytest.skip("it has no case that the model is scored by")
    kernels = recorded_kernels.read(ROOT / PLACE / name / KERNELS_NAME)
    wanted = {profile_key(one): one for one in records[name]}
    assert set(kernels.launches) == set(wanted)
    assert set(kernels.texts) == {one.kernel.ptx_digest for one in records[name]}
    assert {recorded_kernels.digest_of(text) for text in kernels.texts.values()} == set(kernels.texts)
    assert {kernels.commit} == {one.environment.git["commit"] for one in records[name]}
    for key, record in wanted.items():
        launch = kernels.launches[key]
        assert kernels.entries[launch.digest] == record.kernel.entry
        assert (launch.blocks, launch.threads) == (record.kernel.grid, record.kernel.block)
    assert set(read_profiles(ROOT / PLACE / name / PROFILES)) == set(wanted)


def test_changed_ptx_is_refused(tmp_path):
    path = ROOT / PLACE / FITTED[0] / KERNELS_NAME
    text = lzma.decompress(path.read_bytes())
    changed = tmp_path / KERNELS_NAME
    text = text.replace(b"ld.relaxed.sys", b"ld.acquire.sys", 1)
    changed.write_bytes(lzma.compress(text, preset=0))
    with pytest.raises(ValueError, match=r"kernels\.json\.xz: .*has another digest"):
        recorded_kernels.read(changed)


@pytest.mark.parametrize("content", [b"", b"{}", lzma.compress(b"[]"), lzma.compress(b'{"form": 3}')])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "file.json.xz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"file\.json\.xz: not a file of recorded kernels"):
        recorded_kernels.read(path)
    with pytest.raises(ValueError, match=r"file\.json\.xz: not a file of profiles"):
        read_profiles(path)


def test_profiles_of_another_form_are_made_anew(tmp_path):
    path = tmp_path / PROFILES
    path.write_bytes(lzma.compress(b'{"form": 1, "profiles": {"a": {"directions": []}}}'))
    assert read_profiles(path) == {}


def _again(records, name, sample):
    kernels = recorded_kernels.read(ROOT / PLACE / name / KERNELS_NAME)
    known = read_profiles(ROOT / PLACE / name / PROFILES)
    keys = [
        profile_key(one)
        for one in {profile_key(one): one for one in records[name]}.values()
        if (one.case.op, base_of(one.case.algorithm), one.case.size_bytes) in sample and one.case.dtype == "bfloat16"
    ]
    ops = {one.case.op for one in records[name]}
    assert len(keys) == sum(op in ops for op, _, _ in sample) > 0
    for key, work in works(kernels, keys):
        assert work == known[key], key


@pytest.mark.slow
def test_a_sample_of_the_profiles_is_what_the_simulator_gives(records):
    _again(records, FITTED[0], SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED)
def test_more_of_the_profiles_are_what_the_simulator_gives(records, name):
    _again(records, name, SLOW_SAMPLE)
