"""op=custom on the command line: run, planned, recorded, judged, replayed, audited, and refused in one line."""

import hashlib
import json
import re

import pytest

from cases.assumptions import sentence_of
from cases.record.record import CHECK_WAS_OFF, Status
from reports.record.bundle import read
from reports.record.seal import broken
from runner.__main__ import main
from runner.case.allowed_code import allowed_code
from runner.case.bringing import custom_digest, custom_places
from runner.case.todays_code import sources
from runner.request_error import RequestError
from tests.golden import refused, same_text
from tests.processes import ran
from tests.reports.synthetic import with_request
from tests.rooms import needs
from tests.runner.custom.own_ptx import ADD_PEERS, CUTE_ARGUMENTS, TENSOR_ARGUMENTS, write_experiment

BAD_STRUCTS = [
    *([], ["output"], {"size": 8}, {0: "output", "size": 4}, {0: "output", 4: "rank"}),
    *({"a": 5}, {40_000: 5}, {0: 5}, {0: "outptu"}, {0: "output+4000"}, {0: {"u8": 300}}, {0: {"tensor": "output"}}),
    *({0: {"peer": ["input", 4]}}, {0: {"addresses": ["input", 3]}}, {0: {"struct": {4: {"u32": "ranks"}}}}),
]
"""What is given for the struct of add_struct.ptx:add_struct."""


@pytest.fixture
def said(capsys):
    """said(): the one line that a command wrote as an error."""

    def go():
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) <= 1
        return "\n".join(lines)

    return go


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(*arguments, keys=.., **changes of the section): the exit code of a command in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments, keys=None, **changes):
        write_experiment(tmp_path / "conf", keys=keys, **changes)
        return main(["--config-dir", "conf", "+exp=mine", "fabric=simulator", "track=none", *arguments])

    return go


def record_in(folder):
    (record,) = read([folder])
    return record


def test_ptx_runs_and_its_record_says_all_of_it(run, tmp_path):
    assert run() == 0
    record = record_in(tmp_path / "records")
    assert record.id == "custom-add_peers-float32-none-none-n4-8000B-out_of_place-normal-s0"
    assert (record.status, record.verified) == (Status.PASSED, True)
    assert (record.check.method, record.check.elements, record.check.wrong) == ("bitwise", 2 * 4 * 1000, 0)
    assert len({digest for row in record.check.output_digests for digest in row}) == 1, "all have the sum"
    digest = hashlib.sha256(ADD_PEERS.read_bytes()).hexdigest()
    assert record.kernel.ptx_digest == f"sha256:{digest}"
    assert (record.kernel.entry, record.kernel.grid, record.kernel.block) == ("add_peers", 8, 128)
    assert record.counters["instructions"]
    folder = next((tmp_path / "records").iterdir())
    assert (folder / "ptx" / f"{digest}.ptx").read_bytes() == ADD_PEERS.read_bytes()
    entry = record.request.brought["add_peers"]
    assert [one["name"] for one in entry["files"]] == ["add_peers.ptx", "add_peers.py"]
    assert entry["digest"] == record.kernel.source_digest
    assert broken(folder) == []


@pytest.mark.slow
def test_races_are_looked_for_unless_it_is_said_otherwise(run, tmp_path, capsys):
    assert run() == 0
    assert capsys.readouterr().out.count("1 case: 1 passed; no race in any of 1 checked case, also with ") == 1
    assert run("check.races=false", "records=others") == 0
    assert capsys.readouterr().out.count("1 case: 1 passed; races: not looked for\n") == 1
    assert record_in(tmp_path / "others").findings is None
    assert record_in(tmp_path / "records").findings is not None


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_struct_by_value_has_fields_at_offsets(run, tmp_path, ranks):
    """Addresses of all ranks' inputs, of the own output, and numbers, as records keep them, too."""
    given = {"struct": {0: {"addresses": ["input", 8]}, 64: "output", 72: {"u16": "world_size"}, 76: {"s32": 1000}}}
    assert run(f"world_size={ranks}", kernel="add_struct.ptx:add_struct", arguments=[given]) == 0
    record = record_in(tmp_path / "records")
    assert record.verified
    custom = record.request.configuration["custom"]
    assert list(custom["arguments"][0]["struct"]) == ["0", "64", "72", "76"]
    assert run("records=again", kernel="add_struct.ptx:add_struct", arguments=custom["arguments"]) == 0


