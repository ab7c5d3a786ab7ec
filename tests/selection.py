"""The full layer in parts: what runs now, by what changed since it passed, within a time; and what is left.

`python -m tests.selection` runs every row that has not passed as the code is now, and fails while rows are left; it may
be cut at any time. With `--minutes M` it chooses what fits: first rows whose own files, kernel or room changed, then
rows of which anything else that they depend on did, then a part that rotates with the commit.

A row is a file of tests; of a file whose cases name kernels, one kernel's cases; of a function with very many cases, an
eighth of them. tests/full_layer.json has, for each row that passed, three digests: of the tests (and the kernel's
code), of what they import themselves and of their room, and of all else that they depend on.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from tests.depends import ALWAYS, ROOT, Depends
from tests.layers import LEAST_S, Durations, function_of

PLACE = ROOT / "tests" / "full_layer.json"
GATHERED = ROOT / ".pytest_cache" / "d" / "full_layer.json"
CODES = ROOT / "kernels" / "matrix" / "codes.json"
PROVEN = ROOT / "kernels" / "proven" / "simulator.json"

UNMEASURED_S = 1.4
"""What a slow test takes on average: 68 core minutes for 3,025 of them."""

MANY_CASES = 24
PARTS = 8
CHANGED_SHARE = 0.75
"""Of the time, for what changed; the rest rotates."""

SELECTED = "slow and not gpu"
PROGRAMS = {"codes": ("make", "codes")}
CODES_S = 300.0
MATRIX_S = 600.0


class Why(IntEnum):
    """Why a row is to run, the most relevant first."""

    TESTS = 0
    NEAR = 1
    NEW = 2
    FAR = 3
    ROTATES = 4


WORDS = {
    Why.TESTS: "its tests, or its kernel's code, changed",
    Why.NEAR: "what it imports itself, or its room, changed",
    Why.NEW: "never passed",
    Why.FAR: "something else that it depends on changed",
    Why.ROTATES: "rotates with the commit",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the full layer. tests: node ids, none for a program. digests: see above. kernel: "" for none."""

    name: str
    tests: tuple[str, ...]
    digests: tuple[str, ...]
    cost_s: float
    kernel: str = ""

    @property
    def file(self):
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows that run, each with its reason, and those that are left."""

    chosen: tuple[tuple[Row, Why], ...]
    left: tuple[tuple[Row, Why], ...]


def kernel_of(test, kernels):
    """The first kernel that a test's case names, such as all_reduce/one_shot; "" if it names none."""
    known = set(kernels)
    case = test.partition("[")[2]
    return next((one for one in re.findall(r"[a-z_]+/[a-z0-9_]+", case) if one in known), "")


def rows_of(tests, depends, codes, seconds, durations):
    """The rows of collected tests. codes: digest of each kernel's code; seconds: by row, as last measured."""
    tests = list(tests)
    numbers = Counter(map(function_of, tests))
    parts = defaultdict(list)
    kernel = {}
    for test in tests:
        name = test.partition("::")[0]
        if found := kernel_of(test, codes):
            name = f"{name} {found}"
            kernel[name] = found
        elif numbers[function_of(test)] >= MANY_CASES:
            name += f" {zlib.crc32(test.encode()) % PARTS + 1}/{PARTS}"
        parts[name].append(test)
    digests = Digests(depends, codes)
    made = []
    for name, members in sorted(parts.items()):
        guess = sum(max(durations.of(one, UNMEASURED_S), LEAST_S) for one in members)
        of_kernel = kernel.get(name, "")
        found_digests = digests.of(name.partition(" ")[0], of_kernel)
        made.append(Row(name, tuple(members), found_digests, seconds.get(name, guess), of_kernel))
    return made


