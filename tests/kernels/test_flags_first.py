"""all_reduce/ll with its flags stored before their words, made from its PTX: some seed must find it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from kernels_launching import Launches

from kernels.catalogue import find
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable

Compiled = Callable[[KernelSpec, Case, str], Executable]
FitCase = Callable[..., Case]
STORE = re.compile(r"st\.relaxed\.sys\.global\.v2\.b64 \[(%rd\d+)(\+\d+)?\], \{(%rd\d+), (%rd\d+)\};")
SEEDS = range(12)


def flags_first(ptx: str) -> str:
    """The kernel's PTX with each slot stored as two halves, the flag before the word."""

    def halves(found: re.Match[str]) -> str:
        base, offset = found.group(1), int(found.group(2) or 0)
        text = "".join(f"mov.b64 {{%word{number}, %flag{number}}}, {found.group(3 + number)}; " for number in range(2))
        for part, shift in (("flag", 4), ("word", 0)):
            for number in range(2):
                place = offset + 8 * number + shift
                text += f"st.relaxed.sys.global.b32 [{base}+{place}], %{part}{number}; "
        return text

    made, count = STORE.subn(halves, ptx)
    assert count > 3
    return re.sub(r"(\.reg \.pred)", r".reg .b32 %word<2>, %flag<2>; \1", made, count=1)


def seen(compiled: Compiled, fit_case: FitCase, schedule: str, granularity: str | None = None) -> list[int]:
    """The seeds by which the broken kernel gives anything but right results."""
    spec = find("all_reduce/ll")
    case = fit_case(spec)
    whole = compiled(spec, case, "sm_90a")
    broken = replace(whole, ptx=flags_first(whole.ptx), digest=f"{whole.digest}-flags-first")
    found = []
    for seed in SEEDS:
        work = Launches(spec, case, broken, count=2)
        work.run(schedule=schedule, seed=seed, granularity=granularity)
        found += [seed] if work.seen() != "right" else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["random", "adversarial"])
def test_flags_before_their_words_are_found(fit_case: FitCase, compiled: Compiled, schedule: str) -> None:
    broken = seen(compiled, fit_case, schedule=schedule)
    assert len(broken) >= 2, broken  # 3 by random and 8 by adversarial on 2026-11-22


@pytest.mark.slow
def test_whole_blocks_do_not_show_them(fit_case: FitCase, compiled: Compiled) -> None:
    assert seen(compiled, fit_case, schedule="random", granularity="block") == []