COUNTED = {
    "kernel": "count.ptx:count",
    "launch": {"grid": 1, "block": 1},
    "buffers": {"output": {"dtype": "int32", "shape": [1], "fill": "add_peers.py:one"}},
    "arguments": ["output", "launch"],
    "reference": "add_peers.py:counted",
}


def test_launches_in_a_row_keep_the_buffers_and_the_next_check_fills_them(run, tmp_path):
    assert run("launches=2", **COUNTED, launches=3) == 0
    check = record_in(tmp_path / "records").check
    assert (check.launches, check.wrong) == (2, 0)
    assert run("records=other", **COUNTED, launches=2) == 1


STEP = {"kernel": "count.ptx:count", "launch": {"grid": 1, "block": 1}, "arguments": ["output", {"u32": 2}]}
BAD_FOLLOWERS = [
    5,
    [5],
    [{**STEP, "buffers": {}}],
    [{**STEP, "kernel": "count.ptx:counts"}],
    [STEP, {**STEP, "arguments": ["output"]}],
    [{**STEP, "arguments": ["outputs", "launch"]}],
    *([{**STEP, "launch": launch}] for launch in ({"grid": 1}, {"grid": 1, "block": 1, "shared_bytes": 1 << 19})),
    [{**STEP, "launch": {"grid": 1, "block": 1, "assumptions": ["luck"]}}],
    [{**STEP, "launch": {"grid": 1, "block": 1, "stream": "side"}}],
]


def test_kernels_follow_one_another_in_each_launch(run, tmp_path):
    """1 becomes 10, 102, 1021, 10212."""
    given = {**COUNTED, "launches": 2, "reference": "add_peers.py:both"}
    assert run("launches=2", **given, then=[STEP]) == 0
    record = record_in(tmp_path / "records")
    assert record.kernel.entry == "count, count"
    (folder,) = (tmp_path / "records").iterdir()
    text = (tmp_path / "conf" / "exp" / "count.ptx").read_text()
    digest = hashlib.sha256(f"{text}\n{text}".encode()).hexdigest()
    assert record.kernel.ptx_digest == f"sha256:{digest}"
    assert (folder / "ptx" / f"{digest}.ptx").read_text() == f"{text}\n{text}"
    assert broken(folder) == []
    assert run("records=other", **given) == 1


def test_followers_have_streams_and_assumptions_of_their_own(run, tmp_path):
    """On one stream 1 becomes 10, 102, 1021, 10212, as in order."""
    one, other = ({"grid": 1, "block": 1, "stream": 3, "assumptions": [name]} for name in ("vector_8", "kernel_end"))
    given = {**COUNTED, "launches": 2, "reference": "add_peers.py:both", "launch": one}
    assert run("launches=2", **given, then=[{**STEP, "launch": other}]) == 0
    record = record_in(tmp_path / "records")
    assert record.kernel.assumptions == (sentence_of("vector_8"), sentence_of("kernel_end"))
    assert run("records=apart", **given, then=[{**STEP, "launch": {**other, "stream": 4}}]) == 1, "a race"


def test_two_worlds_have_the_same_bits_and_another_seed_has_others(run, tmp_path):
    """The second world's reference spoils its inputs, and gives all ranks one tensor."""
    assert run("records=one", "fabric.schedule=random", "fabric.seed=1") == 0
    assert run("records=two", "fabric.schedule=random", "fabric.seed=2", reference="add_peers.py:spoils") == 0
    assert run("records=three", "seed=1") == 0
    one, two, three = (record_in(tmp_path / name).check for name in ("one", "two", "three"))
    assert (one.input_digests, one.output_digests) == (two.input_digests, two.output_digests)
    assert one.output_digests != three.output_digests


