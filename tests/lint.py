"""Rules that ruff has not, file by file: `make check` runs `python -m tests.lint`, which prints every violation.

Words are plain; links of pages lead somewhere; tests assert no speed, share no MLflow experiment,
have file names of their own, and those whose texts are kept exist.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.golden.texts import Texts
from tests.pages import PAGES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("symlab", "runner", "kernels", "memory", "reports", "simulator", "cases")

UNWANTED = (
    *("nobody", "whoever", "so many", "so often", "is to be", "are to be", "be had", "nowhere", "no one who"),
    *("is asked", "is not asked", "is told", "is not told", "what is none", "that is none", "said and done"),
)
"""Words of riddles: "unknown", "unavailable", "maximum", "number of", or the one who acts, say it at once."""

CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}
SMALLER = {ast.Lt: 0, ast.LtE: 0, ast.Gt: 1, ast.GtE: 1}
"""By comparison: which of its two sides is the smaller one."""

TOOK = {"wall_s", "duration_s", "seconds", "elapsed_s"}
"""Attributes that hold how long something took."""

PATIENT = {"PATIENCE_S", "NEVER_S"}
"""Limits of tests/patience.py, which no busy machine reaches."""

SHORT_S = range(1, 120)
WAITS = {"run", "call", "check_call", "check_output", "communicate", "wait", "wait_for", "join"}


def reads_a_clock(node: ast.AST) -> bool:
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
    return bool({name.removesuffix("_ns") for name in names} & CLOCKS)


def is_lapse(node: ast.AST, lapses: set[str]) -> bool:
    """Whether an expression has a clock's value, a name of `lapses`, which hold differences of two of them, or what a
    result says it took."""
    return reads_a_clock(node) or any(
        (isinstance(one, ast.Name) and one.id in lapses) or (isinstance(one, ast.Attribute) and one.attr in TOOK)
        for one in ast.walk(node)
    )


def is_patient(node: ast.AST) -> bool:
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in PATIENT


def upper_bounds(tree: ast.AST) -> list[int]:
    """Lines that assert that a clock, or a difference of two of its values, is below something else than the limits of
    tests/patience.py."""
    lapses = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Sub) for one in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name) and reads_a_clock(node.value)
    }
    found = []
    for node in ast.walk(tree):
        for one in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            if isinstance(one, ast.Compare):
                sides = [one.left, *one.comparators]
                smaller = [at + SMALLER[type(op)] for at, op in enumerate(one.ops) if type(op) in SMALLER]
                larger = [at + 1 - SMALLER[type(op)] for at, op in enumerate(one.ops) if type(op) in SMALLER]
                pairs = [(sides[at], sides[beyond]) for at, beyond in zip(smaller, larger, strict=True)]
                found += [node.lineno for side, limit in pairs if is_lapse(side, lapses) and not is_patient(limit)]
    return found


def short_waits(tree: ast.AST) -> list[int]:
    """Lines that wait for a process, a thread, a world or an event, and give up after 1 to 119 seconds."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            last = (
                node.args[-1:] if node.func.attr != "run" or len(node.args) == 3 else []
            )  # world.run(program, x, 20.0)
            given = [word.value for word in node.keywords if word.arg == "timeout"] + last
            numbers = [one.value for one in given if isinstance(one, ast.Constant) and type(one.value) in (int, float)]
            found += [node.lineno for number in numbers if SHORT_S.start <= number < SHORT_S.stop]
    return found


def unwanted_in(text: str) -> list[str]:
    """The unwanted words of a text, also where a line of a comment or of a message ends between them."""
    joined = re.sub(r"[\"']\s*\n\s*[rbf]?[\"']", "", text)
    joined = re.sub(r"\n\s*(#|//|\*) ?", "\n", joined)
    plain = " ".join(joined.lower().split())
    return [word for word in UNWANTED if re.search(rf"\b{word}\b(?! for\b)", plain)]


