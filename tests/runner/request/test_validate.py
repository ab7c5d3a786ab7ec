"""The schema, its values, and Hydra's sweeps: what a command line means, before anything runs."""

import dataclasses
import shutil
import typing
from contextlib import contextmanager
from enum import StrEnum

import pytest
import yaml

from cases.case import Inputs
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import Composer
from runner.request.experiments import CONF, experiments
from runner.request.schema import SECTIONS, PlacementChoice, TimingMode
from runner.request.sizes import format_bytes, parse_bytes
from runner.request.validate import MAX_HEAP_BYTES, MIN_HEAP_BYTES
from runner.request_error import RequestError
from simulator.world import SimulatorOptions
from tests.golden import refused, same_text
from tests.runner.conftest import asked, one_asked, refusals

HEADER = "# @package _global_\n"


def composed(*arguments, multirun=False):
    with hydra_over():
        return compose_jobs(arguments, multirun)


def test_the_default_is_small_and_experiments_are_what_the_readme_says():
    (job,) = composed()
    default = job.request
    assert (default.op, default.world_size, default.root, default.offset) == ("all_reduce", 2, 0, 0)
    assert (default.sizes_bytes, default.sizes_given) == ((1024, 8192, 65536), False)
    assert (default.algorithms, default.dtype, default.accumulator, default.reduction) == ("auto",) * 4
    assert (job.experiment, default.baselines) == ("", "auto")
    fabric = default.fabric
    assert fabric.simulated
    gpus = dataclasses.replace(fabric, name="nvshmem")
    assert (gpus.simulated, gpus.heap_bytes) == (False, 8 << 30)
    assert composed("exp=allreduce_fp16")[0].request == composed("+exp=allreduce_fp16")[0].request
    bf16, barrier, eight, broadcast, word = asked(
        "+exp=allreduce_bf16",
        "+exp=barrier_gpus world_size=4",
        "+exp=barrier_gpus",
        "root=3 offset=5 inputs=edge algorithms=all op=broadcast",
        "algorithms=two_shot",
    )
    assert (bf16.dtype, bf16.accumulator, bf16.world_size) == ("bfloat16", "float32", 8)
    assert bf16.sizes_bytes == tuple(1024 * 4**power for power in range(6))
    assert (barrier.op, barrier.fabric.name, barrier.world_size, barrier.launches) == ("barrier", "nvshmem", 4, 2)
    assert (barrier.algorithms, barrier.baselines, barrier.timing.mode) == ("auto", "auto", "graph")
    assert eight.world_size == 8
    assert (broadcast.root, broadcast.offset, broadcast.inputs, broadcast.algorithms) == (3, 5, "edge", "all")
    assert word.algorithms == ("two_shot",)


def test_a_pair_of_types_is_short_for_both():
    one, same = asked("dtype=float8_e5m2/float16", "dtype=bfloat16/native accumulator=native")
    assert (one.dtype, one.accumulator) == ("float8_e5m2", "float16")
    assert (same.dtype, same.accumulator) == ("bfloat16", "native")


@pytest.mark.slow
def test_the_command_line_wins_over_an_experiment_and_its_sweep():
    (job,) = composed("+exp=allreduce_bf16", "world_size=3", "sizes.max=4K")
    assert (job.request.world_size, job.request.sizes_bytes) == (3, (1024, 4096))
    jobs = composed("+exp=accumulator_study", "dtype=bfloat16")
    assert [job.request.world_size for job in jobs] == [2, 4, 8, 16, 32, 72]
    (one,) = composed("+exp=accumulator_study", "hydra.mode=RUN", "accumulator=native")
    assert one.request.accumulator == "native"


def test_forms_of_sizes():
    expected = {
        "sizes=[1K,4K]": (1024, 4096),
        "sizes=[6,2]": (6, 2),
        "sizes=4k": (4096,),
        "sizes=2": (2,),
        "sizes=0": (0,),
        "sizes=[0,4]": (0, 4),
        "sizes.list=[1M]": (1 << 20,),
        "sizes.list=1G": (1 << 30,),
        "sizes={min:1K,max:17K,factor:4}": (1024, 4096, 16384),
        "sizes={list:[1KiB,2MB]}": (1024, 2 << 20),
        "sizes={min:auto,max:1K}": (1024,),
        "sizes.max=8K": (1024, 8192),
        "sizes.min=64K": (65536,),
    }
    found = asked(*expected)
    assert {line: one.sizes_bytes for line, one in zip(expected, found, strict=True)} == expected
    assert all(one.sizes_given for one in found)
    (usual,) = asked("sizes.factor=64")
    assert (usual.sizes_bytes, usual.sizes_given) == ((1 << 10, 1 << 16), False)


