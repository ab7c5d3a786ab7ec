"""Records: what they refuse to say, and that their JSON is standard and gives them back."""

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

from cases.case import Case
from cases.record.record import (
    CHECK_WAS_OFF,
    SCHEMA_VERSION,
    Check,
    FabricInfo,
    KernelInfo,
    Mismatch,
    Record,
    Status,
    from_json,
    load,
)
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.timing import LinkLimit
from cases.refusal import Refusal
from tests.golden import refused
from tests.reports import synthetic
from tests.reports.raced import finding

EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
"""Records as the schemas that are read wrote them, never to be written again."""

CASE = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 1024, 4, "out_of_place", "normal", seed=0)
ID = "all_reduce-one_shot-bfloat16-float32-sum-n4-1024B-out_of_place-normal-s0"
MISMATCH = Mismatch(2, 1, 7, 1.5, math.nan, "0x3fc0", "0x7fff")
CHECK = Check("bitwise_fold", 4096, 0, 0.0, 1, 0.25, ranks_equal=True, launches=2, launches_equal=True)
DIGESTED = dataclasses.replace(
    CHECK, input_digests=tuple(digit * 64 for digit in "0123"), output_digests=(("e" * 64,) * 2,) * 3 + ((),)
)
WRONG_CHECK = dataclasses.replace(CHECK, wrong=3, first_mismatch=MISMATCH, max_absolute_error=math.nan)
SIMULATOR = FabricInfo("simulator", "sm_90a", 4, 1 << 28, True, "", True, settings={"multimem": "exact", "seed": 0})
GPUS = dataclasses.replace(SIMULATOR, name="nvshmem", simulated=False, multicast=False, multicast_reason="no NVSwitch")
KERNEL = KernelInfo(
    "all_reduce/one_shot", "kernel_0", "sm_90a", "sha256:aa", "", "sha256:bb", "4.8.1", 8, 256, ("x", "y")
)
TIMING = dataclasses.replace(
    synthetic.record().timing,
    **{"bus_factor": 1.5, "samples_us": ((1.0, 2.5), (1.25, 3.0), (1.0, 2.75), (1.5, 2.0))},
    **{"checked_before": 4096, "checked_after": 4096, "interleaved_with": ("nccl", "torch/two_shot")},
    **{"limit": LinkLimit(380.5, 369.25, 1 << 28), "l2_bytes": 50 << 20},
    devices=({"before": {"sm_clock_mhz": 1980}, "after": {"throttle": []}},) * 4,
)


REFUSED = {"status": Status.REFUSED, "check": None, "reason": "no multicast"}
REFUSAL = Refusal("multicast", "no multicast", "take one_shot")


def record(**changes):
    when = {"started": "2026-11-20T12:00:00.000+00:00", "ended": "2026-11-20T12:00:01.500Z", "duration_s": 1.5}
    ran = {"status": Status.PASSED, "fabric": SIMULATOR, "kernel": KERNEL, "check": CHECK}
    ran |= {"counters": {"instructions": 12, "bytes": {"peer_read": 3}}}
    asked = {"environment": RecordedEnvironment(git={"dirty": None}), "request": RecordedRequest(overrides=("+exp=x",))}
    fields = {"id": ID, "case": CASE, **when, **ran, **asked}
    return Record(**(fields | changes))


@pytest.mark.parametrize(
    "made",
    [
        record(),
        record(status=Status.WRONG, check=WRONG_CHECK, reason="3 wrong"),
        record(status=Status.REFUSED, check=None, kernel=None, fabric=None, counters={}, reason="no multicast"),
        record(**REFUSED, refusal=REFUSAL),
        record(fabric=GPUS, timing=TIMING),
        record(fabric=GPUS, timing=dataclasses.replace(TIMING, limit=None, devices=(), interleaved_with=())),
        record(fabric=GPUS, kernel=None, library="NCCL 2.28.9", timing=TIMING),
        record(check=None, reason=CHECK_WAS_OFF),
        record(check=DIGESTED),
    ],
)
def test_round_trip(made, tmp_path):
    text = made.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    again = load(path)
    # NaN is unlike itself, so the texts are compared, and the objects where no NaN is in the way
    assert again.to_json() == text
    if made.check is not WRONG_CHECK:
        assert again == made
    assert json.loads(text)["schema"] == SCHEMA_VERSION == 8


