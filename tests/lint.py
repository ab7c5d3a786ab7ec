"""Rules that ruff has not, file by file: `make check` runs `python -m tests.lint`, which prints every violation.

Words are plain; links of pages lead somewhere; tests assert no speed, share no MLflow experiment,
have file names of their own, and those whose texts are kept exist.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from tests.golden.texts import Texts
from tests.pages import PAGES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("symlab", "runner", "kernels", "memory", "reports", "simulator", "cases")

UNWANTED = (
    "nobody",
    "whoever",
    "so many",
    "so often",
    "is to be",
    "are to be",
    "be had",
    "nowhere",
    "no one who",
    "is asked",
    "is not asked",
    "is told",
    "is not told",
    "what is none",
    "that is none",
    "said and done",
)
"""Words of riddles: "unknown", "unavailable", "maximum", "number of", or the one who acts, say it at once."""

SHORT = r"(?:[1-9]\d?|1[01]\d)(?:\.\d+)?"
"""1 to 119 seconds, in figures."""

SIGNALS = "send_signal|kill|killpg|pthread_kill|raise_signal|interrupt_main|terminate|press"
SPEED = {
    r"assert .*monotonic.*<|= .*monotonic\(\) - |\b(?:wall_s|duration_s|elapsed_s|seconds) <=? [\d.]": (
        "asserts speed: count work, look at the order of events, or use tests.patience.within"
    ),
    r"process_time|perf_counter": "reads a clock of work, also in the text of a program that a test starts",
    rf"^(?!.*(?:urlopen|_connection)).*(?:\btimeout=|\.(?:wait|join)\(|\brun\([^()]*, [^()]*, ){SHORT}[,)]": (
        "gives up too early: use PATIENCE_S of tests/patience.py"
    ),
    rf"\b(?:deadline|limit|patience|timeout)_s=(?:{SHORT}|0?\.\d*[1-9])\b(?!\.)|_deadline_s={SHORT}\b": (
        "a short deadline: give NEVER_S and a Clock, or SOON_S"
    ),
    rf"^( *)(?:\w+\.)?sleep\(.*\n(?:\1.*\n){{0,3}}?\1.*(?:{SIGNALS})\(": (
        "a sleep before a signal: press Ctrl-C with pressed(), once it has begun"
    ),
    r"^(?!.*--rerun).*\"audit\", .*\n(?:.*\n){0,4}?.*run again here": (
        "an audit begins cases only within 20 s: give --rerun all to count them"
    ),
    r"\bTimer\(": "a timer may outlive its test: pressed() ends with its block",
}
"""Patterns of what a busy machine would refuse, or which would hang it."""

OWN_CLOCKS = ("test_publish_sets.py", "test_faults_gpu.py")
"""Files with short deadlines: on a clock that the test sets, and of kernels on GPUs, which no busy host delays."""


def unwanted_in(text):
    """The unwanted words of a text, also where a line of a comment or of a message ends between them."""
    joined = re.sub(r"[\"']\s*\n\s*[rbf]?[\"']", "", text)
    joined = re.sub(r"\n\s*(#|//|\*) ?", "\n", joined)
    plain = " ".join(joined.lower().split())
    return [word for word in UNWANTED if re.search(rf"\b{word}\b(?! for\b)", plain)]


def speed(text):
    """A busy machine would refuse what is right: tests/patience.py has limits, tests/benchmarks measure."""
    for pattern, what in SPEED.items():
        for found in re.finditer(pattern, text, re.MULTILINE):
            yield text.count("\n", 0, found.start()) + 1, what


def dead_links(page, text):
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


def shared_experiments(texts):
    """Two files with one experiment pass alone and fail where one worker runs both."""
    files = defaultdict(set)
    for path, text in texts:
        for name in re.findall(r"track\.experiment=([\w-]+)\"", text):
            files[name].add(path)
    for name, paths in files.items():
        if len(paths) > 1:
            yield f"{' and '.join(sorted(paths))}: share the MLflow experiment {name}"


def same_names(paths):
    places = defaultdict(list)
    for path in paths:
        if path.name not in ("conftest.py", "__main__.py"):
            places[path.name].append(path.as_posix())
    for name, found in places.items():
        if len(found) > 1:
            yield f"{' and '.join(found)}: tests' files have names of their own, not {name} twice"


def of_source(path, text):
    """Violations of a Python file, each with its line."""
    free = ("lint.py", "test_lint.py", "patience.py", "test_patience.py")
    if (
        path.is_relative_to(ROOT / "tests")
        and path.parent.name not in ("benchmarks", "faults")
        and path.name not in free
    ):
        yield from (one for one in speed(text) if "deadline" not in one[1] or path.name not in OWN_CLOCKS)


def written():
    """The files of all packages that hold docstrings, comments, messages or texts of pages."""
    suffixes = {".py", ".yaml", ".j2", ".js", ".css"}
    return [
        path
        for package in (*PACKAGES, "conf")
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in suffixes and "__pycache__" not in path.parts
    ]


def violations():
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


def without_test(keys):
    """Kept texts of tests that are gone: by file and function."""
    for key in keys:
        path, _, function = key.partition("[")[0].partition(" #")[0].partition("::")
        name = function.rpartition("::")[2]
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if f"def {name}(" not in text:
            yield f"tests/golden/texts.txt: no test {path}::{name} (make golden)"


def name_of(path):
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    found = list(violations())
    print("\n".join(found) or "tests/lint.py: no violations")
    sys.exit(bool(found))
