"""What to know of a recovery, and what to do next: decided by its report alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etcdfix.report.document import Step
from etcdfix.report.recover import EncryptionRecoverReport, NamedByNodes
from etcdfix.text.commands import Part, encryption_merge, recover, scan
from etcdfix.text.words import counted

_ELSEWHERE: Final = (
    "A snapshot taken during a key rotation lacks the new key. The live datastore, a newer snapshot or a write-ahead "
    "log (--wal DIR) may have it."
)
_RESTING: Final = frozenset({"start", "reencrypt_finished", ""})


def notes(report: EncryptionRecoverReport) -> Iterator[str]:
    """Yield what to know, one or two sentences each."""
    naming = [node for node in report.nodes if node.names_a_file]
    named = {node.sha256 for node in naming}
    missing = sorted(named - {one.sha256 for one in report.configurations})
    if missing and report.configurations:
        yield f"The Nodes name a configuration that was not found ({', '.join(missing[:3])}). {_ELSEWHERE}"
    if not naming and report.configurations:
        yield "No Node names the configuration of its server, so nothing shows which one is today's."
    if len(named) > 1:
        yield (
            "The Nodes name different configurations: a rotation was under way, or a server was not restarted after it."
        )
    if any(one.named_by_nodes is NamedByNodes.ALL for one in report.configurations):
        yield (
            "The servers ran with the configuration that all Nodes name. That is a hint and no proof: a Node writes "
            "its own annotation."
        )
    for one in report.configurations:
        if one.current and one.stage not in _RESTING:
            yield f"{one.name} was kept in the middle of a rotation ({one.stage}). It may lack the newest key."
        if not one.usable:
            yield f"API servers refuse {one.name}, so no server ever ran with it."
        if one.doubt:
            yield (
                f"{one.name}: it is only {one.confidence} that this datastore held it, since {one.doubt}. Its keys "
                "wrote what it opens. That does not show that servers run with it today."
            )
    left = (report.tried or 0) - report.opened
    if left and not missing:
        yield f"No configuration opens {counted(left, 'value')}. {_ELSEWHERE}"


def next_step(report: EncryptionRecoverReport, saved: Step | None) -> Step | None:
    """Return the one thing to do next.

    ``saved`` is what to do with the files that were written; None where none was, or none helps.
    """
    if any(one.usable for one in report.configurations):
        if any(one.file is not None for one in report.configurations):
            return _with_files(report) or saved
        return Step(
            "Write them to files, with which you can read", recover(report.token_files, "--save-dir", "DIR")
        )
    states = {value.state for value in report.values}
    if "other-token" in states:
        return Step(
            "Name the token of that time too: server/token of another server, or the one before the token was rotated",
            recover([*report.token_files, "FILE"]),
        )
    if "damaged" in states or "not-understood" in states:
        return Step("Look into an older snapshot, where the value may be whole")
    if not report.values:
        return Step(
            "Look for the file of --encryption-provider-config on every control-plane node and in backups. Only k3s "
            "and RKE2 keep it in the datastore too, kubeadm does not"
        )
    if not states <= {"lock"}:
        return Step(
            "Look into older snapshots, if anything was ever encrypted. Encryption was not enabled here"
        )
    return Step("Look into older snapshots. A server has locked the key here and has written nothing yet")


def _with_files(report: EncryptionRecoverReport) -> Step | None:
    """Return how to read with the files that were written, where today's configuration was not named."""
    if report.encryption_config is not None or not report.opened:
        return None
    helping = [(one, one.file.path) for one in report.configurations if one.opens and one.file is not None]
    for one, path in helping:
        if one.opens == report.opened:
            opens = f"it opens {one.opens} of {counted(report.tried or 0, 'value')}"
            return Step(
                f"Read with {one.name}: {opens}", scan(reading=("--encryption-config", path, Part.RELEASE))
            )
    return Step(
        "Merge the files that open something, in this order, and read with the new file",
        encryption_merge([path for _, path in helping]),
    )