@pytest.mark.slow
def test_an_experiment_in_another_folder_beside_those_of_conf(tmp_path):
    (tmp_path / "exp").mkdir()
    (tmp_path / "fabric").mkdir()
    text = "# @package _global_\n# my own\nsizes: {list: [12, 1K]}\nworld_size: 5\n"
    (tmp_path / "exp" / "mine.yaml").write_text(text)
    (tmp_path / "exp" / "allreduce_fp16.yaml").write_text("# @package _global_\n# hidden by the one of conf/\n")
    (tmp_path / "fabric" / "blackwell.yaml").write_text("name: simulator\narch: sm_100a\n")
    (tmp_path / "config.yaml").write_text("world_size: 9\n")
    with hydra_over(tmp_path):
        (job,) = compose_jobs(["+exp=mine", "fabric=blackwell"], multirun=False)
        with refused(RequestError):
            compose_jobs(["+exp=mine", "sizes.max=1M"], multirun=False)
        (ranged,) = compose_jobs(["+exp=mine", "sizes.list=null", "sizes.max=2K"], multirun=False)
        both = compose_jobs(["+exp=mine,barrier"], multirun=True)
        (of_conf,) = compose_jobs(["+exp=allreduce_fp16"], multirun=False)
        with refused(RequestError):
            compose_jobs(["+exp=mime"], multirun=False)
        (plain,) = compose_jobs([], multirun=False)
    assert (job.request.world_size, job.request.sizes_bytes, job.request.fabric.arch) == (5, (12, 1024), "sm_100a")
    assert ranged.request.sizes_bytes == (1024,)
    assert [one.experiment for one in both] == ["mine", "barrier", "barrier", "barrier"]
    assert of_conf.request.dtype == "float16"
    assert plain.request.world_size == 2
    listed = experiments(tmp_path)
    assert listed["mine"] == "my own"
    assert listed.keys() - {"mine"} == experiments().keys()
    assert listed["allreduce_fp16"] == experiments()["allreduce_fp16"]


@contextmanager
def composer_of(folder, *texts):
    """A composer over a folder like conf/ that has the texts as experiments mine0, mine1, and so on."""
    shutil.copytree(CONF, folder / "conf")
    for number, text in enumerate(texts):
        (folder / "conf" / "exp" / f"mine{number}.yaml").write_text(text)
    with hydra_over(folder / "conf"):
        yield Composer()


def test_forms_of_sizes_in_a_file(tmp_path):
    expected = {
        "[4, 12, 1000]": (4, 12, 1000),
        "[1K, 8]": (1024, 8),
        "4K": (4096,),
        "12": (12,),
        "{max: 8K}": (1024, 8192),
        "{list: 8}": (8,),
    }
    with composer_of(tmp_path, *(f"{HEADER}sizes: {one}\n" for one in expected)) as composer:
        for number, sizes in enumerate(expected.values()):
            assert one_asked(composer, f"+exp=mine{number}").sizes_bytes == sizes
            assert one_asked(composer, f"+exp=mine{number} sizes=[16]").sizes_bytes == (16,)


BELOW = {
    "YAML": "seed: 1\nworld_size: [3 / seed: 1\nseed: 2 / seed: 1\n\tlaunches: 2 / op: @all / op: a: b / "
    "seed: 1\n---\nseed: 2 / null: 2",
    "sections": "- 4K / just words / fabric: simulator / timing: / hydra: null / hydra: {mode: FAST} / "
    "hydra: {sweeper: {params: [1]}} / defaults: simulator / wurld_size: 3",
    "values": "world_size: [3] / fabric: {seed: abc} / sizes: true / sizes: null / timing: {mode: grph} / "
    "world_size: two / op: null",
}
"""What is wrong below the header."""
WRONG_FILES = {kind: [f"{HEADER}{one}\n" for one in texts.split(" / ")] for kind, texts in BELOW.items()}
WRONG_FILES["YAML"] += [f"\ufeff{HEADER}seed: 1\n"]
WRONG_FILES["first line"] = ["# @package\nseed: 1\n", "", "seed: 3\n", "# text first\n# @package _global_\nseed: 3\n"]


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_what_is_wrong_in_a_file_is_said_with_its_name(tmp_path, kind):
    said = []
    with composer_of(tmp_path, *WRONG_FILES[kind]):
        for number in range(len(WRONG_FILES[kind])):
            with pytest.raises(RequestError) as caught:
                compose_jobs([f"+exp=mine{number}"], multirun=False)
            said.append(str(caught.value))
            assert f"exp/mine{number}" in said[-1]
            assert "\n" not in said[-1]
    same_text("\n".join(said))


