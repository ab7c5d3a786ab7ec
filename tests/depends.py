"""What a file of tests depends on: by imports, by modules that its text names, by fixtures, and by data beside code.

Nothing is imported. What is only named in a text (`"-m", "runner"`, "symlab.verbs:symlab") counts as imported: a file
too many costs time, one too few would hide a fault.
"""

import ast
import hashlib
import re
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("symlab", "runner", "kernels", "memory", "reports", "simulator", "cases", "tests")
ALWAYS = ("pyproject.toml", "constraints.txt", "tests/conftest.py")
PUBLISHED = "reports/published"
MANIFEST = "reports/published/manifest.sha256"
"""It has the digests of all published files."""

TEXTS = "tests/golden/texts.txt"
"""It has the texts of all files of tests: each depends on its own alone (texts_of)."""

WRITTEN_BY_RUNS = ("tests/full_layer.json", "tests/durations.json")
"""They decide what runs, and not what it finds."""

LAZY = "symlab/__init__.py"
"""It loads a module when one of its own names is used: who imports a module below it depends on that alone."""

LOADED_FROM = {"kernels/catalogue.py": "kernels/", "runner/request/compose.py": "conf/"}
"""Modules that load what lies in a folder by names that they put together."""

DIGITS = 8

_NAMED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_STARTED = re.compile(r"-m[\"', ]+([a-z_]+(?:\.[a-z_]+)*)")


class Depends:
    """Dependencies of the Python files under a root, each read once. Paths are relative, with slashes."""

    def __init__(self, root=ROOT):
        self.root = root
        self._direct = {}
        self._digests = {}

    @cached_property
    def files(self):
        """All files of the packages, of conf, and pages, but for records that are published and what Python caches."""
        tops = [self.root / name for name in (*PACKAGES, "conf") if (self.root / name).is_dir()]
        found = {path.relative_to(self.root).as_posix() for top in tops for path in top.rglob("*") if path.is_file()}
        found |= {path.name for path in self.root.glob("*.md")}
        found -= {TEXTS, *WRITTEN_BY_RUNS}
        return frozenset(one for one in found if "__pycache__" not in one and not one.startswith(PUBLISHED))

    @cached_property
    def _by_folder(self):
        """Data by its folder: files that are neither code nor pages. A folder without code belongs to the one above."""
        code = {one.rpartition("/")[0] for one in self.files if one.endswith(".py")}
        found = {}
        for one in self.files:
            if not one.endswith((".py", ".md", ".pyc")):
                folder = one.rpartition("/")[0]
                while folder and folder not in code:
                    folder = folder.rpartition("/")[0]
                found.setdefault(folder, set()).add(one)
        return {folder: frozenset(names) for folder, names in found.items()}

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def texts_of(self, path):
        """The kept texts of a file of tests, with the names of its tests."""
        return "".join(self._texts.get(path, ()))

    @cached_property
    def _texts(self):
        found = {}
        for part in re.split(r"^(?=\S)", self.text(TEXTS), flags=re.MULTILINE):
            found.setdefault(part.partition("::")[0], []).append(part)
        return found

    def direct(self, path):
        """Files of the project that a file imports or names."""
        if path not in self._direct:
            text = self.text(path)
            names = {*imported(text, path), *_NAMED.findall(text)}
            names |= {f"{name}.__main__" for name in _STARTED.findall(text)} | set(_STARTED.findall(text))
            found = {file for name in names for file in self.resolved(name)}
            self._direct[path] = frozenset(found - {path})
        return self._direct[path]

    def resolved(self, name):
        """The file of the longest beginning of a dotted name that is a module, and the packages above it."""
        words = name.split(".")
        if words[0] not in PACKAGES:
            return
        for end in range(len(words), 0, -1):
            place = "/".join(words[:end])
            found = next((one for one in (f"{place}.py", f"{place}/__init__.py") if one in self.files), None)
            if found is not None:
                yield found
                packages = ("/".join(words[:above]) + "/__init__.py" for above in range(1, end))
                yield from (one for one in packages if one in self.files and one != LAZY)
                return

    def closure(self, starts):
        """All that files depend on, themselves included."""
        found, todo = set(starts), list(starts)
        while todo:
            new = self.direct(todo.pop()) - found
            found |= new
            todo += new
        return found

    def conftests(self, path):
        """The conftest.py files that pytest reads for a test file, from the top."""
        words = path.split("/")[:-1]
        for end in range(1, len(words) + 1):
            if (one := "/".join([*words[:end], "conftest.py"])) in self.files:
                yield one

    def of_test(self, path):
        """All files that a file of tests depends on. A conftest.py counts with what it imports only if one of its
        fixtures is named; a test that carries pages out depends on everything."""
        found = self.closure([path])
        texts = " ".join(self.text(one) for one in found if one.startswith("tests/"))
        for conftest in self.conftests(path):
            found.add(conftest)
            if any(re.search(rf"\b{name}\b", texts) for name in fixtures(self.text(conftest))):
                found |= self.closure([conftest])
        if "tests/pages.py" in found:
            return {one for one in self.files if not one.startswith("tests/")} | found
        for folder in {one.rpartition("/")[0] for one in found}:
            found |= self._by_folder.get(folder, frozenset())
        for module, folder in LOADED_FROM.items():
            if module in found:
                found |= {one for one in self.files if one.startswith(folder)}
        if "published" in texts:
            found.add(MANIFEST)
        return found

    def digest(self, paths, *more):
        """A short digest of files' names and contents, and of further texts."""
        whole = hashlib.sha256("\0".join(more).encode())
        for path in sorted(paths):
            if path not in self._digests:
                content = (self.root / path).read_bytes() if (self.root / path).is_file() else b"-"
                self._digests[path] = hashlib.sha256(content).hexdigest()
            whole.update(f"{path}\0{self._digests[path]}\0".encode())
        return whole.hexdigest()[:DIGITS]


def imported(text, path):
    """Dotted names that a file imports, in functions, too."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{one.name}" for one in node.names)


def fixtures(text):
    """Names of the fixtures that a conftest.py defines."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(one) for one in node.decorator_list):
            yield node.name
