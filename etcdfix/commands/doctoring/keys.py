"""Which encryption keys open something, and how it stands with the KMS plugins: one pass over everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.commands.opening import nothing_examined
from etcdfix.encryption.envelope import transformer_name
from etcdfix.examine.all import Ending, Progress, examine_all
from etcdfix.examine.first_pass import FirstPass
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.key_loss import THE_KEY, KeyDoubt
from etcdfix.model.providers import IDENTITY
from etcdfix.report.advice.whole import PLUGIN_REMEDIES, doubt_in
from etcdfix.report.doctor import WORST_FIRST, Check, fail, ok, unknown, warn
from etcdfix.report.model import Summary, TransformerSummary
from etcdfix.report.tally import Tally
from etcdfix.sources.base import Source, has_keys
from etcdfix.text.commands import look, scan
from etcdfix.text.words import counted, fit

if TYPE_CHECKING:
    from etcdfix.encryption.kms.answers import PluginReport

MOST_TOLD: Final = 100
"""So many keys are told one by one, those with something wrong first."""

_ENVELOPED: Final = frozenset({Cause.NO_CONFIGURATION, Cause.RESOURCE_NOT_CONFIGURED, Cause.UNKNOWN_ENVELOPE})


def count_keys(
    source: Source, examiner: Examiner, reading: Reading, progress: Progress, first_pass: FirstPass | None
) -> tuple[Summary, Ending]:
    """Examine everything, and count what each encryption key opens."""
    tally = Tally(past=reading.run.of_the_past)
    ending = examine_all(
        examiner,
        source.pages(b""),
        tally.add,
        plain=tally.add_plain,
        first_pass=first_pass,
        progress=progress,
    )
    return tally.summary(), ending


def check_source(source: Source, reading: Reading, summary: Summary, ending: Ending) -> Iterator[Check]:
    """Yield whether everything could be read, and whether it is what the options say of it."""
    reasons = [*source.problems, *ending.problems, *ending.lost]
    for reason in list(dict.fromkeys(reasons))[:MOST_TOLD]:
        yield unknown(f"not everything could be looked at: {reason}", "see what can be read", scan())
    if limited_to := source.describe().limited_to:
        what = (
            f"permission denied outside {fit(limited_to, 200)}: only keys that start with it were looked at"
        )
        yield warn(what, "that is enough for Kubernetes' keys")
    seen = summary.keys > summary.not_objects or reasons or ending.ended is not None
    if not seen and not has_keys(source, reading.layout):
        nothing = nothing_examined(source, reading.layout)
        yield fail(nothing.message, nothing.hint)


def check_keys(summary: Summary, *, no_encryption: bool = False) -> Iterator[Check]:
    """Yield what each encryption key opens, those with something wrong first."""
    sealed = next((one for one in summary.by_cause if one.cause in _ENVELOPED), None)
    if no_encryption and sealed is not None:
        what = f"--no-encryption, and the value of {fit(sealed.example, 200)} is encrypted"
        yield fail(what, "give --encryption-config FILE, as in the API servers' --encryption-provider-config")
        return
    checks = sorted(map(_check_key, summary.by_transformer), key=lambda one: WORST_FIRST.index(one.state))
    yield from checks[:MOST_TOLD]
    if len(checks) > MOST_TOLD:
        told = f"there are {len(checks)} encryption keys or more; {MOST_TOLD} of them are told here"
        yield warn(told, "see all of them", look("encryption usage", "-o", "json"))


def _check_key(key: TransformerSummary) -> Check:
    opened, doubt = key.keys - key.failures - key.undetermined, doubt_in(key)
    if key.transformer == IDENTITY:
        what = f"unencrypted: {counted(opened, 'value')} readable, {key.failures} not"
        return warn(what, "see which, and why", scan()) if key.failures else ok(what)
    of_rule = f" for {fit(', '.join(key.resources), 80)}" if key.resources else ""
    name = " ".join(filter(None, (fit(key.transformer, 120), fit(key.key_fingerprint or "", 24))))
    what = f"{name}{of_rule}: {opened} opened, {key.failures} failed"
    if doubt in THE_KEY:
        what += ": it is the encryption key or the configuration, not the objects"
        return fail(what, "delete nothing; find the configuration that these were written under", scan())
    if doubt is KeyDoubt.MASS_DAMAGE:
        what += ", each proven damaged: something damages values in numbers"
        return fail(what, "change nothing yet; look at disks, members and whoever writes to etcd", scan())
    if key.failures:
        sure = "" if opened else ", and nothing shows that the key is right"
        return warn(f"{what}{sure}", "see which, and why", scan())
    if key.undetermined:
        what += f", {key.undetermined} could not be told"
        return unknown(what, "give the configuration that has this key; its KMS plugin has to answer", scan())
    return ok(what)


def check_plugins(reading: Reading, reports: Iterable[PluginReport] | None) -> Iterator[Check]:
    """Yield how it stands with each KMS plugin; without reports none was to be asked."""
    if reports is None:
        for provider in reading.configuration.kms_providers if reading.configuration is not None else ():
            name = transformer_name("kms", provider.api_version, provider.name)
            yield unknown(f"KMS plugin of {name}: not asked (--no-kms)", "leave --no-kms out to ask it")
        return
    for plugin in reports:
        name = transformer_name("kms", plugin.api_version, plugin.name)
        what = f"KMS plugin of {name} at {plugin.endpoint}"
        if plugin.state == "ok":
            yield ok(f"{what}: answered for {counted(plugin.answered, 'data key')}")
        elif plugin.state == "not-asked":
            advice = "if it is the write provider, check that it answers: API servers need it for every write"
            yield unknown(f"{what}: not asked: no value here needs it", advice)
        else:
            make = warn if plugin.state == "unhealthy" else fail
            yield make(f"{what}: {plugin.message or plugin.state}", PLUGIN_REMEDIES[plugin.state])
