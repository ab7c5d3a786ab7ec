"""The schema, its values, and Hydra's sweeps: what a command line means, before anything runs."""

from __future__ import annotations

import dataclasses
import shutil
import typing
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from kernels.numeric.dtypes import ACCUMULATORS
from kernels.spec import Inputs
from reports.record.timing import Mode
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.experiments import experiments
from runner.request.schema import SECTIONS, PlacementChoice, Schema, TimingMode, TimingSchema
from runner.request.sizes import format_bytes, parse_bytes
from runner.request.validate import CONF, MAX_HEAP_BYTES, MIN_HEAP_BYTES
from runner.request_error import RequestError
from simulator.world import SimulatorOptions


def composed(*arguments: str, multirun: bool = False) -> tuple[ComposedJob, ...]:
    with hydra_over():
        return compose_jobs(arguments, multirun)


def refusal(*arguments: str, multirun: bool = False) -> str:
    with hydra_over(), pytest.raises(RequestError) as caught:
        compose_jobs(arguments, multirun)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_default_is_small() -> None:
    (job,) = composed()
    assert job.request.op == "all_reduce"
    assert job.request.world_size == 2
    assert (job.request.sizes_bytes, job.request.sizes_given) == ((1024, 8192, 65536), False)
    assert (job.request.root, job.request.offset) == (0, 0)
    left_open = (job.request.algorithms, job.request.dtype, job.request.accumulator, job.request.reduction)
    assert left_open == ("auto",) * 4
    assert job.experiment == ""


def test_allreduce_bf16_is_what_the_readme_says() -> None:
    (job,) = composed("+exp=allreduce_bf16")
    assert (job.request.dtype, job.request.accumulator, job.request.world_size) == ("bfloat16", "float32", 8)
    assert job.request.sizes_bytes == tuple(1024 * 4**power for power in range(6))


@pytest.mark.slow
def test_the_study_is_a_sweep_of_its_own() -> None:
    jobs = composed("+exp=accumulator_study")
    pairs = dict.fromkeys((job.request.dtype, job.request.accumulator) for job in jobs)
    assert list(pairs) == [
        (dtype, accumulator)
        for dtype in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32")
        for accumulator in ACCUMULATORS[dtype][: 1 if dtype == "float32" else None]
    ]
    assert [job.request.world_size for job in jobs] == [2, 4, 8, 16, 32, 72] * len(pairs)
    assert [job.number for job in jobs] == list(range(66))


@pytest.mark.slow
def test_a_pair_of_types_is_short_for_both() -> None:
    (job,) = composed("dtype=float8_e5m2/float16")
    assert (job.request.dtype, job.request.accumulator) == ("float8_e5m2", "float16")
    (same,) = composed("dtype=bfloat16/native", "accumulator=native")
    assert (same.request.dtype, same.request.accumulator) == ("bfloat16", "native")
    for line in ("dtype=bfloat16/", "dtype=/native"):
        assert "give dtype=bfloat16/native" in refusal(line)
    assert "(dtype, accumulator)" in refusal("dtype=bfloat16/native", "accumulator=float32")


@pytest.mark.slow
def test_the_command_line_wins_over_an_experiment_and_its_sweep() -> None:
    (job,) = composed("+exp=allreduce_bf16", "world_size=3", "sizes.max=4K")
    assert (job.request.world_size, job.request.sizes_bytes) == (3, (1024, 4096))
    jobs = composed("+exp=accumulator_study", "dtype=bfloat16")
    assert [job.request.world_size for job in jobs] == [2, 4, 8, 16, 32, 72]
    (one,) = composed("+exp=accumulator_study", "hydra.mode=RUN", "accumulator=native")
    assert one.request.accumulator == "native"


@pytest.mark.slow
def test_a_sweep_over_experiments_keeps_the_sweep_of_each() -> None:
    jobs = composed("+exp=barrier,allreduce_fp16", "seed=1,2", multirun=True)
    assert [job.experiment for job in jobs] == ["barrier"] * 6 + ["allreduce_fp16"] * 2
    assert [job.request.seed for job in jobs[:4]] == [1, 2, 1, 2]
    assert {job.request.world_size for job in jobs[:6]} == {2, 4, 8}


