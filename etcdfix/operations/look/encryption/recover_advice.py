"""What to know of a recovery, and what to do next: decided by its report alone."""

from __future__ import annotations

from typing import Final

from etcdfix.report.model import Remedy
from etcdfix.report.recover_model import EncryptionRecoverReport, NamedByNodes
from etcdfix.text.commands import NO_COMMAND, Command, RepeatedOptions
from etcdfix.text.safetext import quote_command
from etcdfix.text.words import counted

_ELSEWHERE: Final = (
    "servers write their configuration to the datastore again when a rotation ends, so a snapshot of the time "
    "in between lacks the new key; the live datastore, a newer snapshot or a write-ahead log (--wal DIR) may have it"
)
_RESTING: Final = frozenset({"start", "reencrypt_finished", ""})


def notes(report: EncryptionRecoverReport) -> list[str]:
    """Return what to know, one sentence each."""
    told = []
    naming = [node for node in report.nodes if node.stage != "reencrypt_request"]
    named = {node.sha256 for node in naming}
    known = {one.sha256 for one in report.configurations}
    missing = sorted(named - known)
    if missing and report.configurations:
        told.append(
            f"the Nodes name a configuration that was not found ({', '.join(missing[:3])}): {_ELSEWHERE}"
        )
    if len(named) > 1:
        told.append(
            "the Nodes name different configurations: a rotation was under way, or a server was not restarted after it"
        )
    if naming and any(one.named_by_nodes is NamedByNodes.ALL for one in report.configurations):
        told.append(
            "the configuration that all Nodes name is the one that their servers ran with at this revision; a Node "
            "writes its own annotation, so this is a hint, and no proof"
        )
    told += [
        f"{one.name} was kept in the middle of a rotation ({one.stage}): it may lack the key that came with it"
        for one in report.configurations
        if one.current and one.stage not in _RESTING
    ]
    told += [
        f"{one.name} is refused by API servers, so none ever ran with it; nothing more is told of it"
        for one in report.configurations
        if not one.usable
    ]
    told += [
        f"{one.name}: that this datastore held it is only {one.confidence}: {one.doubt}. What it opens was written "
        "with its keys; that does not show that servers run with it today"
        for one in report.configurations
        if one.doubt
    ]
    left = (report.tried or 0) - report.opened
    if left and not missing:
        told.append(
            f"{counted(left, 'value')} {'is' if left == 1 else 'are'} opened by none of them: {_ELSEWHERE}"
        )
    return told


def _with_files(report: EncryptionRecoverReport, same_again: RepeatedOptions) -> Remedy | None:
    """Return how to read with the files that were written, where today's configuration was not named."""
    if report.encryption_config is not None or not report.opened:
        return None
    helping = [one for one in report.configurations if one.opens and one.file is not None]
    whole = next((one for one in helping if one.opens == report.opened), None)
    if whole is not None and whole.file is not None:
        file = whole.file.path
        reading = tuple(file if word == "FILE" else word for word in same_again.with_configuration)
        return Remedy(
            f"Read with {whole.name}: it opens {whole.opens} of {counted(report.tried or 0, 'value')}",
            Command(text=same_again.scan_of(reading=reading)),
            "",
        )
    files = [one.file.path for one in helping if one.file is not None]
    return Remedy(
        "Join those that open something, in this order, and read with the file that this makes",
        Command(text=quote_command(["etcdfix", "encryption", "merge", *files, "--output-file", "FILE"])),
        "",
    )


def next_step(
    report: EncryptionRecoverReport, same_again: RepeatedOptions, saved: Remedy | None
) -> Remedy | None:
    """Return the one thing to do next.

    Args:
        report: Without it.
        same_again: Options that a command repeats.
        saved: What to do with the files that were written; None where none was, or none helps.
    """
    if any(one.usable for one in report.configurations):
        if any(one.file is not None for one in report.configurations):
            return _with_files(report, same_again) or saved
        return Remedy(
            "Write them to files, with which everything that only looks can read",
            Command(text=same_again.recover(report.token_files, "--save-dir", "DIR")),
            "",
        )
    states = {value.state for value in report.values}
    if "other-token" in states:
        return Remedy(
            "Name the token of that time too: server/token of another server, or the one before the token was rotated",
            Command(text=same_again.recover([*report.token_files, "FILE"])),
            "",
        )
    if "damaged" in states or "not-understood" in states:
        return Remedy("Look into an older snapshot, where the value may be whole", NO_COMMAND, "")
    if not report.values:
        return Remedy(
            "Look for the file of --encryption-provider-config on every control-plane node and in backups: k3s and "
            "RKE2 alone keep it in the datastore too, kubeadm and others do not",
            NO_COMMAND,
            "",
        )
    if not states <= {"lock"}:
        return Remedy(
            "Look into older snapshots, if anything was ever encrypted: here it was not", NO_COMMAND, ""
        )
    return Remedy(
        "Look into older snapshots: a server has locked the key here, and written nothing yet", NO_COMMAND, ""
    )
