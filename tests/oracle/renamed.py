"""What has another name in one of two trees, and what only one of them has."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {("explain", "--impact"): ("impact", "impact")}
"""Words of a command in the newer tree; in the older one the command, and the field that is what it told."""

# Fields that went, or came, by the end of their path: they are not compared.
GONE: Final = tuple(
    f".{path}"
    for path in (
        "anchored", "cluster_name", "consequences", "max_rate", "readable_until", "interrupted",
        "summary.doubtful_names", "summary.readable_revisions", "summary.readable_revisions_not_sought",
        "summary.groups", "summary.warnings", "told.safe_to_remove", "told.peek",
        "kept.newest_mod_revision", "newest_readable.leased", "summary.by_severity", "kms.keys",
        "likely_damaged", "likely_doubts", "users_stopped", "summary.kms", "told.copies", "told.damage_field",
        "told.damage_offset", "told.history", "told.impact", "told.kept", "told.places", "told.repair",
        "told.shows", "first_mod_revision", "last_mod_revision", "siblings[].keys", "newest_opened",
        "after_finalizers", "already_terminating", "propagation", "with_finalizers", "other_finalizers",
        "protection_finalizers", "last_transition", "deletion.waits", "number", "told.no_repair",
        "removed", "behind", "behind_count", "template", "in_pod_template", "finished",
        *(f"stages[{stage}].resources" for stage in ("unreadable", "pods", "rest", "namespace")),
        "told.apiVersion", "told.complete", "told.encryption_config", "told.finding", "told.kind",
        "told.source", "told.ruled_out", "reached_end", "when_served", "later", "warnings", "undetermined", "cycles",
        "stripped", "undetermined_elsewhere", "unreadable_elsewhere", "secret.type", "contents[].aggregated",
        "contents[].served", "contents[].unreadable", "groups[].group", "groups[].resource", "users[].role",
        "users[].stops",
        "missing_apis", "elsewhere", "elsewhere_count", "unavailable_apis", "unknown_apis", "left_behind",
        "stages[namespace]",
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

# Their texts stay word by word; of other texts with a blank in them it counts only that there is one.
WORD_BY_WORD: Final = frozenset({"evidence", "statuses", "upstream_message"})