@pytest.mark.slow
def test_sweeps_of_lists_ranges_and_sizes() -> None:
    jobs = composed("world_size=range(2,5)", "sizes=[1K],[2K,4K]", "algorithms=[one_shot],[two_shot]", multirun=True)
    assert [(job.request.world_size, job.request.sizes_bytes, job.request.algorithms) for job in jobs[:3]] == [
        (2, (1024,), ("one_shot",)),
        (2, (1024,), ("two_shot",)),
        (2, (2048, 4096), ("one_shot",)),
    ]
    assert len(jobs) == 12


def test_exp_needs_no_plus() -> None:
    assert composed("exp=allreduce_fp16")[0].request == composed("+exp=allreduce_fp16")[0].request


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("sizes=[1K,4K]", (1024, 4096)),
        ("sizes=[6,2]", (6, 2)),
        ("sizes=4k", (4096,)),
        ("sizes=2", (2,)),
        ("sizes.list=[1M]", (1 << 20,)),
        ("sizes.list=1G", (1 << 30,)),
        ("sizes={min:1K,max:17K,factor:4}", (1024, 4096, 16384)),
        ("sizes={list:[1KiB,2MB]}", (1024, 2 << 20)),
    ],
)
def test_forms_of_sizes(argument: str, expected: tuple[int, ...]) -> None:
    assert composed(argument)[0].request.sizes_bytes == expected


def test_a_single_algorithm_may_be_a_word() -> None:
    assert composed("algorithms=two_shot")[0].request.algorithms == ("two_shot",)


@pytest.mark.slow
def test_an_experiment_in_another_folder_beside_those_of_conf(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "fabric").mkdir()
    text = "# @package _global_\n# my own\nsizes: {list: [12, 1K]}\nworld_size: 5\n"
    (tmp_path / "exp" / "mine.yaml").write_text(text)
    (tmp_path / "exp" / "allreduce_fp16.yaml").write_text("# @package _global_\n# hidden by the one of conf/\n")
    (tmp_path / "fabric" / "blackwell.yaml").write_text("name: simulator\narch: sm_100a\n")
    (tmp_path / "config.yaml").write_text("world_size: 9\n")
    with hydra_over(tmp_path):
        (job,) = compose_jobs(["+exp=mine", "fabric=blackwell"], multirun=False)
        with pytest.raises(RequestError, match=r"'sizes\.max=1M' has no effect beside a list of sizes"):
            compose_jobs(["+exp=mine", "sizes.max=1M"], multirun=False)
        (ranged,) = compose_jobs(["+exp=mine", "sizes.list=null", "sizes.max=2K"], multirun=False)
        both = compose_jobs(["+exp=mine,barrier"], multirun=True)
        (of_conf,) = compose_jobs(["+exp=allreduce_fp16"], multirun=False)
        with pytest.raises(RequestError, match="did you mean mine"):
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


@pytest.fixture
def with_experiment(tmp_path: Path) -> Callable[[str], Path]:
    """with_experiment(text): a folder like conf/ with exp/mine.yaml of that text."""

    def write(text: str) -> Path:
        shutil.copytree(CONF, tmp_path / "conf")
        (tmp_path / "conf" / "exp" / "mine.yaml").write_text(text)
        return tmp_path / "conf"

    return write


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[4, 12, 1000]", (4, 12, 1000)),
        ("[1K, 8]", (1024, 8)),
        ("4K", (4096,)),
        ("12", (12,)),
        ("{max: 8K}", (1024, 8192)),
        ("{list: 8}", (8,)),
    ],
)
def test_forms_of_sizes_in_a_file(
    with_experiment: Callable[[str], Path], written: str, expected: tuple[int, ...]
) -> None:
    folder = with_experiment(f"# @package _global_\nsizes: {written}\n")
    with hydra_over(folder):
        assert compose_jobs(["+exp=mine"], multirun=False)[0].request.sizes_bytes == expected
        assert compose_jobs(["+exp=mine", "sizes=[16]"], multirun=False)[0].request.sizes_bytes == (16,)


