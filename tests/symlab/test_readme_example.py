"""The Python of symlab/README.md and README.md runs as it stands there, and prints what the comments say."""

import ast
import io
import re
import tokenize
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import symlab

ROOT = Path(symlab.__file__).resolve().parents[1]
PAGES = ("symlab/README.md", "README.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def promised(code):
    """What the comments beside print say."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [one.string[2:] for one in tokens if one.type == tokenize.COMMENT and "print(" in one.line]


ALL = [pytest.param(code, id=f"{page}-{number}") for page in PAGES for number, code in enumerate(blocks(page))]


@pytest.mark.parametrize("code", ALL)
def test_an_example_prints_what_it_says(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # experiments write records
    if 'fabric="nvshmem"' in code:
        ast.parse(code)
        pytest.skip("needs 4 GPUs: only its names are checked, below")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    assert printed.getvalue().splitlines() == promised(code)
    assert promised(code), "an example shows what it prints"


@pytest.mark.parametrize("code", ALL)
def test_an_example_uses_promised_names_only(code):
    used = [
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "symlab"
    ]
    assert used
    assert set(used) <= set(symlab.__all__)


def test_the_first_example_is_whole_and_has_ten_lines():
    first = blocks("symlab/README.md")[0]
    assert len([line for line in first.splitlines() if line.strip()]) == 10
    assert {"case", "run", "compile", "pool", "world", "check"} <= set(re.findall(r"\w+", first))


def test_the_page_names_every_promised_name():
    text = (ROOT / "symlab/README.md").read_text(encoding="utf-8")
    table = "".join(line for line in text.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)[(`]", table)) == set(symlab.__all__)