@needs("evidence")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "tensors", "dynamic_tensors", "peers"])
def test_a_function_of_cute_dsl_gives_the_same_bits_as_the_ptx(run, tmp_path, kind):
    """With tensors it computes its own launch."""
    values = {"kernel": "cute.py:add", "arguments": CUTE_ARGUMENTS}
    if kind:
        arguments = [{kind: "input"}, *TENSOR_ARGUMENTS[1:]]
        values = {"kernel": "tensors.py:add_tensors", "arguments": arguments, "launch": None}
    assert run("records=ptx") == 0
    assert run("records=cute", **values) == 0
    ptx, cute = record_in(tmp_path / "ptx"), record_in(tmp_path / "cute")
    assert cute.check.output_digests == ptx.check.output_digests
    assert (cute.kernel.grid, cute.kernel.block, "nvidia-cutlass-dsl" in cute.kernel.compiler) == (8, 128, True)
    ((name, entry),) = cute.request.brought.items()
    files = {"add": ["add_peers.py", "cute.py"], "add_tensors": ["add_peers.py", "tensors.py"]}
    assert (cute.kernel.name, [one["name"] for one in entry["files"]]) == (f"custom/{name}", files[name])
    assert main(["replay", "cute", "--records", "new"]) == 0


def test_a_function_launched_otherwise_than_was_said_has_failed(run, tmp_path):
    values = {"kernel": "tensors.py:add_tensors", "arguments": TENSOR_ARGUMENTS, "launch": {"grid": 9}}
    assert run(**values) == 1
    record = record_in(tmp_path / "records")
    assert record.status is Status.FAILED
    same_text(record.reason)


def test_a_fill_may_be_a_function_and_a_tolerance_is_recorded_as_a_bound(run, tmp_path):
    buffers = {**BUFFERS, "input": {"dtype": "float32", "shape": [1000], "fill": "add_peers.py:ramp"}}
    assert run(buffers=buffers, reference="add_peers.py:off_by_one", tolerance={"absolute": 1.5}) == 0
    check = record_in(tmp_path / "records").check
    assert (check.method, check.bound, check.wrong) == ("bound", "1.5 + 0 * |expected|", 0)
    assert check.bound_used == pytest.approx(1 / 1.5, rel=1e-5)


@pytest.mark.parametrize("reference", ["off_by_one", "given"])
def test_a_wrong_result_names_rank_element_and_buffer(run, tmp_path, reference):
    """A reference that gives each rank's input is not changed by the run: so all but one rank's sum are wrong."""
    assert run(reference=f"add_peers.py:{reference}") == 1
    record = record_in(tmp_path / "records")
    assert record.status is Status.WRONG
    same_text(record.reason)


@pytest.mark.parametrize(
    ("entry", "shape", "reference", "status"),
    [("waits", 1, None, Status.DEADLOCK), ("beyond", 4, "add_peers.py:seven", Status.WRONG)],
)
def test_a_deadlock_is_one_and_a_write_beyond_a_buffer_is_seen(run, tmp_path, entry, shape, reference, status):
    buffers = {"flag": {"dtype": "int32", "shape": [shape], "fill": "zeros"}}
    values = {"kernel": f"waits.ptx:{entry}", "buffers": buffers, "arguments": [{"address": "flag"}]}
    lines = [] if reference else ["check=false"]
    assert run(*lines, **values, launch={"grid": 1, "block": 1}, reference=reference) == 1
    record = record_in(tmp_path / "records")
    assert record.status is status
    same_text(record.reason)


def test_without_a_check_no_reference_is_needed(run, tmp_path):
    assert run("check=false", reference=None) == 0
    record = record_in(tmp_path / "records")
    assert (record.status, record.reason, record.check) == (Status.PASSED, CHECK_WAS_OFF, None)


def test_a_plan_says_what_would_run(run, tmp_path, capsys):
    assert run("--plan") == 0
    out = capsys.readouterr().out
    assert "4 ranks, 8 blocks x 128 threads, input float32 [1000], output float32 [1000] = 1 case" in out
    assert "of host memory" in out
    assert "of symmetric heap a rank for a custom kernel" in out
    assert not (tmp_path / "records").exists()


