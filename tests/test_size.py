"""What tests/size.py counts, and that a number above its limit fails."""

import ast

import pytest

from tests import size

TEXT = '''"""A docstring
of two lines."""

# a comment
TEXT = """two

blank lines in a string are code, and so is # this"""


class A:
    """A docstring."""

    def method(self, a, *b, c=(1,
            2), **d):
        """And another one."""
        import runner.case, os
        from kernels import spec, __doc__
        from numpy import array  # no module of ours

    @cute.jit
    def on_device(a, b, c): ...

def explore(a, b, c, d, e): ...
'''
NODES = [*ast.walk(ast.parse(TEXT))]


def test_lines_are_those_of_code():
    assert size.code_lines(TEXT, NODES) == 3 + 1 + 5 + 2 + 1


def test_parameters_of_the_api_and_of_device_functions_may_be_any_number():
    assert [*size.parameters("runner/x.py", NODES)] == [(5, "explore:23"), (4, "method:13")]
    assert [*size.parameters("symlab/x.py", NODES)] == []
    assert [*size.parameters("symlab/speed/x.py", NODES)] == [(4, "method:13")]
    launching = [*ast.walk(ast.parse("def kernel(a): ...\ndef prepare(a, b): ..."))]
    assert [*size.parameters("kernels/x.py", launching)] == [(2, "prepare:2")]


def test_modules_are_counted_not_names():
    assert size.imported(NODES) == {"runner.case", "kernels.spec", "kernels"}


@pytest.mark.parametrize(
    ("line", "enters"),
    [
        ("from symlab.speed.best import chooser_for", True),
        ("def f():\n    import symlab.checks", True),
        ("from symlab.rooms import part_of", False),
        ("import symlab.speedy", False),
    ],
)
def test_an_import_of_a_room_is_seen(line, enters):
    assert size.enters_a_room([*ast.walk(ast.parse(line))]) == enters


@pytest.mark.parametrize("value", [7, 8])
def test_a_number_above_its_limit_fails(value, monkeypatch, capsys):
    monkeypatch.setattr(size, "LIMITS", {"files": 7})
    monkeypatch.setattr(size, "measured", lambda: {"files": (value, "x.py")})
    assert (size.main(), "exceeds 7" in capsys.readouterr().out) == (int(value > 7), value > 7)