HEADER = "# @package _global_\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEADER + "seed: 1\nworld_size: [3\n", ["exp/mine.yaml:3: ", "(YAML)"]),
        (HEADER + "seed: 1\nseed: 2\n", ["exp/mine.yaml:3: ", "duplicate key"]),
        (HEADER + "seed: 1\n\tlaunches: 2\n", ["exp/mine.yaml:3: "]),
        (HEADER + "- 4K\n", ["exp/mine.yaml", "key: value"]),
        (HEADER + "just words\n", ["unknown key 'just' (just in exp/mine.yaml)"]),
        ("# @package\nseed: 1\n", ["exp/mine.yaml", "package"]),
        ("", ["exp/mine.yaml lacks '# @package _global_' on its first line"]),
        ("seed: 3\n", ["exp/mine.yaml lacks '# @package _global_' on its first line"]),
        ("# text first\n# @package _global_\nseed: 3\n", ["exp/mine.yaml lacks '# @package _global_'"]),
        (
            HEADER + "world_size: [3]\n",
            ["(world_size in exp/mine.yaml)", "'[3]' is not a whole number", "give a whole number"],
        ),
        (HEADER + "fabric: {seed: abc}\n", ["'abc'", "(fabric.seed in exp/mine.yaml)", "whole number"]),
        (HEADER + "fabric: simulator\n", ["'simulator'", "(fabric in exp/mine.yaml)", "{name: .., arch: ..}"]),
        (HEADER + "sizes: true\n", ["(sizes in exp/mine.yaml)"]),
        (
            HEADER + "timing: {mode: grph}\n",
            ["unknown mode 'grph' (timing.mode in exp/mine.yaml), did you mean graph?"],
        ),
        (HEADER + "world_size: two\n", ["'two' is not a whole number (world_size in exp/mine.yaml), give a whole"]),
        (HEADER + "op: null\n", ["op is null (op in exp/mine.yaml), give a word"]),
        (HEADER + "sizes: null\n", ["sizes is null (sizes in exp/mine.yaml), give sizes: [1K, 4K], or a range"]),
        (HEADER + "timing:\n", ["timing is a section and not null (timing in exp/mine.yaml), give it keys"]),
        (HEADER + "hydra: null\n", ["hydra is a section (hydra in exp/mine.yaml), give it keys: {mode: MULTIRUN"]),
        (HEADER + "hydra: {mode: FAST}\n", ["'FAST' is an unknown word (hydra.mode in exp/mine.yaml), give RUN or"]),
        (HEADER + "hydra: {sweeper: {params: [1]}}\n", ["a list stands where keys belong (exp/mine.yaml)"]),
        (
            HEADER + "defaults: simulator\n",
            ["exp/mine.yaml: defaults must be a list", "(defaults), write it as a list"],
        ),
        (HEADER + "null: 2\n", ["can't read exp/mine.yaml: a key is not a word"]),
        ("\ufeff" + HEADER + "seed: 1\n", ["exp/mine.yaml begins with a byte order mark (BOM), save it as UTF-8"]),
        (HEADER + "op: @all\n", ["exp/mine.yaml:2: found character '@'", "(YAML), put the value in quotes"]),
        (HEADER + "op: a: b\n", ["exp/mine.yaml:2: ", "(YAML), indent keys of one section alike"]),
        (HEADER + "seed: 1\n---\nseed: 2\n", ["exp/mine.yaml:3: found another document (YAML), keep one document"]),
        (HEADER + "wurld_size: 3\n", ["unknown key 'wurld_size' (wurld_size in exp/mine.yaml)", "world_size"]),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_name(
    with_experiment: Callable[[str], Path], text: str, parts: list[str]
) -> None:
    with hydra_over(with_experiment(text)), pytest.raises(RequestError) as caught:
        compose_jobs(["+exp=mine"], multirun=False)
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
    assert "\n" not in message
    assert "command line" not in message


ENUMS = sorted(
    {
        kind
        for schema in SECTIONS.values()
        for kind in typing.get_type_hints(schema).values()
        if isinstance(kind, type) and issubclass(kind, StrEnum)
    },
    key=lambda kind: kind.__name__,
)


def test_words_are_enums_whose_members_are_named_as_they_are_written() -> None:
    """OmegaConf reads and prints an enum by its members' names, records hold their values."""
    assert len(ENUMS) == 14
    assert [f"{word!r}" for kind in ENUMS for word in kind if word.name != word.value] == []


def test_what_a_timing_says_of_its_mode_is_what_can_be_asked_for() -> None:
    assert {*map(str, Mode)} == {*map(str, TimingMode)} - {"none"}


def test_a_composed_configuration_holds_plain_words() -> None:
    (job,) = composed("timing.mode=eager", "inputs=edge", "fabric=simulator", "placement=in_place")
    configuration = job.configuration
    words = (configuration["timing"]["mode"], configuration["inputs"], configuration["fabric"]["name"])
    assert words == ("eager", "edge", "simulator")
    assert {type(word) for word in words} == {str}
    assert yaml.safe_load(yaml.safe_dump(configuration)) == configuration, "safe_dump takes plain types only"
    request = job.request
    assert (request.timing.mode, request.inputs) == (TimingMode.eager, Inputs.edge)
    assert {type(request.timing.mode), type(request.placement)} == {TimingMode, PlacementChoice}


def test_the_schema_and_the_file_agree() -> None:
    written = yaml.safe_load((CONF / "config.yaml").read_text())
    keys = set(written) - {"defaults", "hydra"} | {"fabric", "track"}
    assert keys == {member.name for member in dataclasses.fields(Schema)}
    timing = TimingSchema()
    assert written["timing"] == dataclasses.asdict(timing)
    plain = OmegaConf.to_container(OmegaConf.structured(Schema), enum_to_str=True)
    assert isinstance(plain, dict)
    same = ("placement", "inputs", "isolation", "timing")
    assert {key: written[key] for key in same} == {key: plain[key] for key in same}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1), ("1", 1), ("4K", 4096), ("3m", 3 << 20), ("2GiB", 2 << 30), (" 8 ", 8), ("7B", 7)],
)
def test_parse_bytes(value: object, expected: int) -> None:
    assert parse_bytes(value, "sizes.min") == expected


