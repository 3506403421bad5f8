"""Which encryption keys open something, and how it stands with the KMS plugins: one pass over everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.doctoring.check import fail, ok, unknown, warn
from etcdfix.encryption.envelope import transformer_name
from etcdfix.examine import Examiner
from etcdfix.examine_all import Ending, Progress, examine_all
from etcdfix.examine_jobs import Helpers
from etcdfix.remediation.preflight.noencryption import looks_enveloped
from etcdfix.report.advice.whole import PLUGIN_REMEDIES
from etcdfix.report.doctor import Check, State
from etcdfix.sources.base import Source
from etcdfix.storagekey import display, likely_prefixes
from etcdfix.text.commands import look, scan
from etcdfix.text.words import counted, fit
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.verdicts.key_loss import (
    NOT_THE_KEY,
    THE_KEY,
    KeyCounter,
    KeyCounts,
    KeyDoubt,
    doubt_by_numbers,
)
from etcdfix.verdicts.severity import keep_memory

if TYPE_CHECKING:
    from etcdfix.encryption.config import EncryptionConfiguration
    from etcdfix.encryption.kms.answers import PluginReport

MOST_TOLD: Final = 100
"""So many keys are told one by one, those with something wrong first."""

_SAMPLE: Final = 200
_KMS: Final = "kms/"
_LOCAL: Final = ("aescbc/", "aesgcm/", "secretbox/")
_RANKS: Final = (State.FAIL, State.UNKNOWN, State.WARN, State.OK)


class KeysSeen:
    """What one pass over everything leaves behind.

    Attributes:
        examined: How many keys below the storage prefix were looked at.
        enveloped: An etcd key whose value is encrypted; None where none is.
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self.counter = KeyCounter()
        self.examined = 0
        self.enveloped: bytes | None = None
        self.sample: list[bytes] = []
        self.ending = Ending()

    def add(self, found: Examination) -> None:
        """Count one value."""
        key = found.stored.key
        self.examined += key.startswith(self._prefix)
        if len(self.sample) < _SAMPLE:
            self.sample.append(key)
        if self.enveloped is None and looks_enveloped(found.stored.value):
            self.enveloped = key
        self.counter.add(found)

    def add_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count values that are plain; an encrypted one is plain only where a configuration opens it."""
        self.examined += sum(plain.count for plain in counts)
        self.counter.add_plain(counts)

    def counts(self) -> dict[KeyName, KeyCounts]:
        """Return what the values under each encryption key came to; unencrypted ones stand under one name."""
        found: dict[KeyName, KeyCounts] = {}
        for name in sorted(self.counter.names):
            counts = self.counter.of(name)
            if name.transformer != IDENTITY:
                found[name] = counts
                continue
            clear = found.setdefault(KeyName("", IDENTITY, ""), KeyCounts())
            clear.opened += counts.opened
            clear.failed += counts.failed
            clear.undetermined += counts.undetermined
        return found


def examine_keys(source: Source, examiner: Examiner, progress: Progress, helpers: Helpers | None) -> KeysSeen:
    """Examine everything, and count what each encryption key opens.

    Raises:
        SourceError: Nothing could be read.
    """
    seen = KeysSeen(examiner.layout.prefix_bytes)
    seen.ending = examine_all(
        examiner,
        source.pages(b""),
        lambda found, _view: seen.add(found),
        plain=seen.add_plain,
        helpers=helpers,
        progress=progress,
    )
    return seen


def check_keys(
    seen: KeysSeen,
    configuration: EncryptionConfiguration | None,
    problems: Iterable[str],
    *,
    prefix: str,
    limited_to: str,
    no_encryption: bool,
    past: bool = False,
) -> Iterator[Check]:
    """Yield what each encryption key opens."""
    reasons = [*problems, *seen.ending.problems, *seen.ending.lost]
    if seen.ending.ended is not None:
        reasons.append(f"{seen.ending.ended.reason} before the end")
    for reason in list(dict.fromkeys(reasons))[:MOST_TOLD]:
        yield unknown("keys", f"not everything could be looked at: {reason}", "see what can be read", scan())
    if limited_to:
        yield warn(
            "keys",
            f"permission denied outside {fit(limited_to, 200)}: only keys that start with it were looked at",
            "that is enough for Kubernetes' keys; orphans lists others too",
        )
    if not seen.examined and not reasons:
        places = " or ".join(likely_prefixes(seen.sample)[:3])
        yield fail(
            "keys",
            f"no key starts with {prefix}: nothing was examined",
            f"Kubernetes keys seem to be under {places}; give it with --etcd-prefix"
            if places
            else "check --etcd-prefix, and that this is the etcd that the API servers use",
        )
    if no_encryption and seen.enveloped is not None:
        yield fail(
            "keys",
            f"--no-encryption, and the value of {fit(display(seen.enveloped), 200)} is encrypted",
            "give --encryption-config FILE, as in the API servers' --encryption-provider-config",
        )
    warning = keep_memory(past=past)
    checks = [_check_key(name, found, configuration, warning) for name, found in seen.counts().items()]
    checks.sort(key=lambda check: _RANKS.index(check.state))
    yield from checks[:MOST_TOLD]
    if len(checks) > MOST_TOLD:
        told = f"there are {len(checks)} encryption keys or more; {MOST_TOLD} of them are told here"
        yield warn("keys", told, "see all of them", look("encryption usage", "-o", "json"))


def _check_key(
    name: KeyName, counts: KeyCounts, configuration: EncryptionConfiguration | None, warning: str
) -> Check:
    """Say what one key opens; ``warning`` stands first where an API server's memory may be all that still has it."""
    which = "see which, and why"
    if name.transformer == IDENTITY:
        what = f"unencrypted: {counted(counts.opened, 'value')} readable, {counts.failed} not"
        return warn("keys", what, which, scan()) if counts.failed else ok("keys", what)
    what = f"{_label(name)}: {counts.opened} opened, {counts.failed} failed"
    doubt = doubt_by_numbers(opened=counts.opened, failed=counts.failed, damaged=counts.damaged)
    kms = configuration is not None and name.transformer.startswith(_KMS)
    lost = doubt in THE_KEY or (counts.failed and not counts.opened and doubt not in NOT_THE_KEY)
    check = ok("keys", what)
    if doubt in THE_KEY:
        what += ": it is the encryption key or the configuration, not the objects"
        advice = "delete nothing; find the configuration that the API servers used when these were written"
        check = fail("keys", what, advice, scan())
    elif doubt is KeyDoubt.MASS_DAMAGE:
        what += ", each proven damaged: something damages values in numbers"
        advice = (
            "find out what, before you change anything: look at disks, members and whoever writes to etcd"
        )
        check = fail("keys", what, advice, scan())
    elif counts.failed:
        sure = "" if counts.opened else ", and nothing shows that the key is right"
        if not name.key and name.transformer.startswith(_LOCAL):
            sure = ", and the configuration has no key of that name"
        check = warn("keys", f"{what}{sure}", which, scan())
    elif counts.undetermined:
        what += f", {counts.undetermined} could not be told"
        advice = "give the configuration that has this key, and check that its KMS plugin answers"
        check = unknown("keys", what, advice, scan())
    return _warned(check, warning) if lost or (counts.undetermined and kms) else check


