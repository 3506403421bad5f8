"""Recursion without the interpreter's stack, for walks whose depth the data decides.

A walk is written as a generator that yields the calls it would make and gets their results back; :func:`run`
keeps the stack. Ten thousand levels, the depth that Kubernetes allows, then cost memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

Steps: TypeAlias = Generator[Any, Any, Any]
"""A recursive walk in progress: yields further walks, is sent their results, returns its own."""


def run(steps: Steps) -> Any:
    """Run ``steps`` and every walk that it yields; return its result. Exceptions end the whole walk."""
    stack = [steps]
    answer: Any = None
    while True:
        try:
            call = stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer = done.value
            if not stack:
                return answer
        else:
            stack.append(call)
            answer = None