def test_a_sweep_goes_over_ranks_and_keys_of_the_section(run, tmp_path, capsys):
    assert run("-m", "world_size=1,2", "custom.launch.grid=8,16") == 0
    assert "4 cases: 4 passed" in capsys.readouterr().out
    assert {record.case.world_size for record in read([tmp_path / "records"])} == {1, 2}


BUFFERS = {"input": {"dtype": "float32", "shape": [1000]}, "output": {"dtype": "float32", "shape": [1000]}}
BAD_ARGUMENTS = [
    [{"tensors": "input"}, {"address": "output"}, "world_size", {"u32": 1000}],
    [{"peers": "inputs"}, {"address": "output"}, "world_size", {"u32": 1}],
    *([{"peers": "input"}, {"address": "output"}, third, {"u32": 1000}] for third in ({"u64": 4}, {"f32": 4})),
    *([{"constexpr": "rank"}], [{"peers": "input"}], ["ranks"], [{"bytes": "0g"}]),
]
BAD_INPUTS = [
    *(7, {"shap": [1]}, {"shape": [1], "dtype": "half"}, {"shape": [1], "fill": "ones"}),
    *({"shape": [shape], "fill": f"add_peers.py:{fill}"} for shape, fill in ((1000, "leaves_rank"), (999, "ramp"))),
]
WRONG = {
    "kernel": [
        *(None, "posix:kill", "none.ptx:add_peers", "add_peers.ptx:add"),
        *(f"add_peers.py:{one}" for one in ("nothing", "LIMIT", "expected")),
        *("limits.ptx:most_threads", "limits.ptx:most_bytes"),
        *(f"{file}.ptx:add_peers" for file in ("no_body", "cut_off", "sm_100a")),
    ],
    "reference": [
        *(None, "operator:add"),
        *(f"add_peers.py:{one}" for one in ("expcted", "raises", "in_torch", "leaves", "asynchronous")),
    ],
    "arguments": BAD_ARGUMENTS,
    "buffers": [None, *({**BUFFERS, "input": one} for one in BAD_INPUTS)],
    "launch": [{"grid": 8, **one} for one in ({}, {"block": 2048}, {"block": 128, "shared_bytes": 232_449})],
    **{"launches": [0, "two", True], "bytes": ["4X"], "tolerance": ["near", {}], "kernal": ["add_peers.ptx:add_peers"]},
}
"""By keys of the section."""
MISUSE = [
    *({key: one} for key, some in WRONG.items() for one in some),
    *({"kernel": "add_struct.ptx:add_struct", "arguments": [{"struct": one}]} for one in BAD_STRUCTS),
    *({"kernel": "cute.py:add", "arguments": [one]} for one in ({"peers": "input"}, {"bytes": "00"})),
    {"kernel": "cute.py:add", "arguments": CUTE_ARGUMENTS, "launch": {"shared_bytes": 232_449}},
    {"kernel": "cute.py:device", "arguments": CUTE_ARGUMENTS},
    {"kernel": "tensors.py:add_tensors", "arguments": [{"tensors": "input"}, {"tensors": "output"}]},
    {"lines": ["fabric.gpu=a100"], "launch": {"grid": 8, "block": 128, "shared_bytes": 166_913}},
]


LINES = [
    *("dtype=float16", "algorithms=[one_shot]", "sizes=[1K]", "op=all_reduce", "fabric.heap_bytes=8K"),
    *("custom.tolerence=1", "custom.buffers.output.symetric=false", "custom.tolerance=0.1"),
]


@pytest.mark.parametrize("given", [*MISUSE, *({**COUNTED, "then": then} for then in BAD_FOLLOWERS), *LINES], ids=str)
def test_misuse_is_one_line(run, said, tmp_path, given):
    changes = {} if isinstance(given, str) else dict(given)
    lines = [given] if isinstance(given, str) else changes.pop("lines", [])
    assert run(*lines, **changes) == 2
    same_text(said(), "(?<=RuntimeError: ).*(?=, add_peers.py)")
    assert not (tmp_path / "records").exists()