class Digests:
    """The three digests of files' rows."""

    def __init__(self, depends, codes):
        self.depends = depends
        self.codes = codes
        self._of_file = {}

    def of(self, file, kernel):
        """Of a kernel's row, the kernel's code stands for all of kernels/."""
        if file not in self._of_file:
            self._of_file[file] = self._files(file)
        own, near, far = self._of_file[file]
        if kernel:
            near, far = ({one for one in found if not one.startswith("kernels/")} for found in (near, far))
        code = self.codes.get(kernel, "")
        return (
            self.depends.digest(own, code, self.depends.texts_of(file)),
            self.depends.digest(near),
            self.depends.digest(far),
        )

    def _files(self, file):
        found = self.depends.of_test(file) | set(ALWAYS)
        folder = file.rpartition("/")[0] + "/"
        own = {one for one in found if one == file or (one.startswith(folder) and "/test_" not in one)}
        own -= set(ALWAYS)
        imported = {other for one in own if one.endswith(".py") for other in self.depends.direct(one)} | {
            one for one in found if one.startswith("tests/") and one not in ALWAYS
        }
        room = folder.removeprefix("tests/")
        near = {one for one in found if one in imported or (room and one.rpartition("/")[0] + "/" == room)} - own
        return own, near, found - own - near


def why(row, passed):
    """Why a row is to run, by the digests with which it passed; None if it passed as it is."""
    if passed is None:
        return Why.NEW
    reasons = (Why.TESTS, Why.NEAR, Why.FAR)
    return next((one for one, now, then in zip(reasons, row.digests, passed, strict=True) if now != then), None)


def rotating(names, commit):
    """Names in an order that the commit decides."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).hexdigest())


def choose(rows, passed, commit, minutes, cores):
    """The rows that the time has room for, by known seconds: what changed, the most relevant first, up to
    CHANGED_SHARE; then what rotates. A file runs in one process, so that none takes longer than the time.

    What changed and found no room is left.
    """
    order = {name: at for at, name in enumerate(rotating((row.name for row in rows), commit))}
    reasons = {row.name: why(row, passed.get(row.name)) for row in rows}
    chosen = {}
    total_s, by_file = 0.0, Counter[str]()

    def take(row, reason, limit_s):
        nonlocal total_s
        fits = total_s + row.cost_s <= limit_s and by_file[row.file] + row.cost_s <= minutes * 60
        if fits and row.name not in chosen:
            chosen[row.name] = (row, reason)
            total_s += row.cost_s
            by_file[row.file] += row.cost_s

    found = [(reason, order[row.name], row) for row in rows if (reason := reasons[row.name]) is not None]
    changed = sorted(found, key=lambda one: one[:2])
    for reason, _, row in changed:
        take(row, reason, CHANGED_SHARE * minutes * 60 * cores)
    for row in sorted(rows, key=lambda one: order[one.name]):
        take(row, Why.ROTATES, minutes * 60 * cores)
    left = [(row, reason) for reason, _, row in changed if row.name not in chosen]
    return Choice(tuple(chosen.values()), tuple(left))


def everything(rows, passed):
    """All rows that have not passed as they are."""
    found = [(row, reason) for row in rows if (reason := why(row, passed.get(row.name))) is not None]
    return Choice(tuple(sorted(found, key=lambda one: one[1])), ())


def said(choice):
    """Lines: what runs and why, then what is left, by file."""
    lines = []
    for heading, rows in (("run", choice.chosen), ("are left (make test-all runs them)", choice.left)):
        seconds = sum(row.cost_s for row, _ in rows)
        tests = sum(len(row.tests) for row, _ in rows)
        lines.append(
            f"Of the full layer {len(rows)} rows {heading}: {tests} tests, about {seconds / 60:.0f} core minutes"
        )
        for reason in Why:
            files = Counter(row.file for row, one in rows if one is reason)
            if files:
                named = ", ".join(
                    f"{file} ({number})" if number > 1 else file for file, number in sorted(files.items())
                )
                lines.append(f"  {WORDS[reason]}: {named}")
    return lines


# The program


def collected():
    """Node ids of all tests of the full layer, as pytest collects them. SystemExit if it can't."""
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", SELECTED]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr[-4000:])
    return [one for one in done.stdout.splitlines() if one.startswith("tests/") and "::" in one]