@pytest.mark.parametrize("value", [0, -1, "0", "0K", "-4", "K", "1.5K", "", "1 K x", True, None, 1.0, [1]])
def test_what_is_no_number_of_bytes(value: object) -> None:
    with pytest.raises(RequestError, match=r"\(sizes\.min\), give a positive number of bytes"):
        parse_bytes(value, "sizes.min")


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(1, "1"), (1024, "1K"), (1536, "1536"), (1 << 20, "1M"), (3 << 30, "3G")]
)
def test_format_bytes(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text
    assert parse_bytes(text, "x") == size_bytes


@pytest.mark.slow
def test_a_list_may_hold_nothing_and_a_range_begins_with_something() -> None:
    assert composed("sizes=[0,4]")[0].request.sizes_bytes == (0, 4)
    assert composed("sizes=0")[0].request.sizes_bytes == (0,)
    assert parse_bytes(0, "sizes.list[0]", 0) == parse_bytes("0K", "sizes.list[0]", 0) == 0
    assert "0 bytes (sizes.min), give a positive number of bytes" in refusal("sizes.min=0")
    assert "-4 bytes (sizes.list[1]), give a number of bytes, 0 or more, such as 4096, 4K" in refusal("sizes=[0,-4]")
    assert "0 is listed twice (sizes.list)" in refusal("sizes=[0,0B]")


@pytest.mark.parametrize(
    ("argument", "sizes", "is_given"),
    [
        ("sizes.factor=64", (1 << 10, 1 << 16), False),
        ("sizes.max=8K", (1 << 10, 1 << 13), True),
        ("sizes.min=64K", (1 << 16,), True),
        ("sizes=[1K]", (1 << 10,), True),
        ("sizes={min:auto,max:1K}", (1 << 10,), True),
    ],
)
def test_sizes_that_are_not_given_are_the_usual_ones(argument: str, sizes: tuple[int, ...], is_given: bool) -> None:
    request = composed(argument)[0].request
    assert (request.sizes_bytes, request.sizes_given) == (sizes, is_given)


def test_what_is_asked_of_ranks_and_buffers() -> None:
    request = composed("root=3", "offset=5", "inputs=edge", "algorithms=all", "op=broadcast")[0].request
    assert (request.root, request.offset, request.inputs, request.algorithms) == (3, 5, "edge", "all")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["root=-1"], ["root is -1 (root), give 0 or more"]),
        (["offset=-1"], ["offset is -1 (offset), give 0 to 1048576"]),
        (["offset=1048577"], ["offset is 1048577 (offset), give 0 to 1048576"]),
        (["root=first"], ["first", "(root)", "whole number"]),
        (["inputs=egde"], ["unknown inputs 'egde' (inputs), did you mean edge?"]),
        (["algorithms=[]"], ["(algorithms), give auto, all, device_nvshmem or names"]),
        (["world_sise=4"], ["unknown key 'world_sise'", "did you mean world_size?"]),
        (["+xyz=1"], ["unknown key 'xyz'", "world_size"]),
        (["++world_siz=2"], ["unknown key 'world_siz'", "world_size"]),
        (["sizes.mni=1K"], ["unknown key 'sizes.mni'", "min"]),
        (["fabric.nme=x"], ["unknown key 'fabric.nme'", "did you mean name?"]),
        (["sizes={min:1K,mox:2K}"], ["unknown key 'sizes.mox'", "did you mean max?"]),
        (["hydra.foo=1"], ["unknown key 'hydra.foo'"]),
        (["~op"], ["key 'op' was removed"]),
        (["~sizes"], ["key 'sizes' was removed"]),
        (["+exp=allreduce_bf61"], ["unknown exp 'allreduce_bf61' (exp)", "allreduce_bf16"]),
        (["+exp="], ["no exp given (exp), known: accumulator_study"]),
        (["+exp=allreduce_bf16", "+exp=allreduce_fp16"], ["several values of one group (exp)", "-m +exp=a,b"]),
        (["+exp=allreduce_bf16,allreduce_fp16"], ["several experiments", "add -m"]),
        (["fabric=simulater"], ["unknown fabric 'simulater'", "did you mean simulator?"]),
        (["fabric.name=gpu"], ["unknown name 'gpu' (fabric.name)", "simulator"]),
        (["world_size=two"], ["two", "(world_size)", "whole number"]),
        (["world_size=2.5"], ["2.5", "(world_size)"]),
        (["world_size="], ["(world_size)", "whole number"]),
        (["world_size=null"], ["(world_size)", "whole number"]),
        (["world_size=2,4"], ["several values", "add -m"]),
        (["check=maybe"], ["maybe", "(check.results)", "true or false"]),
        (["deadline_s=soon"], ["soon", "(deadline_s)", "a number"]),
        (["op=[1]"], ["(op)", "a word"]),
        (["op=${nowhere}"], ["nowhere", "(op)"]),
        (["a b"], ["can't read 'a b'"]),
        (["world_size"], ["can't read 'world_size'", "key=value"]),
        (["fabric=null"], ["no fabric given (fabric), known: auto, nvshmem, simulator"]),
        (["hydra.mode=FAST"], ["(hydra.mode)", "MULTIRUN"]),
        (["fabric.step_budget=0"], ["fabric.step_budget", "1 or more"]),
        (["fabric.arch=hopper"], ["'hopper' is no architecture (fabric.arch)", "sm_90a"]),
        (["fabric.multimem=other"], ["(fabric.multimem)", "exact, stated"]),
        (["fabric.schedule=randm"], ["(fabric.schedule)", "random"]),
        (["fabric.heap_bytes=-1"], ["(fabric.heap_bytes)", "positive"]),
        (["fabric.seed=-1"], ["(fabric.seed)", "0 or more"]),
        (["timing.mode=grph"], ["unknown mode 'grph' (timing.mode)", "did you mean graph?"]),
        (["timing.mode=1"], ["unknown mode '1' (timing.mode), known: eager, graph, none"]),
        (["timing.mode=GRAPH"], ["unknown mode 'GRAPH' (timing.mode)"]),
        (["timing.mode=null"], ["(timing.mode), give one of graph, eager, none"]),
        (["timing.mode=[eager]"], ["is not a word (timing.mode), give one of graph, eager, none"]),
        (["placement=inplace"], ["unknown placement 'inplace' (placement), did you mean in_place"]),
        (["track.name=mflow"], ["unknown name 'mflow' (track.name), did you mean mlflow?"]),
        (["timing.window=all"], ["(timing.window)", "entry_barrier"]),
        (["timing.l2=cold"], ["(timing.l2)", "hot, rotate"]),
        (["timing.limit=guessed"], ["unknown limit 'guessed' (timing.limit), known: measured, none"]),
        (["timing.samples=0"], ["timing.samples is 0 (timing.samples), give 1 to 10000"]),
        (["timing.samples=10001"], ["timing.samples is 10001 (timing.samples), give 1 to 10000"]),
        (["timing.calls=0"], ["timing.calls is 0 (timing.calls), give 1 to 1000"]),
        (["timing.warmup=-1"], ["timing.warmup is -1 (timing.warmup), give 0 to 1000"]),
        (["timing.repeat=3"], ["unknown key 'timing.repeat'"]),
        (["isolation=proces"], ["unknown isolation 'proces' (isolation), did you mean process?"]),
        (["baselines=[nccl,nccl]"], ["nccl is listed twice (baselines)"]),
        (["baselines={nccl:1}"], ["(baselines)", "give auto, none or names"]),
        (["fabric=simulator", "fabric.heap_bytes=8G"], ["a heap of 8G a rank (fabric.heap_bytes), give 4K to 4G"]),
        (["fabric=simulator", "fabric.heap_bytes=auto"], ["the simulator's heap has a size (fabric.heap_bytes), give"]),
        (["fabric=nvshmem", "fabric.heap_bytes=256G"], ["a heap of 256G a rank (fabric.heap_bytes), give 4K to 128G"]),
        (["track.uri=./mlruns"], ["'./mlruns' is no tracking URI (track.uri)", "sqlite:///mlflow.db"]),
        (["track.uri=file:///tmp/x"], ["is no tracking URI (track.uri)"]),
        (["track.uri='sqlite:///'"], ["names no database file"]),
        (["track.experiment=''"], ["(track.experiment)"]),
    ],
)
def test_what_composition_refuses(arguments: list[str], parts: list[str]) -> None:
    message = refusal(*arguments)
    assert [part for part in parts if part not in message] == [], message


