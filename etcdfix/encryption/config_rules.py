"""Every rule that the API server has for an EncryptionConfiguration.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`` (the fields) and
``…/pkg/server/options/encryptionconfig/config.go`` (rules masked by earlier ones).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import unquote_to_bytes

from etcdfix.encryption.config_file import KMS, Key, Path, Problem, Provider, Rule
from etcdfix.encryption.keyring import shown
from etcdfix.golang import gobase64
from etcdfix.golang.errors import UnknownEncoding
from etcdfix.golang.gotime import parse_duration
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ProviderType, facts_about

EVERYTHING = GroupResource("*", "*")
DEFAULT_API_VERSION = "v1"
DEFAULT_TIMEOUT = "3s"
MEMBERS = tuple(ProviderType)
_NOT_IN_THE_API = {"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}
_OLD_KEY = "Take the key from a backup of this file: a new key cannot read what the old one wrote."
_RESOURCES = (
    "Name resources by lower-case plural and group: secrets, deployments.apps, *. (core), *.apps, *.*"
)
_PROVIDERS = "Give every provider a list element of its own: - aescbc: {…}, then - identity: {}"
_KMS = "A kms provider needs apiVersion (v1 or v2), a name of its own and an endpoint such as unix:///run/kms.sock"
_MOVE = "Move to KMS v2: add it in front, have every value written again, then remove this provider."
_TWICE = "Keep the provider that your values need. Scan with each one alone to see which."
_MASKED = "Move the entry for the single resource above the wildcard: the first match must be the narrowest."

# An endpoint as Go's net/url.Parse takes it (ParseEndpoint of k8s.io/kms/pkg/util): the path of a socket alone counts.
_ESCAPE = "%[0-9A-Fa-f]{2}"
_HOST = rf"""(?:[^\x00-\x20\x7f<>"\\^`{{}}|@%/?#]|{_ESCAPE})*"""
_PLAIN_HOST = _HOST.replace("@", "@:")
_USER = r"[A-Za-z0-9._~:!$&'()*+,;=%@-]*@"
_ENDPOINT = re.compile(
    rf"""(?i:unix):
    (?: (?:// (?:{_USER})? (?: \[{_HOST} | {_PLAIN_HOST} | {_HOST}:[0-9]* ) | (?!//) )
        (?P<path> (?: / (?:[^?\#%]|{_ESCAPE})* )? )
      | (?!/) [^?\#]* )
    (?: \?[^\#]* )? (?: \# (?:[^%]|{_ESCAPE})* )?""",
    re.VERBOSE | re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def parse_group_resource(text: str) -> GroupResource:
    """Return group and resource of an entry: split at the first dot, no dot is the core group.

    Format:
        ``schema.ParseGroupResource``; ``*.`` is every resource of the core group, ``*.*`` every resource.
    """
    resource, _, group = text.partition(".")
    return GroupResource(group, resource)


def rule_name(group_resource: GroupResource) -> str:
    """Return an entry as a configuration file has it; the core wildcard is ``*.``."""
    return "*." if group_resource == ("", "*") else str(group_resource)


def narrowest_first(name: GroupResource) -> tuple[GroupResource, GroupResource, GroupResource]:
    """Return which entries can serve a resource; the first that is there does: its own, its group's, ``*.*``."""
    return name, GroupResource(name.group, "*"), EVERYTHING


def socket_path(endpoint: str) -> str | None:
    """Return the path of the socket, ``@name`` for a Linux abstract one; "" for a URL without, None for no such URL."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or _CONTROL.search(endpoint):
        return None
    path = unquote_to_bytes(match["path"] or "").decode("utf-8", "surrogateescape")
    return path[1:] if path.startswith("/@") else path


def key_bytes(secret: str) -> bytes | None:
    """Return the bytes of a secret, or None where it is not base64 to the API server."""
    try:
        return gobase64.decode(secret.encode(errors="replace"))
    except UnknownEncoding:
        return None


def given_members(provider: Provider) -> list[str]:
    """Return which members an element of a provider list has."""
    return [name for name in MEMBERS if getattr(provider, name) is not None]


def problems_of(rules: Sequence[Rule]) -> Iterator[Problem]:
    """Yield every broken rule, and what some API server refuses or ignores; that has a kind of its own."""
    if not rules:
        yield Problem(("resources",), "the list is missing or empty", _RESOURCES)
    earlier: set[GroupResource] = set()
    kms_names: set[str] = set()
    for index, rule in enumerate(rules):
        path = ("resources", index)
        entries = [entry or "" for entry in rule.resources or []]
        yield from _entries((*path, "resources"), entries, earlier)
        earlier.update(map(parse_group_resource, entries))
        if not rule.providers:
            yield Problem((*path, "providers"), "the list is missing or empty", _PROVIDERS)
        for position, provider in enumerate(rule.providers or []):
            yield from _provider((*path, "providers", position), provider, kms_names)


def _entries(path: Path, entries: Sequence[str], earlier: set[GroupResource]) -> Iterator[Problem]:
    if not entries:
        yield Problem(path, "the list is missing or empty", _RESOURCES)
    parsed = [parse_group_resource(entry) for entry in entries]
    in_group = Counter(entry.group for entry in parsed)
    if len(set(parsed)) < len(parsed):
        yield Problem(path, "a resource stands here twice", _RESOURCES)
    elif any(
        (entry == EVERYTHING and len(parsed) > 1) or (entry.resource == "*" and in_group[entry.group] > 1)
        for entry in parsed
    ):
        yield Problem(path, "a wildcard stands beside a resource that it covers", _RESOURCES)
    for position, (entry, wanted) in enumerate(zip(entries, parsed, strict=True)):
        if not entry:
            told = "has an empty resource entry, which matches nothing"
            yield Problem((*path, position), told, "Remove it.", "empty-entry")
        trouble = _entry_trouble(entry, wanted)
        if trouble:
            yield Problem((*path, position), f"{shown(entry)} {trouble}", _RESOURCES)
        for wildcard in [w for w in (GroupResource(wanted.group, "*"), EVERYTHING) if w in earlier][:1]:
            trouble = f"{shown(entry)} is masked by {shown(rule_name(wildcard))} of an earlier rule"
            yield Problem((*path, position), trouble, _MASKED)


def _entry_trouble(entry: str, parsed: GroupResource) -> str:
    if entry.lower() != entry:
        return "has capital letters"
    if entry == "*":
        return "is no wildcard: *. is the core group, *.* is everything"
    if entry in _NOT_IN_THE_API:
        return "is in no API and cannot be encrypted"
    if parsed.group == "events.k8s.io":
        return "is stored as events, without a group: write events"
    if parsed.group == "extensions":
        return "is of a group that was removed"
    if parsed.group == "*" and parsed.resource != "*":
        return "names one resource of all groups, which cannot be encrypted together"
    return ""


def _provider(path: Path, provider: Provider, kms_names: set[str]) -> Iterator[Problem]:
    members = given_members(provider)
    if len(members) != 1:
        found = " and ".join(members) or "none"
        yield Problem(path, f"one of {', '.join(MEMBERS)} is expected, found: {found}", _PROVIDERS)
    elif provider.kms is not None:
        yield from _kms((*path, "kms"), provider.kms, kms_names)
        kms_names.add(provider.kms.name or "")
    elif provider.identity is None:
        (member,) = members
        keys = getattr(provider, member).keys
        yield from _keys((*path, member, "keys"), keys or [], facts_about(member, "v1").key_sizes)


def _keys(path: Path, keys: Sequence[Key], sizes: tuple[int, ...]) -> Iterator[Problem]:
    if not keys:
        yield Problem(path, "the list is missing or empty", _OLD_KEY)
    for index, key in enumerate(keys):
        if not key.name:
            yield Problem((*path, index, "name"), "a key needs a name", "Name the key.")
        material = key_bytes(key.secret or "")
        if not key.secret:
            trouble = "a key needs a secret"
        elif material is None:
            trouble = "this is not base64"
        elif len(material) not in sizes:
            wanted = " or ".join(map(str, sizes))
            trouble = f"the key has {len(material)} bytes, where {wanted} are expected"
        else:
            continue
        yield Problem((*path, index, "secret"), trouble, _OLD_KEY)


def _kms(path: Path, kms: KMS, names: set[str]) -> Iterator[Problem]:
    version, name = kms.api_version or DEFAULT_API_VERSION, kms.name or ""
    timeout = parse_duration(DEFAULT_TIMEOUT if kms.timeout is None else kms.timeout)
    if version not in {"v1", "v2"}:
        yield Problem((*path, "apiVersion"), f"{shown(version)} is neither v1 nor v2", _KMS)
    if not name:
        yield Problem((*path, "name"), "a provider needs a name", _KMS)
    if version == "v1":
        told = "uses KMS v1, which is deprecated: API servers from 1.29 on refuse it without --feature-gates=KMSv1=true"
        yield Problem(path, told, _MOVE, "kms-v1")
        if name in names:
            told = "uses one KMS provider name twice, which an API server with "
            flag = "--encryption-provider-config-automatic-reload refuses"
            yield Problem((*path, "name"), told + flag, _TWICE, "kms-name-twice")
    if version != "v1" and ":" in name:
        yield Problem((*path, "name"), f"{shown(name)} has a colon, which only v1 takes", _KMS)
    if version != "v1" and name in names:
        yield Problem((*path, "name"), f"{shown(name)} is the name of an earlier provider too", _KMS)
    if timeout is None or timeout <= 0:
        trouble = "this is no duration such as 3s or 500ms" if timeout is None else "it must be more than 0s"
        yield Problem((*path, "timeout"), trouble, _KMS)
    if socket_path(kms.endpoint or "") is None:
        yield Problem((*path, "endpoint"), "a URL such as unix:///run/kms.sock is expected", _KMS)
    if version != "v1" and kms.cachesize is not None:
        yield Problem((*path, "cachesize"), "only v1 has it", "Remove cachesize.")
    if version == "v1" and kms.cachesize == 0:
        yield Problem((*path, "cachesize"), "it must be more than 0, or negative for no cache", _KMS)
