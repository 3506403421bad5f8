"""What a run says about its KMS plugins: each trouble once, with its remedy, not once per value."""

from __future__ import annotations

from etcdfix.reports.model import KMSPluginSummary, KMSSummary

_WELL = frozenset({"ok", "not-asked"})

REMEDIES = {
    "no-socket": "start it, or say where its socket is: --kms-endpoint NAME=unix:///PATH",
    "unreachable": "see that it runs and answers there, or say where it listens: --kms-endpoint NAME=unix:///PATH",
    "socket-denied": "run as a user who may open the socket",
    "denied": "give it back its rights in the KMS, or us ours with it; the plugin's own log tells more",
    "wrong-version": "the provider's apiVersion and the plugin must fit; look at both",
    "unhealthy": "ask the plugin's own log; its refusals prove nothing until it is well",
    "gave-up": "see why it stopped answering, then scan again",
}
"""What to do about a plugin in each state but ``ok`` and ``not-asked``."""


def plugin_troubles(kms: KMSSummary | None) -> list[str]:
    """Return a sentence for each plugin that was not as it should be."""
    return [_trouble(plugin) for plugin in _troubled(kms)]


def plugin_problems(kms: KMSSummary | None) -> list[str]:
    """Return those of :func:`plugin_troubles` that leave values undetermined: an unhealthy plugin may still answer."""
    return [_trouble(plugin) for plugin in _troubled(kms) if plugin.state != "unhealthy"]


def _troubled(kms: KMSSummary | None) -> list[KMSPluginSummary]:
    return [plugin for plugin in kms.plugins if plugin.state not in _WELL] if kms is not None else []


def _trouble(plugin: KMSPluginSummary) -> str:
    return (
        f"KMS plugin of {plugin.transformer} at {plugin.endpoint}: {plugin.message or plugin.state}; "
        f"{REMEDIES[plugin.state]}"
    )