ENUMS = sorted(
    {
        kind
        for schema in SECTIONS.values()
        for kind in typing.get_type_hints(schema).values()
        if isinstance(kind, type) and issubclass(kind, StrEnum)
    },
    key=lambda kind: kind.__name__,
)


def test_words_are_enums_whose_members_are_named_as_they_are_written():
    """OmegaConf reads and prints an enum by its members' names, records hold their values."""
    assert len(ENUMS) == 12
    assert [f"{word!r}" for kind in ENUMS for word in kind if word.name != word.value] == []


def test_a_composed_configuration_holds_plain_words():
    (job,) = composed("timing.mode=eager", "inputs=edge", "fabric=simulator", "placement=in_place")
    configuration = job.configuration
    words = (configuration["timing"]["mode"], configuration["inputs"], configuration["fabric"]["name"])
    assert words == ("eager", "edge", "simulator")
    assert {type(word) for word in words} == {str}
    assert yaml.safe_load(yaml.safe_dump(configuration)) == configuration, "safe_dump takes plain types only"
    request = job.request
    assert (request.timing.mode, request.inputs) == (TimingMode.eager, Inputs.edge)
    assert {type(request.timing.mode), type(request.placement)} == {TimingMode, PlacementChoice}


def test_numbers_of_bytes():
    given = {1: 1, "1": 1, "4K": 4096, "3m": 3 << 20, "2GiB": 2 << 30, " 8 ": 8, "7B": 7}
    assert {value: parse_bytes(value, "sizes.min") for value in given} == given
    assert parse_bytes(0, "sizes.list[0]", 0) == parse_bytes("0K", "sizes.list[0]", 0) == 0
    for text, size_bytes in {"1": 1, "1K": 1024, "1536": 1536, "1M": 1 << 20, "3G": 3 << 30}.items():
        assert format_bytes(size_bytes) == text
        assert parse_bytes(text, "x") == size_bytes
    said = []
    for wrong in (0, -1, "0", "0K", "-4", "K", "1.5K", "", "1 K x", True, None, 1.0, [1]):
        with pytest.raises(RequestError) as caught:
            parse_bytes(wrong, "sizes.min")
        said.append(str(caught.value))
    same_text("\n".join(said))