def test_floats_survive():
    for value in (math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1):
        check = dataclasses.replace(WRONG_CHECK, first_mismatch=dataclasses.replace(MISMATCH, expected=value))
        again = from_json(record(status=Status.WRONG, check=check).to_json())
        assert again.check.first_mismatch.expected.hex() == value.hex()


TIMED_ON_GPUS = {"timing": TIMING, "fabric": GPUS}
BROKEN = [
    {"timing": TIMING},
    {"timing": TIMING, "fabric": dataclasses.replace(GPUS, settings={"share_gpus": True})},
    {**TIMED_ON_GPUS, "status": Status.WRONG, "check": WRONG_CHECK},
    {**TIMED_ON_GPUS, "check": None, "reason": CHECK_WAS_OFF},
    {**TIMED_ON_GPUS, "timing": dataclasses.replace(TIMING, samples_us=((1.0,),), devices=())},
    *({"status": one, "check": None} for one in (Status.REFUSED, Status.DEADLOCK, Status.TIMEOUT)),
    {"status": Status.FAILED, "check": None, "reason": " "},
    {"status": Status.TIMEOUT, "reason": "slow"},
    {"status": Status.WRONG},
    {"status": Status.WRONG, "check": None, "reason": "bad"},
    {"check": WRONG_CHECK},
    {"check": None},
    {"check": None, "reason": "trust me"},
    {"status": "PASSED", "check": None, "reason": "why"},
    *({"check": dataclasses.replace(CHECK, **{one: False})} for one in ("ranks_equal", "launches_equal")),
    {"check": dataclasses.replace(CHECK, guard_faults=("output: 3 bytes before it",))},
    {"check": dataclasses.replace(DIGESTED, input_digests=("0" * 64,) * 3, output_digests=(("e" * 64,) * 2,) * 3)},
    {"fabric": None},
    {"fabric": dataclasses.replace(SIMULATOR, world_size=8)},
    {"library": "NCCL 2.28.9"},
    {"kernel": dataclasses.replace(KERNEL, name="all_reduce/two_shot")},
    {"kernel": dataclasses.replace(KERNEL, arch="sm_100a")},
    *({"id": one} for one in ("all_reduce-two_shot", "all_reduce-one_shot-bfloat16", "")),
    {"case": dataclasses.replace(CASE, dtype="half")},
    {"refusal": REFUSAL},
    {"counters": {"rate": math.inf}},
    {"started": "2026-11-20T12:00:00"},
    {"ended": "2026-11-20T12:00:00+02:00"},
    {"ended": "yesterday"},
    *({"duration_s": one} for one in (math.nan, -1.0)),
    *({"schema": one} for one in (1, 6, 9)),
]


@pytest.mark.parametrize("changes", BROKEN)
def test_broken_rules(changes):
    with refused():
        record(**changes)


def test_equality_that_is_not_promised_is_no_fault():
    loose = dataclasses.replace(CHECK, ranks_equal=False, ranks_equal_promised=False)
    loose = dataclasses.replace(loose, launches_equal=False, launches_equal_promised=False)
    assert loose.faults == ()
    assert record(check=loose).verified
    assert not record(check=None, reason=CHECK_WAS_OFF).verified
    assert [dataclasses.replace(CHECK, method=one).faults for one in ("bytes", "bitwise", "bitwise_fold")] == [()] * 3


BOUND = {"method": "bound", "bound": "x", "bound_value": 1.0}
BROKEN_CHECKS = [
    *((CHECK, one) for one in ({"method": "allclose"}, {"wrong": 1}, {"first_mismatch": MISMATCH}, {"launches": 0})),
    *((CHECK, one) for one in ({"method": "bound"}, {"bound": "x", "bound_value": 1.0})),
    *((CHECK, {**BOUND, "bound_used": one}) for one in (1.5, math.nan)),
    *((DIGESTED, {"output_digests": one}) for one in (None, (("E" * 64,) * 2,) * 4, (("e" * 64,),) * 4)),
    (DIGESTED, {"output_digests": (("e" * 64, "f" * 64),) * 4}),
    *((DIGESTED, {"input_digests": one}) for one in (None, ("0" * 63,) * 4, ("0" * 64,) * 3)),
    (DIGESTED, {"launches_equal": False, "launches_equal_promised": False}),
]


