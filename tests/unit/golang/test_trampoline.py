"""Recursion on a stack of our own."""

from __future__ import annotations

import pytest

from etcdfix.golang.trampoline import Steps, run


def depth_of(value: list[object]) -> Steps:
    deepest = 0
    for inner in value:
        deepest = max(deepest, (yield depth_of(inner)))  # type: ignore[arg-type]
    return deepest + 1


def test_depth_costs_no_interpreter_stack() -> None:
    value: list[object] = []
    for _ in range(50_000):
        value = [[], value]
    assert run(depth_of(value)) == 50_001


def test_an_exception_ends_the_whole_walk() -> None:
    def inner() -> Steps:
        raise LookupError("inside")
        yield  # type: ignore[unreachable]  # it makes the function a generator

    def outer() -> Steps:
        yield inner()
        raise AssertionError("not reached")

    with pytest.raises(LookupError, match="inside"):
        run(outer())
