"""What a scan says on standard error in the end: not every format shows it."""

from __future__ import annotations

from collections.abc import Collection

from etcdfix.cli.output import say, say_incomplete, say_next
from etcdfix.model import Outcome
from etcdfix.operations.look.scan import ScanResult
from etcdfix.reports.next_steps import plugin_troubles
from etcdfix.text.notes import Note
from etcdfix.text.safetext import safe_text


def say_last_words(result: ScanResult, fail_on: Collection[Outcome]) -> None:
    """Say why the result is not everything, what is to be done about that, and which findings do not count.

    Args:
        result: What it came to.
        fail_on: Outcomes that count for the exit code.
    """
    say_incomplete(result.problems)
    if result.ended is not None:
        say(f"incomplete: {result.ended.reason} before the end")
    for trouble in plugin_troubles(result.summary.kms):
        say(trouble)
    for key in result.denied:
        say(f"permission denied: the key {key} itself, outside {result.prefix}, was not read")
    _say_what_was_not_examined(result)
    uncounted = [
        f"{keys} {outcome}" for outcome, keys in result.new.items() if keys and outcome not in fail_on
    ]
    if uncounted:
        say(Note(f"not counted for the exit code (--fail-on): {', '.join(uncounted)}"))


def _say_what_was_not_examined(result: ScanResult) -> None:
    keys = result.summary.keys
    if not keys and (result.problems or result.ended is not None):
        say("NOTHING WAS EXAMINED")
    elif not result.below_prefix:
        at = f" at revision {result.revision}" if result.revision else ""
        say(f"NOTHING WAS EXAMINED: no key starts with {result.prefix}{at}")
        places = " or ".join(safe_text(p) for p in result.suggested_prefixes[:3])
        if places:
            say_next(f"Kubernetes keys seem to be under {places}; give it with --etcd-prefix")
        else:
            say_next("check --etcd-prefix and that this is the etcd that the API servers use")
    elif result.nothing_named_exists:
        say("NOTHING WAS EXAMINED: no key matches the given name (the storage prefix itself holds keys)")
    elif not keys:
        say("no key is in this scope (the storage prefix itself holds keys)")
