"""How large the project is: `python -m tests.size` prints each number beside its limit; exit code 1 if one is exceeded.

Reads the files that git tracks. A line of code is neither blank nor a comment nor of a docstring. A number that became
smaller takes its limit along: lower LIMITS in the same commit. Who raises a limit does that alone in a commit, which
says for which feature.
"""

import ast
import re
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

import symlab

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("symlab", "cases", "runner", "kernels", "memory", "reports", "simulator")
ROOMS = ("symlab/checks/", "symlab/speed/", "symlab/evidence/")
"""Folders beside the core, which each answer one further question."""

LAZY = "symlab/__init__.py"
"""It names, for type checkers, what it loads by name."""

MADE = (
    "kernels/matrix/README.md",
    "reports/published/*-20*/README.md",
    "reports/published/*/table.md",
    "runner/KEYS.md",
    "tests/foreign/table.md",
    "tests/museum/table.md",
    "tests/mutants/table.md",
)
"""Pages that only programs write."""

COMMAND = "run +exp=allreduce_bf16"
LIMITS = {
    "product, code lines": 68_409,
    "the core, code lines": 51_186,
    "files of the core that import a room": 0,
    f"loaded by symlab {COMMAND}, code lines": 22_822,
    "tests, code lines": 64_943,
    "Markdown, words": 29_575,
    "README.md, words": 1_600,
    "longest other page, words": 3_237,
    "verbs of symlab --help": 14,
    "keys of symlab run --help": 37,
    "most parameters of a function": 8,
    "most modules of ours that a file imports": 20,
    "product files that name granularity": 6,
    "product files that name lead_in_calls": 2,
}

_HAS_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LOADED = """
import sys
from symlab.command import main
code = main(sys.argv[1:])
files = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
print("loaded", *files, sep="\\n")
sys.exit(code)
"""


def code_lines(text, nodes):
    lines = enumerate(text.splitlines(), start=1)
    found = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            found.update(range(node.lineno, (node.end_lineno or 0) + 1))
    for node in nodes:
        if isinstance(node, _HAS_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def parameters(path, nodes):
    """Number of parameters of each function but self and cls, which may be any for the API, device functions, and what
    launches a kernel: with its name and line."""
    bound = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_api = path.startswith("symlab/") and (
            path.count("/") == 1 and not node.name.startswith("_") if id(node) in bound else node.name in symlab.__all__
        )
        on_device = any(ast.unparse(one).startswith("cute.") for one in node.decorator_list)
        if not (is_api or on_device or (path.startswith("kernels/") and node.name in ("__call__", "kernel"))):
            given = node.args
            ours = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            yield sum(one is not None and one.arg not in ("self", "cls") for one in ours), f"{node.name}:{node.lineno}"


def imported(nodes):
    """Our modules that a file imports, wherever: `from package import module` imports the module."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            place = node.module.replace(".", "/")
            modules = {one.name for one in node.names if (ROOT / place / f"{one.name}.py").is_file()}
            found |= {f"{node.module}.{name}" for name in modules}
            found |= {node.module} if len(modules) < len(node.names) else set()
    return {name for name in found if name.partition(".")[0] in PACKAGES}


def enters_a_room(nodes):
    """Whether a file imports anything of a room."""
    return any(f"{one}.".startswith(tuple(room.replace("/", ".") for room in ROOMS)) for one in imported(nodes))


def said(*words):
    """What the command prints: run in a new folder, so that nothing is left, by this Python."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-c", _LOADED, *words]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded():
    """The files that COMMAND loads once its kernels are compiled: what compiles them loads more."""
    for _ in range(2):
        files = {Path(name) for name in said(*COMMAND.split()).partition("\nloaded\n")[2].splitlines()}
        if ROOT / "kernels/dsl/frame.py" not in files:
            break
    return files


def measured():
    """Each number of LIMITS, with the file that has it if it is one's, or ""."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in listed.stdout.splitlines()
        if name.endswith((".py", ".md")) and (ROOT / name).is_file()
    }
    sources = {name: text for name, text in texts.items() if name.endswith(".py")}
    product = {name: text for name, text in sources.items() if not name.startswith("tests/")}
    words = {
        name: len(text.split())
        for name, text in texts.items()
        if name.endswith(".md") and not any(fnmatch(name, made) for made in MADE)
    }
    nodes = {name: [*ast.walk(ast.parse(text))] for name, text in sources.items()}
    lines = {name: code_lines(text, nodes[name]) for name, text in sources.items()}
    at_run = loaded()
    core = [name for name in product if not name.startswith(ROOMS)]
    entering = [name for name in core if name != LAZY and enters_a_room(nodes[name])]
    naming = {word: [name for name in product if word in product[name]] for word in ("granularity", "lead_in_calls")}
    values = [
        (sum(lines[name] for name in product), ""),
        (sum(lines[name] for name in core), ""),
        (len(entering), " ".join(entering)),
        (sum(count for name, count in lines.items() if ROOT / name in at_run), ""),
        (sum(lines[name] for name in sources if name not in product), ""),
        (sum(words.values()), ""),
        (words["README.md"], ""),
        max((count, name) for name, count in words.items() if name != "README.md"),
        (len(re.findall(r"^  [a-z]+  +[A-Z]", said("--help"), re.MULTILINE)), ""),
        (len(re.findall(r"^  [a-z_.]+=", said("run", "--help"), re.MULTILINE)), ""),
        max((count, f"{name}:{at}") for name in product for count, at in parameters(name, nodes[name])),
        max((len(imported(nodes[name])), name) for name in product),
        *((len(names), " ".join(names) if len(names) < 8 else "") for names in naming.values()),
    ]
    return dict(zip(LIMITS, values, strict=True))


def main():
    found = measured()
    for name, (value, place) in found.items():
        over = f"  exceeds {LIMITS[name]:,}" if value > LIMITS[name] else ""
        print(f"{value:>7,}  {name}{place and f' ({place})'}{over}")
    return int(any(value > LIMITS[name] for name, (value, _) in found.items()))


if __name__ == "__main__":
    sys.exit(main())