def speed(text: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """A busy machine would refuse what is right: tests/patience.py has limits, tests/benchmarks measure."""
    for line in upper_bounds(tree):
        yield line, "asserts speed: count work, look at the order of events, or use tests.patience.within"
    for line in short_waits(tree):
        yield line, "gives up too early: use PATIENCE_S of tests/patience.py"
    for number, line_text in enumerate(text.splitlines(), start=1):
        if re.search(r"process_time|perf_counter", line_text):
            yield number, "reads a clock of work, also in the text of a program that a test starts"


def dead_links(page: Path, text: str) -> Iterator[tuple[int, str]]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    for number, line in enumerate(text.splitlines(), start=1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            path, _, anchor = target.partition("#")
            if not ((page.parent / path).exists() if path else anchor in anchors):
                yield number, f"{target} leads nowhere"
        for named in re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|md))`", line):
            if not any((folder / named).exists() for folder in (page.parent, ROOT, ROOT / "symlab", ROOT / "tests")):
                yield number, f"{named} is no file"


def shared_experiments(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Two files with one experiment pass alone and fail where one worker runs both."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts:
        for name in re.findall(r"track\.experiment=([\w-]+)\"", text):
            files[name].add(path)
    for name, paths in files.items():
        if len(paths) > 1:
            yield f"{' and '.join(sorted(paths))}: share the MLflow experiment {name}"


def same_names(paths: Iterable[Path]) -> Iterator[str]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path.name not in ("conftest.py", "__main__.py"):
            places[path.name].append(path.as_posix())
    for name, found in places.items():
        if len(found) > 1:
            yield f"{' and '.join(found)}: tests' files have names of their own, not {name} twice"


def of_source(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Violations of a Python file, each with its line."""
    is_free = path.parent.name == "benchmarks" or path.name in ("patience.py", "lint.py", "test_lint.py")
    if path.is_relative_to(ROOT / "tests") and not is_free:
        yield from speed(text, ast.parse(text))


def written() -> list[Path]:
    """The files of all packages that hold docstrings, comments, messages or texts of pages."""
    suffixes = {".py", ".yaml", ".j2", ".js", ".css"}
    return [
        path
        for package in (*PACKAGES, "conf")
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in suffixes and "__pycache__" not in path.parts
    ]


def violations() -> Iterator[str]:
    """All violations of the checkout, each a line that begins with its place."""
    sources = sorted(path for folder in (*PACKAGES, "tests") for path in (ROOT / folder).rglob("*.py"))
    pages = [ROOT / page for page in PAGES]
    texts = {path: path.read_text(encoding="utf-8") for path in {*sources, *pages, *written()}}
    for path in sources:
        yield from (f"{name_of(path)}:{line}: {what}" for line, what in of_source(path, texts[path]))
    for path in (*pages, *written()):
        yield from (f'{name_of(path)}: "{word}" is not plain' for word in unwanted_in(texts[path]))
    for path in pages:
        yield from (f"{name_of(path)}:{line}: {what}" for line, what in dead_links(path, texts[path]))
    tests = [path for path in sources if path.is_relative_to(ROOT / "tests")]
    yield from same_names(path.relative_to(ROOT) for path in tests)
    yield from without_test(Texts.stored().by_key)
    yield from shared_experiments((path.name, texts[path]) for path in tests if path.name.startswith("test_"))


def without_test(keys: Iterable[str]) -> Iterator[str]:
    """Kept texts of tests that are gone: by file and function."""
    for key in keys:
        path, _, function = key.partition("[")[0].partition(" #")[0].partition("::")
        name = function.rpartition("::")[2]
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if f"def {name}(" not in text:
            yield f"tests/golden/texts.txt: no test {path}::{name} (make golden)"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    found = list(violations())
    print("\n".join(found) or "tests/lint.py: no violations")
    sys.exit(bool(found))
