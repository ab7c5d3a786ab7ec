"""Small faults of product code: every place of a file where one can be made, each of a kind that people really make.

Left out is what no test should notice: annotations, docstrings, the words of messages, asserts (which are for us), and
what only type checkers read.
"""

import ast
from dataclasses import dataclass

KINDS = {
    "comparison": "a comparison is off by one (`<` and `<=`) or its opposite (`==`, `is`, `in`)",
    "constant": "a whole number and 1 more",
    "and/or": "`and` in place of `or`, and the other way round",
    "condition": "the condition of `if`, `while` or `a if b else c` is negated",
    "statement": "a call, `raise`, `continue`, `break`, `+=` or a store into an attribute or an element is dropped",
    "result": "a call's result is ignored: what it was called with goes on in its place",
    "arguments": "the first two arguments are swapped",
    "extremum": "`min` in place of `max`, `any` in place of `all`, and the other way round",
    "sum": "`+` in place of `-`, and the other way round",
    "neighbour": "`return` gives the value beside it: the other truth value, or a pair the other way round",
}
"""The kinds of faults, and what each does."""

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_OTHER = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SIMPLE = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign)
_BRANCHES = (ast.If, ast.While, ast.IfExp)
_COPIES = {"cast", "frozenset", "list", "tuple"}
"""Calls whose results do what their arguments do, for most users."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a file.

    line and column count from 1, first and last are the lines of the statement that it is in (of a compound one its
    head), start and end the bytes that it replaces. statement: the text of its line. is_inside: within a function, so
    that what runs it can be recorded.
    """

    path: str
    line: int
    column: int
    kind: str
    before: str
    after: str
    statement: str
    is_inside: bool
    first: int
    last: int
    start: int
    end: int

    @property
    def name(self):
        """A name that stays while lines before it come and go, unless its file has the same statement twice."""
        return f"{self.path}: {self.statement}: {self.kind} {self.column}: {self.before} -> {self.after}"

    @property
    def said(self):
        """Where it is and what it does, in a line."""
        return f"{self.path}:{self.line}: {self.kind}: {short(self.before)} -> {short(self.after)}"

    @property
    def room(self):
        """The package and the folder in it: "runner/track"; of a file of the package itself "runner"."""
        return "/".join(self.path.split("/")[:-1][:2])

    def applied(self, text):
        """Return the file's text with the fault. Raises ValueError if the text is not what it was made from."""
        data = text.encode()
        if data[self.start : self.end].decode(errors="replace") != self.before:
            raise ValueError(f"{self.path}:{self.line} has changed: {self.before} is not there")
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def short(text, most=90):
    """Return a text in one line, and its beginning alone if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."


def faults_of(path, text):
    """Return all faults of a file, in the order of their places."""
    made = _Made(path, text)
    made.visit(ast.parse(text))
    unique = {(one.start, one.end, one.after): one for one in made.found if one.before != one.after}
    return sorted(unique.values(), key=lambda one: (one.start, one.end, one.kind))


class _Made(ast.NodeVisitor):
    """Collects the faults of a file."""

    def __init__(self, path, text):
        self.path = path
        self.lines = text.splitlines() or [""]
        self.data = text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.found = []
        self.depth = 0
        self.span = (1, 1)
        self.bare = set()

    def at(self, line, column):
        return self.starts[line - 1] + column

    def text(self, node):
        return self.data[slice(*self.bounds(node))].decode()

    def bounds(self, node):
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def add(self, kind, start, end, after):
        line = self.data[:start].count(b"\n") + 1
        before = self.data[start:end].decode()
        column = len(self.data[self.starts[line - 1] : start].decode()) + 1
        statement, inside = self.lines[line - 1].strip(), self.depth > 0
        fault = Fault(self.path, line, column, kind, before, after, statement, inside, *self.span, start, end)
        self.found.append(fault)

    def replace(self, kind, node, after):
        self.add(kind, *self.bounds(node), after)

    def between(self, kind, left, right, before, after):
        """Replace an operator between two operands."""
        start, end = self.bounds(left)[1], self.bounds(right)[0]
        place = self.data[start:end].decode().find(before)
        if place >= 0:
            self.add(kind, start + place, start + place + len(before), after)

    def visit(self, node):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
            self.span = (node.lineno, max(node.lineno, last))
            self._statement(node)
        if isinstance(node, ast.expr):
            self._expression(node)
        if isinstance(node, _BRANCHES) and not isinstance(node.test, ast.Constant) and not _is_for_checkers(node):
            self.replace("condition", node.test, f"not ({self.text(node.test)})")
        for child in self._children(node):
            span = self.span
            self.visit(child)
            self.span = span

    def _children(self, node):
        """What of a node may have faults."""
        if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Raise):
            return
        if _is_for_checkers(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None)
            self.depth += 1
            yield from node.body if isinstance(node.body, list) else [node.body]
            self.depth -= 1
            return
        if isinstance(node, ast.ClassDef):
            yield from node.body
            return
        if isinstance(node, ast.AnnAssign):
            yield from [node.value] if node.value is not None else []
            return
        yield from ast.iter_child_nodes(node)

    def _statement(self, node):
        stores = isinstance(node, ast.Assign) and all(
            isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets
        )
        calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        self.bare |= {id(node.value)} if isinstance(node, ast.Expr) else set()
        if self.depth and (isinstance(node, _SIMPLE) or stores or calls):
            self.replace("statement", node, "pass")
        if isinstance(node, ast.Return):
            self._returned(node)

    def _returned(self, node):
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            self.replace("neighbour", value, str(not value.value))
        if isinstance(value, ast.Tuple) and len(value.elts) == 2:
            self._swap("neighbour", *value.elts)

    def _swap(self, kind, one, other):
        """Exchange two expressions."""
        (start, end), (later, last) = self.bounds(one), self.bounds(other)
        between = self.data[end:later].decode()
        self.add(kind, start, last, f"{self.text(other)}{between}{self.text(one)}")

    def _expression(self, node):
        rules = {
            ast.Compare: self._comparison,
            ast.Constant: self._constant,
            ast.BoolOp: self._and_or,
            ast.Call: self._call,
            ast.BinOp: self._sum,
        }
        if type(node) in rules:
            rules[type(node)](node)

    def _comparison(self, node):
        sides = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            self.between("comparison", sides[at], sides[at + 1], *_COMPARISONS[type(operator)])

    def _constant(self, node):
        if type(node.value) is int:
            self.replace(
                "constant", node, f"({self.text(node)} + 1)" if self.text(node)[:2] == "0x" else str(node.value + 1)
            )

    def _and_or(self, node):
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for one, other in zip(node.values, node.values[1:], strict=False):
            self.between("and/or", one, other, before, after)

    def _call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in _OTHER:
            self.replace("extremum", node.func, _OTHER[node.func.id])
        plain = [one for one in node.args if not isinstance(one, ast.Starred)]
        if len(plain) == len(node.args) >= 2 and self.text(plain[0]) != self.text(plain[1]):
            self._swap("arguments", plain[0], plain[1])
        if id(node) in self.bare or (isinstance(node.func, ast.Name) and node.func.id in _COPIES):
            return
        if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name | ast.JoinedStr):
            self.replace("result", node, f"({self.text(node.func.value)})")
        elif len(plain) == len(node.args) == 1 and not node.keywords:
            self.replace("result", node, f"({self.text(plain[0])})")

    def _sum(self, node):
        signs = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
        if type(node.op) in signs:
            self.between("sum", node.left, node.right, *signs[type(node.op)])

    def generic_visit(self, node):
        raise AssertionError("visit() goes through all nodes itself")


def _is_for_checkers(node):
    """Whether a node is the block that only type checkers read."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
