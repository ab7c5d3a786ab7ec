"""Plain data: everything that orders and answers hold comes back as it was, and nothing that is read runs."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
import torch

from runner.world.plain import NotPlain, Vocabulary
from tests.golden import refused
from tests.memory.test_sealed_store import Bomb


class Colour(StrEnum):
    red = "red"


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float = 0.0
    colour: Colour = Colour.red

    def __post_init__(self):
        if self.x == 13:
            raise ValueError("no 13")


class Thing:
    """Neither a dataclass nor an enum."""


def double(fabric, argument):
    return 2 * argument


WORDS = Vocabulary(frozenset({__name__}), frozenset({f"{__name__}:double"}))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(1 << 80),
        1.5,
        5e-324,
        math.inf,
        -math.inf,
        "zwölf \ud800\n",
        b"\x00\xff",
        [1, [2.5, None]],
        (1, (2,), []),
        {"a": 1, 2: (3,), None: {"dict": 1}},
        {"tuple": [1]},
        Colour.red,
        Point(1.0, math.inf),
        (Point(2.0), {"p": Point(3.0)}),
    ],
    ids=repr,
)
def test_values_come_back_with_their_types(value):
    text = WORDS.written(value)
    found = WORDS.read(text)
    assert found == value
    assert repr(found) == repr(value), "a tuple is no list, an enum no text"
    assert WORDS.read(text.encode()) == value


def test_a_number_that_is_none_and_a_negative_zero():
    assert math.isnan(WORDS.read(WORDS.written(math.nan)))
    assert math.copysign(1, WORDS.read(WORDS.written(-0.0))) == -1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.int32, torch.uint64])
def test_tensors_come_back_to_the_bit(dtype):
    content = torch.arange(48, dtype=torch.uint8).repeat(dtype.itemsize)
    tensor = content.view(dtype).reshape(4, 12)
    found = WORDS.read(WORDS.written(tensor))
    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))
    empty = WORDS.read(WORDS.written(torch.empty(0, 3, dtype=dtype)))
    assert (empty.dtype, empty.shape) == (dtype, (0, 3))
    assert WORDS.read(WORDS.written(torch.tensor(7).to(torch.int64))).shape == ()


@pytest.mark.parametrize(
    "value",
    [Thing(), Path("/"), {1, 2}, double, Vocabulary, Vocabulary(frozenset(), frozenset()), [object()], 1j],
    ids=["object", "path", "set", "function", "class", "vocabulary", "list", "complex"],
)
def test_what_is_no_plain_data_is_not_sent(value):
    with pytest.raises(NotPlain, match="can't be sent"):
        WORDS.written(value)


def test_what_is_nested_too_deeply_is_not_sent():
    value = []
    for _ in range(100_000):
        value = [value]
    with refused(NotPlain):
        WORDS.written(value)


def named(kind, *content):
    return json.dumps({kind: list(content)})


HOSTILE = {
    "no JSON": "\x80\x04\x95",
    "cut": '{"tuple": [1',
    "deep": "[" * 100_000,
    "digits": "7" * 5000,
    "no one key": '{"tuple": [], "bytes": ""}',
    "no key": "{}",
    "unknown key": '{"pickle": ""}',
    "builtin": named("dataclass", "builtins:eval", {"source": "1"}),
    "module": named("dataclass", "os:system", {"command": "true"}),
    "listed module, no dataclass": named("dataclass", f"{__name__}:Thing", {}),
    "imported into a listed module": named("dataclass", f"{__name__}:Vocabulary", {"modules": [], "programs": []}),
    "function of a listed module": named("dataclass", f"{__name__}:double", {"fabric": 1, "argument": 1}),
    "attribute of an attribute": named("dataclass", f"{__name__}:Point.__init__", {}),
    "no field": named("dataclass", f"{__name__}:Point", {"x": 1.0, "z": 1}),
    "its own rule": named("dataclass", f"{__name__}:Point", {"x": 13}),
    "no member": named("enum", f"{__name__}:Colour", "blue"),
    "dataclass as enum": named("enum", f"{__name__}:Point", 1.0),
    "enum as dataclass": named("dataclass", f"{__name__}:Colour", {"value": "red"}),
    "no float": '{"float": "1e400"}',
    "no base64": '{"bytes": "*"}',
    "no pairs": '{"dict": [[1]]}',
    "unhashable": '{"dict": [[[1], 2]]}',
    "no dtype": named("tensor", "load", [1], ""),
    "short tensor": named("tensor", "int32", [1 << 40], "AAAA"),
    "negative tensor": named("tensor", "int32", [-1], ""),
    "huge empty tensor": named("tensor", "int32", [0, 1 << 62, 1 << 62], ""),
    "many dimensions": named("tensor", "int32", [1] * 1000, "AAAAAA=="),
    "reference": named("reference", "kernel", "x"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_plain_data_is_not_read(kind):
    with pytest.raises(NotPlain) as caught:
        WORDS.read(HOSTILE[kind])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_pickle_is_not_read(tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "bang"))
    for text in (bomb, json.dumps({"bytes": ""}).encode() + bomb, json.dumps({"pickle": bomb.hex()})):
        with pytest.raises(NotPlain):
            WORDS.read(text)
    assert WORDS.read(WORDS.written(bomb)) == bomb, "bytes stay bytes"
    assert list(tmp_path.iterdir()) == []


def test_programs_go_by_names_that_are_listed():
    assert WORDS.program_name(double) == f"{__name__}:double"
    assert WORDS.program(f"{__name__}:double") is double
    with refused(NotPlain):
        WORDS.program_name(named)
    for name in ("os:system", f"{__name__}:named", f"{__name__}:double ", ["x"], None):
        with refused(NotPlain):
            WORDS.program(name)


def test_references_are_looked_up_and_completed_here():
    words = Vocabulary(
        frozenset({__name__}),
        frozenset(),
        lambda value: ("thing", "T") if isinstance(value, Thing) else None,
        lambda kind, name: {"T": 5.0}[name],
        lambda kind, given: {**given, "y": given["x"] + 1},
    )
    text = words.written([Thing(), Point(1.0)])
    assert json.loads(text)[0] == {"reference": ["thing", "T"]}
    assert words.read(text) == [5.0, Point(1.0, 2.0)]
    with pytest.raises(NotPlain, match="'U'"):
        words.read(named("reference", "thing", "U"))