def test_the_limits_of_the_heap_are_the_simulators() -> None:
    for heap_bytes in (MIN_HEAP_BYTES, MAX_HEAP_BYTES):
        assert SimulatorOptions(heap_bytes=heap_bytes).heap_bytes == heap_bytes
    for heap_bytes in (MIN_HEAP_BYTES - 1, MAX_HEAP_BYTES + 1):
        with pytest.raises(ValueError, match="heap_bytes"):
            SimulatorOptions(heap_bytes=heap_bytes)


@pytest.mark.parametrize(
    ("arguments", "heap_bytes"),
    [
        (["fabric=simulator"], 256 << 20),
        (["fabric=nvshmem"], 8 << 30),
        (["fabric=nvshmem", "fabric.heap_bytes=64G"], 64 << 30),
        (["fabric=nvshmem", "fabric.heap_bytes=auto"], 128 << 30),
        (["fabric=auto", "fabric.heap_bytes=auto"], 256 << 20),
        (["fabric.heap_bytes=1M"], 1 << 20),
    ],
)
def test_the_heap_suits_the_fabric_or_is_as_given(arguments: list[str], heap_bytes: int) -> None:
    assert composed(*arguments)[0].request.fabric.heap_bytes == heap_bytes


def test_the_heap_follows_what_auto_becomes() -> None:
    fabric = composed()[0].request.fabric
    assert fabric.simulated
    assert dataclasses.replace(fabric, name="nvshmem").heap_bytes == 8 << 30
    assert not dataclasses.replace(fabric, name="nvshmem").simulated