@pytest.mark.parametrize(("check", "changes"), BROKEN_CHECKS)
def test_broken_checks(check, changes):
    with refused():
        dataclasses.replace(check, **changes)


def test_an_empty_message_has_a_check_of_no_elements():
    none = dataclasses.replace(CHECK, elements=0, max_ulp_error=0, rms_ulp_error=0.0)
    empty = record(check=none, case=dataclasses.replace(CASE, size_bytes=0), id=ID.replace("1024B", "0B"))
    with refused():
        record(check=none)
    assert from_json(empty.to_json()) == empty
    assert empty.verified


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


HUGE = 10**400
STRANGE = {
    **{"surprise": [1], "status": ["GREAT"], "schema": [True, 6], "id": ["a\nb\x1b[2J"], "reason": ["half: \ud83d"]},
    "duration_s": ["1.5", HUGE, nested(900)],
    "check": [{"method": 3}, {"max_ulp_error": 1 << 64}, {"max_absolute_error": HUGE}],
    "kernel": [[], nested(900)],
    "counters": [{"of": nested(900)}],
    "case": [
        *({"size_bytes": one} for one in ("abc", -4, HUGE)),
        *({"world_size": one} for one in (True, 0)),
        *({"dtype": one} for one in (None, nested(900))),
        [],
    ],
    "request": [
        *({"job": "x"}, {"jobs": 1.5}, {"configuration": 5}, {"configuration": {"a": [HUGE]}}),
        *({"overrides": one} for one in ("a=b", ["a=b", 1])),
    ],
    "environment": [
        *({"weather": "fair"}, {"weather": nested(900)}, {"git": "abc"}, {"gpus": [1]}, {"host": {"\udcff": 1}}),
        *({"capture_s": one} for one in ("1", HUGE)),
    ],
}
"""By parts of the document."""


def test_a_part_that_lacks_a_field():
    document = json.loads(record().to_json())
    for lacking in ({"case": {"op": "all_reduce"}}, {"check": {"method": "bitwise"}}):
        with refused():
            from_json(json.dumps(document | lacking), "x")


@pytest.mark.parametrize(
    "changes", [*({part: one} for part, some in STRANGE.items() for one in some), {"schema": 9, "surprise": 1}]
)
def test_strange_and_absurd_documents_are_named_in_one_line(changes):
    document = json.loads(record().to_json())
    for part, values in changes.items():
        document[part] = document[part] | values if isinstance(values, dict) else values
    with refused() as caught:
        from_json(json.dumps(document), "x.json")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"status":', '"status": "WRONG", "status":'),
        ('"root":', '"root": 1, "root":'),
        *(('"duration_s": 0.25', f'"duration_s": {one}') for one in ("1e999", "NaN", "1" * 5000, "[" * 100_000)),
    ],
    ids=["status twice", "root twice", "infinite", "NaN", "digits", "deep"],
)
def test_absurd_texts_are_named_in_one_line(old, new):
    text = dataclasses.replace(record(), duration_s=0.25).to_json()
    assert text.count(old) == 1
    with refused():
        from_json(text.replace(old, new), "x.json")


def test_the_largest_values_that_are_taken_come_back():
    document = json.loads(record().to_json())
    document["counters"] = {"most": (1 << 64) - 1, "least": -(1 << 63), "deep": nested(98), "text": "\U0001f600"}
    again = from_json(json.dumps(document))
    assert again.counters == document["counters"]
    assert from_json(again.to_json()) == again