def programs(depends, codes, seconds):
    """Rows that are no tests: whether kernels compile to codes.json, and the matrix of each kernel that the simulator's
    proof does not have as it is."""
    sources = {one for one in depends.files if one.startswith("kernels/") and one.endswith((".py", "codes.json"))}
    whole = depends.digest(sources | {"constraints.txt"})
    made = [Row("codes", (), (whole, "", ""), seconds.get("codes", CODES_S))]
    proven = json.loads(PROVEN.read_text(encoding="utf-8"))["specs"] if PROVEN.exists() else {}
    for name, code in codes.items():
        if proven.get(name, {}).get("code") != code:
            row = f"matrix {name}"
            made.append(Row(row, (), (code[:24], "", ""), seconds.get(row, MATRIX_S), name))
    return made


def command_of(row):
    """What runs a row that is no tests."""
    if row.name in PROGRAMS:
        return list(PROGRAMS[row.name])
    return [sys.executable, "-m", "tests.matrix", "--kernel", row.kernel]


def ran(choice, arguments):
    """Run what was chosen and record what passes; return the first exit code that is not 0."""
    code = 0
    tests = [row for row, _ in choice.chosen if row.tests]
    if tests:
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            rows = {row.name: {"tests": row.tests, "digests": row.digests} for row in tests}
            plan.write_text(json.dumps({"place": str(GATHERED), "rows": rows}), encoding="utf-8")
            files = sorted({row.file for row in tests})
            line = [sys.executable, "-m", "pytest", "-q", "--dist", "loadfile", "--durations=5", "-m", SELECTED]
            done = subprocess.run([*line, "--plan", str(plan), *arguments, *files], cwd=ROOT, check=False)
            code = done.returncode
            gather()
    for row in (row for row, _ in choice.chosen if not row.tests):
        print(f"{row.name}:", flush=True)
        done = subprocess.run(command_of(row), cwd=ROOT, check=False)
        if done.returncode == 0:
            record(PLACE, {row.name: [*row.digests, row.cost_s]})
        code = code or done.returncode
    return code


def stored(place=PLACE):
    """Rows that passed: their three digests and seconds. Nothing if the file is missing."""
    return json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}


def record(place, rows):
    """Add rows that passed to the file, one a line so that branches merge."""
    known = stored(place) | {name: list(row) for name, row in rows.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(known.items()))
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_suffix(".new")
    new.write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    new.replace(place)


def gather():
    """Record the rows that passed in a run, a cut one too. They wait in GATHERED: tests audit this checkout, whose
    tracked files may not change meanwhile."""
    if rows := stored(GATHERED):
        record(PLACE, rows)
        GATHERED.unlink()


def commit():
    """HEAD, which the rotation goes by; "" without git."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main(line):
    parser = argparse.ArgumentParser(prog="python -m tests.selection", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--minutes", type=float, help="choose what fits into this time; without it all that is left runs"
    )
    parser.add_argument("--list", action="store_true", help="print the choice, and run nothing")
    parser.add_argument("rest", nargs="*", help="options of pytest, after --")
    given = parser.parse_args(line)
    codes = {name: str(one["code"]) for name, one in json.loads(CODES.read_text(encoding="utf-8")).items()}
    gather()
    known = stored()
    seconds = {name: float(row[3]) for name, row in known.items()}
    passed = {name: [str(one) for one in row[:3]] for name, row in known.items()}
    depends = Depends()
    rows = rows_of(collected(), depends, codes, seconds, Durations.stored())
    others = programs(depends, codes, seconds)
    cores = len(os.sched_getaffinity(0))
    if given.minutes is None:
        choice = everything([*rows, *others], passed)
    else:
        choice = choose(rows, passed, commit(), given.minutes, cores)
        compiles = everything([row for row in others if row.name in PROGRAMS], passed)
        choice = replace(choice, chosen=(*choice.chosen, *compiles.chosen))
    print("\n".join(said(choice)), flush=True)
    if given.list:
        return 0
    code = ran(choice, given.rest)
    if given.minutes is None:
        after = {name: [str(one) for one in row[:3]] for name, row in stored().items()}
        if left := everything([*rows, *others], after).chosen:
            print(f"{len(left)} rows are left, such as {left[0][0].name}: run make test-all again", file=sys.stderr)
            code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