def _warned(check: Check, warning: str) -> Check:
    step = f"{warning} {check.next_step[:1].upper()}{check.next_step[1:]}"
    return msgspec.structs.replace(check, next_step=step)


def _label(name: KeyName) -> str:
    key = f" {fit(name.key, 24)}" if name.key else ""
    rule = f" for {fit(name.rule, 80)}" if name.rule else ""
    return f"{fit(name.transformer, 120) or 'an envelope that is not known'}{key}{rule}"


def check_plugins(
    configuration: EncryptionConfiguration | None,
    reports: Iterable[PluginReport] | None,
    *,
    past: bool = False,
) -> Iterator[Check]:
    """Yield how it stands with each KMS plugin."""
    if reports is None:
        for provider in configuration.kms_providers if configuration is not None else ():
            name = transformer_name("kms", provider.api_version, provider.name)
            yield unknown(
                "keys", f"KMS plugin of {name}: not asked (--no-kms)", "leave --no-kms out to ask it"
            )
        return
    for plugin in reports:
        name = transformer_name("kms", plugin.api_version, plugin.name)
        what = f"KMS plugin of {name} at {plugin.endpoint}"
        if plugin.state == "ok":
            yield ok("keys", f"{what}: answered for {counted(plugin.answered, 'data key')}")
        elif plugin.state == "not-asked":
            yield unknown(
                "keys",
                f"{what}: not asked, for no value here needs it",
                "where it writes, see that it answers: API servers need it for every value that they write",
            )
        else:
            make = warn if plugin.state == "unhealthy" else fail
            check = make("keys", f"{what}: {plugin.message or plugin.state}", PLUGIN_REMEDIES[plugin.state])
            yield _warned(check, keep_memory(past=past))
