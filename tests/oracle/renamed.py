"""What has another name in one of two trees, and what only one of them has: the second edition against the first.

Arguments are written as the working tree takes them. A tree that does not know an option gets the other spelling.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

# Old and new spelling of arguments; ``*`` stands for one value. The first that fits counts.
ARGUMENTS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("--accept-no-api-server",), ("--accept", "no-api-server")),
    (("--accept-unknown-cluster",), ("--accept", "unknown-cluster")),
    (("--accept-unknown-release",), ("--accept", "unknown-release")),
    (("--accept-other-cluster-id",), ("--accept", "other-cluster-id")),
    (("--accept-unlisted-source",), ("--accept", "unlisted-source")),
    (("--accept-undeployed-write-key",), ("--accept", "undeployed-write-key")),
    (("--accept-unknown-uid",), ("--accept", "unknown-uid")),
    (("--accept-only-copy",), ("--accept", "only-copy")),
    (("--accept-not-applied",), ("--accept", "not-applied")),
    (("--without-lease",), ("--accept", "expired-lease")),
    (("--accept-unchecked-server", "*"), ("--accept", "unchecked-server=*")),
    (("--accept-unknown-uid",), ("--accept", "unknown-uid")),
    (("--accept-not-applied",), ("--accept", "not-applied")),
    (("--accept-only-copy",), ("--accept", "only-copy")),
    (("--accept-unchecked-member", "*"), ("--accept", "unchecked-member=*")),
    (("--accept-unchecked-server", "*"), ("--accept", "unchecked-server=*")),
    (("--accept-risk", "*"), ("--accept", "*")),
    (("--key-base64", "*"), ("base64:*",)),
)

# Old and new words of values, by the name of their field.
WORDS: Final[dict[str, dict[str, str]]] = {
    "apiVersion": {"etcdfix/v1alpha2": "etcdfix/v1"},
    "rule": {
        "backup-not-applied": "not-applied",
        "lease-expired": "expired-lease",
        "mass-damage": "pattern",
        "member-unchecked": "unchecked-member",
        "server-unchecked": "unchecked-server",
        "undeployed-write-key": "write-key",
        "unknown-release": "release",
        # One word, and two others, were for what six words say.
        "fails-like-others": "risk-not-accepted",
        "newer-than-known": "risk-not-accepted",
        "only-copy": "risk-not-accepted",
        "repairable": "risk-not-accepted",
        "unproven-damage": "risk-not-accepted",
        "unproven-repair": "risk-not-accepted",
        "value-moved": "risk-not-accepted",
    },
}

# Old and new names of fields.
FIELDS: Final[dict[str, str]] = {}

# Fields that went, or came, by the end of their path: they are not compared.
GONE: Final = tuple(
    f".{path}"
    for path in (
        "anchored", "cluster_name", "consequences", "max_rate", "readable_until", "interrupted",
        "summary.doubtful_names", "summary.groups", "summary.warnings", "told.safe_to_remove",
        "told.peek", "kept.newest_mod_revision", "newest_readable.leased", "summary.by_severity", "summary.kms",
        "likely_damaged", "likely_doubts", "users_stopped",
    )
)  # fmt: skip

# Other on every run, or advice in words.
NOT_COMPARED: Final = frozenset(
    {
        "at_stake", "auditID", "cause_page", "command", "content_sha256", "do_not_restart", "endpoint", "endpoints",
        "etcdfix.io/previous", "file_modified_at", "finished_at", "follow_ups", "generated_at", "next", "next_step",
        "note", "path", "remedies", "remedies_when_gone", "report", "tool",
    }
)  # fmt: skip

# Situations that cannot be the same in both trees: these write an index of saved objects in the working tree's format.
DIFFERENT: Final = frozenset(
    {
        "test_restore_sources::test_a_saved_file_of_another_cluster[0]",
        "test_restore_sources::test_a_saved_file_of_another_cluster[1]",
        "test_restore_sources::test_a_saved_file_that_was_edited",
    }
)

# Their texts stay word by word; of other texts with a blank in them it counts only that there is one.
WORD_BY_WORD: Final = frozenset({"evidence", "statuses", "upstream_message"})


def in_full(value: Any) -> Any:
    """Return a JSON value with what the first edition said once for many findings, or in more words, as it is now."""
    match value:
        case {"summary": {"key_loss": [*losses]}, "findings": [*findings]}:
            shared = {words["id"]: words for lost in losses for words in lost.pop("shared", ())}
            value["findings"] = [_with_words(finding, shared) for finding in findings]
        case {"attempts": [*attempts]}:
            fields = ("rule", "transformer", "key_fingerprint", "result", "detail")
            value["attempts"] = [{name: attempt[name] for name in fields} for attempt in attempts]
        case {"newest_opened": {"key": key}}:
            value["newest_opened"] = key
    return value


def _with_words(finding: dict[str, Any], shared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    words = shared.get(finding.pop("shared", ""))
    if words is None:
        return finding
    said = {"message": words["message"], "evidence": [*words["evidence"], *finding["evidence"]]}
    return {"group_version_kind": None, "kms_key_id_sha256": None, "lease": None, **finding, **said}


def spelled(arguments: list[str], options: frozenset[str]) -> list[str]:
    """Return arguments in the spelling of a tree that knows these options."""
    ways = [way for pair in ARGUMENTS for way in (pair, pair[::-1])]
    done: list[str] = []
    rest = list(arguments)
    while rest:
        for given, other in ways:
            value = _fits(given, rest)
            if value is not None and not _takes(given, other, options) and _takes(other, given, options):
                done += [part.replace("*", value) for part in other]
                del rest[: len(given)]
                break
        else:
            done.append(rest.pop(0))
    return done


def _fits(given: tuple[str, ...], rest: list[str]) -> str | None:
    """Return what stands for ``*`` where the arguments begin so, "" for nothing, None where they do not."""
    value = ""
    for part, word in itertools.zip_longest(given, rest[: len(given)], fillvalue="\0"):
        start, star, _ = part.partition("*")
        if not (word.startswith(start) if star else word == part):
            return None
        value = word.removeprefix(start) if star else value
    return value


def _takes(given: tuple[str, ...], other: tuple[str, ...], options: frozenset[str]) -> bool:
    return given[0] in options if given[0].startswith("--") else other[0] not in options
