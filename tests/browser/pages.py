"""Pages of a scan that is not run: very many findings, and names of somebody who means harm."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import msgspec

from etcdfix.model import Evidence, Outcome, ServerBehaviour
from etcdfix.report.finding import finding_from
from etcdfix.report.formats.html_scan import HTMLReporter
from etcdfix.report.model import Finding, LostKey, Remedy, SharedWords
from etcdfix.text.commands import Command
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from tests.support.examinations import examination
from tests.support.pages import HOSTILE, INVISIBLE
from tests.support.reports import conclusion, count, header, new_tally, source

LARGE = 10_000
LOST = "aescbc/v1/2024-11"
_LOST_OF_LARGE = 8_600
_NAMESPACES = ("shop", "pay", "infra", "search", "mail", "kube-system", "monitoring", "build")
_RESOURCES = ("pods", "configmaps", "deployments", "serviceaccounts", "services/specs", "replicasets")
_OTHERS = (
    (Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED, "the protobuf body breaks at byte {}, in metadata.labels[0]"),
    (Outcome.DECODE_FAILURE, Cause.VALUE_TRUNCATED, "a length in the protobuf body runs past the end of the value"),
    (Outcome.DECRYPT_FAILURE, Cause.CIPHERTEXT_DAMAGED, "the ciphertext is damaged behind byte {}"),
    (Outcome.INCONSISTENT, Cause.RAW_JSON_INVALID, "metadata.managedFields[0].fieldsV1: byte {} is not UTF-8"),
    (Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, "needs the plugin of kms/v2/vault, which did not answer"),
)  # fmt: skip


def large_page(path: Path, number: int = LARGE) -> Path:
    """Write the page of a cluster that lost a key, and has damage beside it."""
    chance = random.Random(18)
    message = f"written under {LOST}; no key of that name is configured"
    lost = [
        examination(
            f"/registry/secrets/{chance.choice(_NAMESPACES)}/{chance.choice(('db', 'tls', 'token', 'pull'))}-{at:05}",
            transformer=LOST,
            rule="secrets",
            mod_revision=4_200_000 + chance.randrange(900_000),
            message=message,
            evidence=(Evidence("decrypt with aescbc/v1", "failed", "no matching key was found"),
                      Evidence("look without tag or padding", "noise", "7 attempts")),
        )
        for at in range(number * _LOST_OF_LARGE // LARGE)
    ]  # fmt: skip
    others = []
    for at in range(len(lost), number):
        outcome, cause, words = chance.choice(_OTHERS)
        undetermined = outcome is Outcome.UNDETERMINED
        name = f"web-{at:05}-{chance.randrange(1 << 32):08x}"
        others.append(
            examination(
                f"/registry/{chance.choice(_RESOURCES)}/{chance.choice(_NAMESPACES)}/{name}",
                outcome=outcome,
                cause=cause,
                apiserver=ServerBehaviour.NOT_ASKED if undetermined else ServerBehaviour.CORRUPT,
                transformer="kms/v2/vault" if undetermined else "identity",
                mod_revision=5_000_000 + chance.randrange(3_000_000),
                message=words.format(chance.randrange(900)),
                upstream_message="",
                evidence=(Evidence("decode", "failed", f"at byte {chance.randrange(900)}"),),
            )
        )
    return write_page(path, [*lost, *others], losing=LOST)


def write_page(path: Path, found: Iterable[Examination], *, losing: str = "") -> Path:
    """Write the page of some examinations, those under one key as of a lost one."""
    tally = new_tally()
    summary_of_lost: list[Finding] = []
    with path.open("wb") as stream:
        reporter = HTMLReporter(stream)
        reporter.begin(header(source=source(file_modified_at="2026-01-02T03:00:00Z")))
        shared = None
        for one in sorted(found, key=lambda one: one.stored.key):
            count(tally, one)
            finding = finding_from(one)
            if one.transformer != losing:
                reporter.finding(finding)
                continue
            shared = shared or SharedWords("ab12", finding.cause or "", finding.message, finding.evidence)
            short = msgspec.structs.replace(finding, message="", evidence=[], remedies=[], shared=shared.id)
            reporter.finding_of_lost_key(short, shared)
            summary_of_lost.append(finding)
        summary = tally.summary()
        summary.severity = "breaks-now"
        summary.at_stake = "BREAKS-NOW: LISTs of secrets and 6 more types fail."
        summary.do_not_restart = "DO NOT RESTART AN API SERVER: its memory still holds the objects."
        summary.next = Remedy(
            "Find the original key in a backup, add it to a COPY of the file, try that",
            Command(text="etcdfix scan --snapshot snapshot.db --encryption-config FILE secrets"),
            "Under its old name and with its old bytes, behind the key that writes today.",
        )
        if shared is not None:
            revisions = [finding.mod_revision for finding in summary_of_lost]
            summary.key_loss = [
                LostKey(losing, "secrets", ["secrets"], None, len(revisions), len(revisions), min(revisions),
                        max(revisions), [summary.next], [shared]),
            ]  # fmt: skip
        undetermined = bool(summary.undetermined)
        reasons = [f"undetermined: {summary.undetermined} keys"] if undetermined else []
        reporter.end(conclusion(summary, complete=not undetermined, incomplete_reasons=reasons))
    return path


def hostile_page(path: Path) -> Path:
    """Write a page in which every text that a stranger may have chosen tries to get out of its place."""
    keys = [
        HOSTILE,
        INVISIBLE,
        "a'b\"c`d",
        "javascript:alert(1)",
        "<!--<script>",
        "]]>",
        "{{7*7}}{%x%}",
        "\0\0",
    ]
    found = [
        examination(
            f"/registry/secrets/{HOSTILE}/{key}".encode(),
            message=f"holds {key}",
            upstream_message=key,
            transformer=f"aescbc/v1/{key}",
            evidence=(Evidence(key, key, HOSTILE + INVISIBLE),),
        )
        for key in keys
    ]
    return write_page(path, found)