@pytest.mark.slow
def test_timing_and_baselines_as_given() -> None:
    (job,) = composed("timing.calls=7", "timing.l2=hot", "baselines=[nccl,torch/one_shot]", "isolation=process")
    timing = job.request.timing
    assert (timing.mode, timing.window, timing.l2, timing.warmup) == ("graph", "kernel", "hot", 3)
    assert (timing.samples, timing.calls, timing.limit) == (50, 7, "measured")
    assert (job.request.baselines, job.request.isolation) == (("nccl", "torch/one_shot"), "process")
    assert composed("baselines=none")[0].request.baselines == ()
    assert composed("baselines=nccl")[0].request.baselines == ("nccl",)
    assert composed()[0].request.baselines == "auto"


@pytest.mark.slow
def test_what_is_published_is_three_dtypes_on_gpus() -> None:
    jobs = composed("+exp=allreduce_gpus", "world_size=4")
    assert [job.request.dtype for job in jobs] == ["bfloat16", "float16", "float32"]
    request = jobs[0].request
    assert (request.fabric.name, request.world_size, request.launches, request.check) == ("nvshmem", 4, 2, True)
    assert request.sizes_bytes == tuple(1024 * 4**power for power in range(10))
    assert composed("+exp=allreduce_gpus", "fabric=simulator")[0].request.fabric.name == "simulator"