@pytest.mark.parametrize("seed", range(4))
def test_of_mutated_records_nothing_but_a_value_error_comes(seed):
    """Each mutation is refused in one line, or read and written again as the same record."""
    rng = random.Random(seed)
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.json"))]
    taken = 0
    for _ in range(500):
        text = json.dumps(_mutated(json.loads(rng.choice(texts)), rng))
        read, message = _read(text)
        assert read is not None or (message.startswith("x.json: ") and "\n" not in message)
        if read is not None:
            taken += 1
            assert from_json(read.to_json()).to_json() == read.to_json()
    assert taken > 20


def _read(text):
    """The record in a text, or the message that refuses it."""
    try:
        return from_json(text, "x.json"), ""
    except ValueError as error:
        return None, "" if isinstance(error, UnicodeError) else str(error)


NUMBERS = (-1, 1 << 63, 1 << 64, 10**400, 1e308, math.inf, math.nan)
TEXTS = ("", "NaN", "x\ny", "\ud800", "\x00", "0001-01-01T00:00:00+00:00")
ABSURD = (None, True, *NUMBERS, *TEXTS, [], {}, [[1]], {"": {}}, *map(nested, (99, 101, 400)))


def _mutated(document, rng):
    """The document with one value, however deep, replaced, removed, or moved one deeper."""
    holder, key = document, rng.choice(list(document))
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.7:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    kind = rng.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        holder[key] = [holder[key]]
    else:
        holder[key] = rng.choice(ABSURD)
    return document


def test_not_records():
    for text in ("", "{", "[]", "3", "[" * 100_000, '{"schema": NaN}', '{"schema": "1"}'):
        with refused():
            from_json(text, "here")


REQUEST = RecordedRequest(
    command="20261122T120000Z-all_reduce-00000000",
    overrides=("+exp=x",),
    kernel={"choices": {"threads": 512}},
    resumed=1,
)
SIMULATED = {
    "check": DIGESTED,
    "kernel": dataclasses.replace(KERNEL, code_digest="sha256:cc"),
    "findings": (finding("advisory", assumption="vector_16"),),
    "request": REQUEST,
}

TIMED = {"fabric": GPUS, "check": DIGESTED, "counters": {}, "timing": TIMING, "request": REQUEST}


NCCL = "NCCL 2.28.9"


def of_nccl(made):
    case = dataclasses.replace(made.case, algorithm="nccl", accumulator="library")
    return dataclasses.replace(made, case=case, id=case.id)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("schema2.json", record(schema=2, fabric=GPUS, timing=TIMING)),
        ("schema2_library.json", of_nccl(record(schema=2, fabric=GPUS, timing=TIMING, kernel=None, library=NCCL))),
        ("schema8_simulated.json", record(**SIMULATED)),
        ("schema8.json", record(**TIMED)),
    ],
)
def test_what_was_read_is_written_as_it_was(name, expected):
    path = EXAMPLES / name
    assert load(path) == expected
    assert load(path).to_json() == path.read_text(encoding="utf-8")


def test_the_prediction_that_records_once_had_is_left_out():
    document = json.loads((EXAMPLES / "schema8.json").read_text(encoding="utf-8"))
    told = {**document, "prediction": {"time": None, "reason": "a library's"}}
    assert from_json(json.dumps(told)) == record(**TIMED)


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.json"):
        load(tmp_path / "gone.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"binary\.json"):
        load(tmp_path / "binary.json")


def test_parts_are_copied():
    counters = {"bytes": {"peer_read": 3}}
    made = record(counters=counters)
    counters["bytes"]["peer_read"] = 4
    assert made.counters == {"bytes": {"peer_read": 3}}


@pytest.mark.parametrize("place", ["environment.git", "request.configuration", "counters"])
def test_a_number_beyond_all_bounds_is_refused_when_it_is_read(place):
    document = json.loads(record().to_json())
    part, _, key = place.partition(".")
    (document[part].setdefault(key, {}) if key else document[part])["nested"] = [0.5, "LARGE"]
    text = json.dumps(document).replace('"LARGE"', "1e999")
    with refused():
        from_json(text)
    again = json.loads(from_json(text.replace("1e999", "1e99")).to_json())
    assert again == json.loads(text.replace("1e999", "1e99"))
