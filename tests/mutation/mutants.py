"""Every guard of a module, and what can be broken about it.

A guard is the test of an ``if``, ``elif``, ``while``, ternary, comprehension or ``case``, each operand of ``and`` and
``or``, a comparison or ``not`` whose answer is handed on, a ``raise``, and each member of a set or tuple that decides
by membership. An ``assert`` narrows types and is left out.

What another mutant of the same guard implies is left out too: whoever notices ``if x:`` as ``if True:`` and as ``if
False:`` notices ``if not x:``, and a ``raise`` that is all there is behind an ``if`` is gone with ``if False:``.
Everything inside of an f-string, of what is raised or of ``refuse(...)`` only chooses words.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_COLLECTIONS = (ast.Set, ast.Tuple, ast.List)
_MEMBERSHIP_CALLS = {"startswith", "endswith", "isinstance", "issuperset", "isdisjoint"}
_WORDS = {"refuse", "step"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One guard, broken in one way.

    Attributes:
        path: Of the module, from the root of the repository.
        function: Qualified name of the outermost function, "" at the level of module or class.
        guard: Source text of the guard, on one line.
        change: What is done to it.
        occurrence: The same guard and change can stand in one function more than once; the first is 1.
        line: First line of the guard.
        lines: Of the guard, and the first of its statement: whoever runs one of them runs the guard.
        behind: Lines that are run only where the guard lets them be; empty where no line tells.
        start: Where the text to be replaced begins, in bytes of the module.
        end: Where it ends.
        text: What stands there instead.
    """

    path: str
    function: str
    guard: str
    change: str
    occurrence: int = 1
    line: int
    lines: frozenset[int]
    behind: frozenset[int] = frozenset()
    start: int
    end: int
    text: str

    @property
    def key(self) -> str:
        """The same as long as the guard is, wherever it moves."""
        return f"{self.path}::{self.function}::{self.guard}::{self.change}::{self.occurrence}"

    def apply(self, source: bytes) -> bytes:
        """Return the module with this guard broken."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def find_mutants(path: str, source: bytes, *, deciding: frozenset[str] = frozenset()) -> list[Mutant]:
    """Return every mutant of a module.

    Args:
        path: Recorded in each.
        source: Of the module.
        deciding: Names of constants that are asked for membership anywhere (:func:`deciding_names`).
    """
    finder = _Finder(path, source, deciding)
    finder.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for mutant in finder.found:
        seen[mutant.key] += 1
        found.append(replace(mutant, occurrence=seen[mutant.key]))
    return found


def deciding_names(sources: list[bytes]) -> frozenset[str]:
    """Return the last part of every name that stands right of ``in``, or is handed to ``startswith`` and its like."""
    names = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            for asked in _asked_of(node):
                if isinstance(asked, ast.Name):
                    names.add(asked.id)
                elif isinstance(asked, ast.Attribute):
                    names.add(asked.attr)
    return frozenset(names)


def _asked_of(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                yield right
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _MEMBERSHIP_CALLS and node.args:
            yield node.args[-1]


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes, deciding: frozenset[str]) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._deciding = deciding
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._function = ""
        self._statement = 0
        self._behind: frozenset[int] = frozenset()
        self._whole: set[int] = (
            set()
        )  # conditions, by id: their parts are looked at, they themselves are done

    # --- where we are ---

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            before, self._statement = self._statement, node.lineno
            super().visit(node)
            self._statement = before
            self._behind = frozenset()
        else:
            super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for child in node.body:
            self.visit(child)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outermost = not self._function
        if outermost:
            self._function = ".".join([*self._scope, node.name])
        for child in node.body:
            self.visit(child)
        if outermost:
            self._function = ""

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._constant(node.target, node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._constant(node.targets[0], node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    # --- guards ---

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        before, self._behind = self._behind, _lines_of(node.body)
        self._condition(node.test)
        self._behind = before
        if len(node.body) > 1 or not isinstance(node.body[0], ast.Raise) or node.orelse:
            for child in node.body:
                self.visit(child)
        for child in node.orelse:
            self.visit(child)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        for child in (*node.body, *node.orelse):
            self.visit(child)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.visit(node.body)
        self.visit(node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self._condition(test)

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._condition(node.guard)
        for child in node.body:
            self.visit(child)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "raise left out", "pass")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if id(node) not in self._whole and any(
            isinstance(value, ast.Compare | ast.UnaryOp) for value in node.values
        ):
            never = isinstance(node.op, ast.And)
            self._add(node, f"always {not never}", str(not never))
        for dropped in node.values:
            rest = [value for value in node.values if value is not dropped]
            kept = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._add(node, f"without: {self._text(dropped)}", f"({ast.unparse(kept)})")
        for value in node.values:
            self._whole.add(id(value))
            self.visit(value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._constants(node)
            self._whole.add(id(node.operand))
        self.visit(node.operand)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._constants(node)
        pairs = list(zip([node.left, *node.comparators], node.ops, node.comparators, strict=False))
        if len(pairs) > 1:
            for index in range(len(pairs)):
                rest = [ast.unparse(ast.Compare(*_one(pair))) for pair in pairs if pair is not pairs[index]]
                gone = ast.unparse(ast.Compare(*_one(pairs[index])))
                self._add(node, f"without: {gone}", f"({' and '.join(rest)})")
        for index, operator in enumerate(node.ops):
            other = _BOUNDARY.get(type(operator))
            if other is not None:
                changed = ast.Compare(
                    node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators
                )
                change = f"{_SIGNS[type(operator)]} as {_SIGNS[other]}"
                self._add(
                    node,
                    change if len(pairs) == 1 else f"{change} ({index + 1})",
                    f"({ast.unparse(changed)})",
                )
        for asked in _asked_of(node):
            self._members(asked, name=self._text(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _WORDS:
            return
        for asked in _asked_of(node):
            self._members(asked, name=self._text(node))
        self.generic_visit(node)

    # --- the parts of them ---

    def _condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant):
            return
        self._add(test, "always True", "True")
        self._add(test, "always False", "False")
        self._whole.add(id(test))
        self.visit(test)

    def _constants(self, node: ast.expr) -> None:
        """An answer that is handed on, not decided upon here."""
        if id(node) not in self._whole:
            self._add(node, "always True", "True")
            self._add(node, "always False", "False")

    def _constant(self, target: ast.expr, value: ast.expr | None) -> None:
        if value is None:
            return
        if not self._function and isinstance(target, ast.Name) and target.id in self._deciding:
            inner = value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "frozenset" and value.args:
                inner = value.args[0]
            self._members(inner, name=target.id)
        self.visit(value)

    def _members(self, node: ast.expr, *, name: str = "") -> None:
        if not isinstance(node, _COLLECTIONS) or len(node.elts) < 2:
            return
        for gone in node.elts:
            if isinstance(gone, ast.Starred):
                continue
            kept = [element for element in node.elts if element is not gone]
            made = type(node)(kept) if isinstance(node, ast.Set) else type(node)(kept, ast.Load())
            self._add(node, f"without the member {self._text(gone)}", f"({ast.unparse(made)})", guard=name)

    def _text(self, node: ast.AST) -> str:
        return re.sub(r"\s+", " ", ast.unparse(node))

    def _add(self, node: ast.expr | ast.stmt, change: str, text: str, *, guard: str = "") -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        if text != "pass":
            # Line breaks inside of brackets keep every line below where it was.
            text = "(" + text + "\n" * (node.end_lineno - node.lineno) + ")"
        whole = self._text(node)
        self.found.append(
            Mutant(
                path=self._path,
                function=self._function,
                guard=guard or (whole if len(whole) <= 200 else whole[:199] + "…"),
                change=change,
                line=node.lineno,
                lines=frozenset({self._statement, *range(node.lineno, node.end_lineno + 1)}),
                behind=self._behind,
                start=start,
                end=end,
                text=text,
            )
        )


def _lines_of(body: list[ast.stmt]) -> frozenset[int]:
    return frozenset(
        line for node in body for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )


def _one(pair: tuple[ast.expr, ast.cmpop, ast.expr]) -> tuple[ast.expr, list[ast.cmpop], list[ast.expr]]:
    left, operator, right = pair
    return left, [operator], [right]