def test_the_barrier_on_gpus_is_one_job_in_graphs() -> None:
    (job,) = composed("+exp=barrier_gpus", "world_size=4")
    request = job.request
    assert (request.op, request.fabric.name, request.world_size, request.launches) == ("barrier", "nvshmem", 4, 2)
    assert (request.algorithms, request.baselines, request.timing.mode) == ("auto", "auto", "graph")
    assert composed("+exp=barrier_gpus")[0].request.world_size == 8


@pytest.mark.slow
def test_odd_numbers_of_ranks_are_all_ops_on_each_with_one_world_kept_for_its_ops() -> None:
    requests = [job.request for job in composed("+exp=odd_ranks_gpus")]
    assert [one.world_size for one in requests] == [ranks for ranks in (3, 5, 6, 7) for _ in range(7)]
    ops = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "send_recv")
    assert [one.op for one in requests] == [*ops] * 4
    assert {(one.fabric.name, one.dtype, one.baselines, one.check) for one in requests} == {
        ("nvshmem", "bfloat16", "auto", True)
    }
    assert {one.sizes_bytes for one in requests} == {tuple(1024 * 8**power for power in range(7))}
    configurations = [job.configuration for job in composed("+exp=odd_ranks_gpus")]
    assert {one["library"]["nccl_graph_mixing"] for one in configurations} == {False}
    assert len(composed("+exp=odd_ranks_gpus", "world_size=3", "op=all_reduce")) == 1


def test_an_impossible_value_in_the_last_job_of_a_sweep_is_found_first() -> None:
    assert "world of 99 ranks" in refusal("world_size=2,4,99", multirun=True)


def test_a_sweep_without_end_is_refused() -> None:
    assert "has no end of values" in refusal("world_size=interval(1,4)", multirun=True)


@pytest.mark.slow
def test_the_uris_of_servers_and_databases_are_taken() -> None:
    for uri in ("http://localhost:5000", "postgresql+psycopg2://h/db", "'sqlite:////tmp/a b.db'"):
        assert composed(f"track.uri={uri}")[0].request.track.uri == uri.strip("'")


@pytest.mark.slow
def test_a_cache_that_others_can_write_to_is_refused_before_anything_runs(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert composed(f"cache_dir={cache}")[0].request.cache_dir == cache
    cache.mkdir()
    cache.chmod(0o775)
    said = refusal(f"cache_dir={cache}")
    assert said.startswith(
        f"{cache} can be written to by other users (mode 0775), and compiled kernels from there would"
    )
    assert f"(cache_dir={cache}), name another folder, or take the others' permission away" in said
    assert "\n" not in said
    assert refusal(f"records={cache}", f"cache_dir={cache}") == said, "records may be shared"
    assert composed(f"records={cache}")[0].request.records == cache