WRONG = {
    "unknown keys": "world_sise=4 / +xyz=1 / ++world_siz=2 / sizes.mni=1K / fabric.nme=x / sizes={min:1K,mox:2K} / "
    "hydra.foo=1 / timing.repeat=3",
    "removed and added": "~op / ~sizes / ~exp / ~op=reduce / +fabric=simulator / ++fabric=simulator / +timing=none / "
    "fabric@x=simulator",
    "groups": "+exp=allreduce_bf61 / +exp= / +exp=allreduce_bf16 +exp=allreduce_fp16 / fabric=simulater / "
    "fabric=null / +exp=mine/first / +exp=null / +exp={a:1}",
    "paths": "+exp=/etc/passwd / +exp=../config / +exp=[barrier] / +exp=barrier.yaml / fabric=../exp/barrier / "
    "fabric=[]",
    "sections": "sizes=null / timing=null / timing=none / timing=[1] / hydra=null / hydra.mode=FAST / track.name=mflow",
    "kinds of values": "world_size=two / world_size= / world_size=null / deadline_s=soon / op=[1] / op=null / "
    "check=maybe / sizes.factor=1.5",
    "references": "op=${nowhere} / op=${op} / seed=${oc.env:NO_SUCH_VARIABLE} / seed=??? / root=first / world_size=2.5",
    "words": "inputs=egde / fabric.name=gpu / fabric.multimem=other / fabric.schedule=randm / fabric.granularity=foo / "
    "placement=inplace / inputs=random",
    "words of timing": "timing.mode=grph / timing.mode=1 / timing.mode=GRAPH / timing.mode=null / "
    "timing.mode=[eager] / timing.l2=cold / timing.limit=guessed",
    "numbers": "root=-1 / offset=-1 / offset=1048577 / fabric.step_budget=0 / fabric.heap_bytes=-1 / fabric.seed=-1 / "
    "timing.samples=0 / timing.samples=10001 / timing.calls=0 / timing.warmup=-1 / world_size=0 / world_size=73 / "
    "seed=-1 / launches=0 / deadline_s=0 / deadline_s=-3 / fabric=simulator fabric.heap_bytes=8G / "
    "fabric.heap_bytes=1K / fabric=simulator fabric.heap_bytes=auto / fabric=nvshmem fabric.heap_bytes=256G",
    "sizes": "sizes=[-4] / sizes=[0,-4] / sizes=[0,0B] / sizes.min=-1K / sizes=[] / sizes.min=0 / sizes=[4K,4096] / "
    "sizes.min=1M sizes.max=1K / sizes.factor=1 / sizes=[1T] / sizes.max=1T / sizes.min=null",
    "of an op": "op=all_reduse / dtype=float61 / dtype=uint8 / op=barrier dtype=uint8 / reduction=average / "
    "dtype=bfloat16 accumulator=float64 / algorithms=[one_shot,two_shots] / algorithms=[] / "
    "algorithms=[one_shot,one_shot] / fabric.arch=sm_80 / fabric.arch=hopper / sizes=[1K,3] / sizes=1G / "
    "fabric.heap_bytes=64K sizes=[1M] / fabric.heap_bytes=16K sizes=[1M] / fabric=cuda / "
    "dtype=bfloat16/ / dtype=/native / dtype=bfloat16/native accumulator=float32",
    "names and places": "baselines=[nccl,nccl] / baselines={nccl:1} / track.uri=./mlruns / track.uri=file:///x / "
    "track.uri='sqlite:///' / track.experiment='' / records=''",
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_a_request_refuses(kind):
    same_text(refusals(WRONG[kind]))


@pytest.mark.parametrize(
    ("lines", "multirun"),
    [
        ("+exp=allreduce_bf16,allreduce_fp16", False),
        ("world_size=2,4", False),
        ("a b", False),
        ("world_size", False),
        ("=3", False),
        ("track.uri=sqlite:///gone/x.db", False),
        ("+exp=barrier,/etc/passwd", True),
        ("world_size=interval(1,4)", True),
        ("world_size=2,4,99", True),
        ("world_size=2,two", True),
        ("sizes=[8],null", True),
        ("hydra.sweeper.params.seed=1,2", True),
        ("hydra.sweeper.params={seed: 3}", True),
    ],
)
def test_what_a_command_line_refuses(lines, multirun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with hydra_over(), refused(RequestError):
        compose_jobs([lines], multirun)


def test_the_limits_of_the_heap_are_the_simulators():
    for heap_bytes in (MIN_HEAP_BYTES, MAX_HEAP_BYTES):
        assert SimulatorOptions(heap_bytes=heap_bytes).heap_bytes == heap_bytes
    for heap_bytes in (MIN_HEAP_BYTES - 1, MAX_HEAP_BYTES + 1):
        with refused():
            SimulatorOptions(heap_bytes=heap_bytes)


def test_the_heap_suits_the_fabric_or_is_as_given():
    expected = {
        "fabric=simulator": 256 << 20,
        "fabric=nvshmem": 8 << 30,
        "fabric=nvshmem fabric.heap_bytes=64G": 64 << 30,
        "fabric=nvshmem fabric.heap_bytes=auto": 128 << 30,
        "fabric=auto fabric.heap_bytes=auto": 256 << 20,
        "fabric.heap_bytes=1M": 1 << 20,
    }
    assert [one.fabric.heap_bytes for one in asked(*expected)] == list(expected.values())


@pytest.mark.slow
def test_the_uris_of_servers_and_databases_are_taken():
    for uri in ("http://localhost:5000", "postgresql+psycopg2://h/db", "'sqlite:////tmp/a b.db'"):
        assert composed(f"track.uri={uri}")[0].request.track.uri == uri.strip("'")


@pytest.mark.slow
def test_a_cache_that_others_can_write_to_is_refused_before_anything_runs(tmp_path):
    cache = tmp_path / "cache"
    assert composed(f"cache_dir={cache}")[0].request.cache_dir == cache
    cache.mkdir()
    cache.chmod(0o775)
    for more in ([], [f"records={cache}"]):  # records may be shared
        with hydra_over(), refused(RequestError):
            compose_jobs([f"cache_dir={cache}", *more], False)
    assert composed(f"records={cache}")[0].request.records == cache
