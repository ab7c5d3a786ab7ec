"""What honest commands leave has no finding: real commands of many kinds, run here and audited."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from cases.record.record import Record
from reports.audit.bindings import contradictions
from reports.audit.material import Material
from reports.record.bundle import read
from runner.__main__ import main

PUSH = "op=send_recv algorithms=[push]"
ONE_SHOT = "algorithms=[one_shot] sizes=[64]"

FEW = (
    f"{PUSH} sizes=[64,128] check=false",
    f"{PUSH} sizes=256",
    f"{PUSH} 'sizes={{list: [64]}}' check=true seed=7 launches=3",
    f"-m {PUSH} 'sizes=[64],[128]' world_size=2,3",
    f"-m {PUSH} sizes=64 'seed=range(1,3)'",
    f"{PUSH} sizes=64 stress=no_host_barrier stress_seeds=1",
    f"{ONE_SHOT} stress=alternating_sizes+late_rank stress_seeds=2 fabric.seed=4",
    f"{PUSH} sizes=64 hydra.mode=MULTIRUN 'world_size=choice(2)'",
    f"{ONE_SHOT} stress=dead_rank",
    f"{ONE_SHOT} placement=both dtype=bfloat16/native",
    f"{ONE_SHOT} 'fabric={{memory: weak}}' fabric.schedule=adversarial",
)
"""In `make test`: the forms of which an audit once said that they contradict themselves, and their like."""


def ran(line: str, folder: Path) -> list[Record]:
    """The records of a command, which ran in the simulator."""
    words = ["-q", "fabric=simulator", "track=none", *shlex.split(line), f"records={folder}"]
    assert main(words) == 0
    return read([folder])


def said(records: Iterable[Record], folder: Path) -> list[str]:
    """What the set says against itself."""
    return [one.sentence for one in contradictions(Material(tuple(records), (folder,)))]


@pytest.mark.parametrize("line", FEW)
def test_an_honest_command_does_not_contradict_itself(line: str, tmp_path: Path) -> None:
    assert said(ran(line, tmp_path), tmp_path) == []


def test_a_stress_is_held_to_what_it_does(tmp_path: Path) -> None:
    """It runs in random order where fair was asked for, and its check is of one launch: nothing else is accepted."""
    (record,) = ran(f"{PUSH} sizes=64 stress=no_host_barrier stress_seeds=1", tmp_path)
    assert record.fabric is not None
    assert record.check is not None
    settings = {**record.fabric.settings, "schedule": "fair"}
    counters = {**record.counters, "of": {**record.counters["of"], "checked": 1}}
    given, made = record.check.input_digests, record.check.output_digests
    assert given is not None
    assert made is not None
    two = dataclasses.replace(
        record.check,
        launches=2,
        elements=2 * record.check.elements,
        input_digests=given,
        output_digests=tuple(one * 2 for one in made),
    )
    for changed, says in (
        ({"fabric": dataclasses.replace(record.fabric, settings=settings)}, "fabric.schedule was asked to be random"),
        ({"check": two}, "a case under stress has 1"),
        ({"counters": counters}, "counters say 1 launches were checked, 2 are right"),
    ):
        (found,) = said([dataclasses.replace(record, **changed)], tmp_path)
        assert says in found


def test_commands_that_start_in_one_second_are_in_any_order(tmp_path: Path) -> None:
    """Names have seconds, and of two commands that start together the one with more to compile begins later."""
    (record,) = ran(f"{PUSH} sizes=64", tmp_path)
    pair = [
        dataclasses.replace(
            record,
            started=f"2026-01-01T00:00:{second:02d}.000Z",
            ended=f"2026-01-01T00:00:{second:02d}.500Z",
            duration_s=0.5,
            request=dataclasses.replace(record.request, command=f"20260101T0000{stamp}Z-{name}"),
        )
        for name, stamp, second in (("a", "00", 40), ("b", "00", 2), ("c", "01", 3))
    ]
    assert [text for text in said(pair, tmp_path / "none") if "time" in text] == []