def test_keys_of_the_section_that_the_experiment_leaves_out_are_given_like_any_other(run, tmp_path):
    given = ["custom.bytes=12K", "custom.tolerance.absolute=1.5", "custom.buffers.output.symmetric=true"]
    assert run(*given) == 0
    record = record_in(tmp_path / "records")
    section = (record.request.configuration or {})["custom"]
    found = (section["bytes"], section["tolerance"]["absolute"], section["buffers"]["output"]["symmetric"])
    assert found == ("12K", 1.5, True)
    assert set(given) <= set(record.request.overrides)


def test_the_op_needs_its_section(tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    assert main(["op=custom", "fabric=simulator", "track=none"]) == 2
    same_text(said())


def composed_again(records):
    """What the audit's worker finds of the configurations."""
    from symlab.evidence.replay import recomposed

    return recomposed.configurations(recomposed.jobs_of(records), lambda text: None)[1]


@needs("evidence")
@pytest.mark.slow
def test_a_record_is_replayed_and_audited_from_the_files_of_this_machine(run, tmp_path, capsys):
    """It has the folder of --config-dir with its digest, so that its experiment is composed again."""
    from symlab.evidence.audit.worker import Rerun
    from tests.symlab.evidence.audit.complete_set import asked

    assert run() == 0
    assert main(["replay", "records", "--records", "new"]) == 0
    assert "1 BIT-EQUAL" in capsys.readouterr().out
    records = read(["records"])
    said = asked(records, rerun=Rerun(1))
    assert "kernels VERIFIED: sources as today: custom/add_peers" in said
    assert "cases VERIFIED: 1 of 1 cases" in said
    assert "data VERIFIED: 1 of 1 cases recomputed" in said
    assert (len((found := composed_again(records)).agree), found.different, found.unsure) == (1, [], [])
    experiment = tmp_path / "conf" / "exp" / "mine.yaml"
    experiment.write_text(f"{experiment.read_text()}\n# changed\n")
    ((_, why),) = composed_again(records).unsure
    assert "its --config-dir conf is not as it was (recorded sha256:" in why
    (tmp_path / "conf").rename(tmp_path / "away")
    ((_, why),) = composed_again(records).unsure
    assert "its --config-dir conf is not here" in why
    found = sources(records, tmp_path, print)
    assert "there is no file" in found["not_comparable"][0][1]
    assert main(["replay", "records", "--records", "none"]) == 2
    assert "its kernel is not here" in capsys.readouterr().err


def halved(tmp_path):
    """The folder of a command of two cases that was interrupted before the second."""
    (folder,) = (tmp_path / "records").iterdir()
    next(folder.glob("*n2*.json")).unlink()
    document = json.loads((folder / "command.json").read_text())
    (folder / "command.json").write_text(json.dumps({**document, "end": None}))
    (folder / "manifest.sha256").unlink()
    return folder


POISONED = "open('ran', 'w')\n"


def poisoned(record, place):
    """The record with another place that fills its input, and the digest that the job then has here."""
    configuration = json.loads(json.dumps(record.request.configuration))
    configuration["custom"]["buffers"]["input"]["fill"] = place
    try:
        digest = custom_digest(configuration["custom"])
    except ValueError:
        digest = f"sha256:{'0' * 64}"
    brought = {name: {**entry, "digest": digest} for name, entry in (record.request.brought or {}).items()}
    return with_request(record, configuration=configuration, brought=brought)


@needs("evidence")
@pytest.mark.parametrize("place", ["posix:getpid", "json.tool:main", "evil/fill.py:fill", "own/fill.py:fill"])
def test_a_record_chooses_no_code_but_the_users(run, tmp_path, place):
    """The digest is right: it is the record's own claim."""
    from symlab.evidence.replay.rebuild import Wishes, rebuilt

    assert run() == 0
    texts = {"evil": f"{POISONED}def fill(rank, world_size): ...\n", "own": "from os import getpid as fill\n"}
    for folder, text in texts.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fill.py").write_text(text)
    changed = poisoned(record_in(tmp_path / "records"), place)
    code = allowed_code([tmp_path / "evil"])
    with refused(RequestError, r"\S*/json/\S*"):
        rebuilt([changed], Wishes(records="new", code=code))
    assert not list(tmp_path.glob("**/ran"))


@needs("evidence")
@pytest.mark.slow
def test_changed_files_are_not_run(run, tmp_path):
    from symlab.evidence.audit.worker import Rerun
    from tests.symlab.evidence.audit.complete_set import asked

    assert run() == 0
    file = tmp_path / "conf" / "exp" / "add_peers.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{file.read_text()}")
    said = asked(read(["records"]), rerun=Rerun(1))
    assert "changed since: custom/add_peers" in said
    assert re.search("data CAPTURED: .* is not made of the files that ran", said)
    # By another process: this one has read the file.
    done = ran("-m", "runner", "replay", "records", "--records", "new")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is not made of the files that ran" in line
    assert "give --changed-code" in line
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_resumed_command_runs_no_file_that_came_with_its_records(run, said, tmp_path, monkeypatch):
    assert run("-m", "world_size=1,2") == 0
    folder = halved(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said()
    assert main(["resume", str(folder)]) == 2
    assert "name its folder with --code" in said()
    assert main(["resume", str(folder), "--code", str(tmp_path / "conf")]) == 0
    first, second = read([folder])
    assert {first.case.world_size, second.case.world_size} == {1, 2}
    assert first.request.config_dir == second.request.config_dir is not None


def test_a_digest_is_of_roles(tmp_path):
    """The same files with their contents exchanged are another job, also deeper down."""
    texts = {"a/f.py": "import torch\n", "b/f.py": "import math\n"}
    section = {"kernel": "k.ptx:k", "reference": "b/f.py:f", "buffers": {"x": {"fill": "a/f.py:f"}}}

    def digest(name, **changes):
        folder = tmp_path / name
        changed = {f"{key.replace('__', '/')}.py": one for key, one in changes.items()}
        for path, text in {**texts, "k.ptx": "", **changed}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return custom_digest(section, folder)

    first = digest("one")
    assert digest("same") == first
    assert digest("exchanged", a__f=texts["b/f.py"], b__f=texts["a/f.py"]) != first
    imports = "from .p import g\nfrom .q import g as h\n"
    before = digest("deep", a__f=imports, a__p__g="G = 1\n", a__q__g="G = 2\n")
    assert digest("deeper", a__f=imports, a__p__g="G = 2\n", a__q__g="G = 1\n") != before
    assert {"kernel", "reference", "fill of x"} == set(custom_places(section))
    bare = digest("bare", a__f="import helpers\n", a__helpers="G = 1\n")
    assert digest("other", a__f="import helpers\n", a__helpers="G = 2\n") != bare, "beside it, if it is on sys.path"
    assert digest("elsewhere", a__f="import helpers\n", b__helpers="G = 1\n") != bare


@pytest.mark.slow
def test_the_experiments_of_conf_are_short_and_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("own_kernel", "custom_ptx", "custom_cute"):
        assert len((ADD_PEERS.parents[1] / f"{name}.yaml").read_text().splitlines()) < 30
        sizes = ["sizes=[1K]"] if name == "own_kernel" else []
        assert main([f"+exp={name}", "fabric=simulator", "track=none", *sizes]) == 0
    records = read(["records"])
    assert {record.case.name: {one["place"] for one in record.request.brought.values()} for record in records} == {
        **{f"all_gather/{name}": {"conf/exp/own/ring.py:SPEC"} for name in ("pull", "push", "ring")},
        "custom/add_peers": {"conf/exp/own/add_peers.ptx:add_peers"},
        "custom/add_tensors": {"conf/exp/own/add_tensors.py:add_tensors"},
    }
    assert {str(record.status) for record in records} == {"PASSED"}
    digests = {record.check.output_digests for record in records if record.case.op == "custom" and record.check}
    assert len(digests) == 1, "PTX and CuTe DSL give the same bits"
