"""Every rule that the API server has for an EncryptionConfiguration.

Sources: ``k8s.io/apiserver/pkg/apis/apiserver/validation/validation_encryption.go`` (field rules, in its
order) and ``…/pkg/server/options/encryptionconfig/config.go`` (rules masked by earlier ones).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from etcdfix.encryption.config_decode import RawKey, RawKMS, RawProvider, RawRule
from etcdfix.encryption.config_values import format_duration, parse_base64, parse_endpoint, shown_endpoint
from etcdfix.encryption.wording import shown, shown_bare, shown_list
from etcdfix.golang.goquote import withheld
from etcdfix.model import GroupResource

AES_KEY_SIZES = (16, 24, 32)
SECRETBOX_KEY_SIZES = (32,)
EVERYTHING = GroupResource("*", "*")

_NOT_IN_THE_API = {"apiserveripinfo", "serviceipallocations", "servicenodeportallocations"}
_NO_MEMBER = '{"AESGCM":null,"AESCBC":null,"Secretbox":null,"Identity":null,"KMS":null}'
_OLD_KEY = "Take the key from a backup of this file: a new key cannot read what the old one wrote."
_RESOURCES = (
    "Name resources by lower-case plural and group: secrets, deployments.apps, *. (core), *.apps, *.*"
)
_PROVIDERS = "Give every provider a list element of its own: - aescbc: {…}, then - identity: {}"
_KMS = "A kms provider needs apiVersion (v1 or v2), a name of its own and an endpoint such as unix:///run/kms.sock"


class Problem(NamedTuple):
    """One broken rule: the API server's message, and the next step."""

    message: str
    hint: str


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


def masked_rule(rules: Iterable[RawRule]) -> str:
    """Return the API server's message about the first entry that an earlier wildcard hides, or ""."""
    seen: set[GroupResource] = set()
    for rule in rules:
        for entry in rule.resources:
            wanted = parse_group_resource(entry)
            for wildcard in (GroupResource(wanted.group, "*"), EVERYTHING):
                if wildcard in seen:
                    name = shown(rule_name(wanted))
                    return f"resource {name} is masked by earlier rule {shown(rule_name(wildcard))}"
            seen.add(wanted)
    return ""


def validate(rules: Sequence[RawRule]) -> Iterator[Problem]:
    """Yield every broken rule, in the API server's order.

    A name used by two KMS v1 providers is let through, as by a server without automatic reload.
    """
    if not rules:
        yield _required("resources", "at least one resources is required", _RESOURCES)
    kms_names: set[str] = set()
    for index, rule in enumerate(rules):
        entries, providers = f"resources[{index}].resources", f"resources[{index}].providers"
        if not rule.resources:
            yield _required(entries, f"at least one {entries} is required", _RESOURCES)
        yield from _overlaps(entries, rule.resources)
        for position, entry in enumerate(rule.resources):
            problem = _entry_problem(entry)
            if problem:
                yield _invalid(f"{entries}[{position}]", shown(entry), problem, _RESOURCES)
        if not rule.providers:
            yield _required(providers, f"at least one {providers} is required", _PROVIDERS)
        for position, provider in enumerate(rule.providers):
            yield from _provider(f"{providers}[{position}]", provider, kms_names)


def _required(path: str, detail: str, hint: str) -> Problem:
    return Problem(f"{path}: Required value: {detail}", hint)


def _invalid(path: str, value: str, detail: str, hint: str) -> Problem:
    return Problem(f"{path}: Invalid value: {value}: {detail}", hint)


def _overlaps(path: str, entries: Sequence[str]) -> Iterator[Problem]:
    parsed = [parse_group_resource(entry) for entry in entries]
    if len(set(parsed)) < len(parsed):
        detail = "the same resource cannot be specified multiple times"
        yield _invalid(path, shown_list(entries), detail, _RESOURCES)
    in_group = Counter(entry.group for entry in parsed)
    if any(
        (entry == EVERYTHING and len(parsed) > 1) or (entry.resource == "*" and in_group[entry.group] > 1)
        for entry in parsed
    ):
        detail = (
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed "
            "as they will be masked"
        )
        yield _invalid(path, shown_list(entries), detail, _RESOURCES)


def _entry_problem(entry: str) -> str:
    if entry.lower() != entry:
        return "resource name should not contain capital letters"
    if entry == "*":
        return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    if entry in _NOT_IN_THE_API:
        return "resources which do not have REST API/s cannot be encrypted"
    group, resource = parse_group_resource(entry)
    if group == "events.k8s.io":
        return (
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. "
            "Use 'events' instead in the config file"
        )
    if group == "extensions":
        return "'extensions' group has been removed and cannot be used for encryption"
    if group == "*" and resource != "*":
        return "encrypting the same resource across groups is not supported"
    return ""


def _provider(path: str, provider: RawProvider, kms_names: set[str]) -> Iterator[Problem]:
    if not provider.members:
        detail = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        yield _invalid(path, _NO_MEMBER, detail, _PROVIDERS)
    if len(provider.members) > 1:
        # Upstream prints the element here, keys included.
        detail = (
            "more than one provider specified in a single element, should split into different list elements"
        )
        yield _invalid(path, withheld(provider.size), detail, _PROVIDERS)
    if provider.kms is not None:
        yield from _kms(f"{path}.kms", provider.kms, kms_names)
        kms_names.add(provider.kms.name)
        return
    for member, sizes in (
        ("aesgcm", AES_KEY_SIZES),
        ("aescbc", AES_KEY_SIZES),
        ("secretbox", SECRETBOX_KEY_SIZES),
    ):
        if member in provider.keys:
            yield from _keys(f"{path}.{member}.keys", provider.keys[member], sizes)
            return


def _keys(path: str, keys: Sequence[RawKey], sizes: tuple[int, ...]) -> Iterator[Problem]:
    if not keys:
        yield _required(path, "at least one keys is required", _OLD_KEY)
    for index, key in enumerate(keys):
        if not key.name:
            yield _required(f"{path}[{index}].name", "name is a mandatory field for a key", "Name the key.")
        secret = f"{path}[{index}].secret"
        if not key.secret:
            yield _required(secret, "secret is a mandatory field for a key", _OLD_KEY)
            continue
        material = parse_base64(key.secret)
        if material is None:
            yield _invalid(secret, '"REDACTED"', "secrets must be base64 encoded", _OLD_KEY)
        elif len(material) not in sizes:
            wanted = " ".join(map(str, sizes))
            detail = f"secret is not of the expected length, got {len(material)}, expected one of [{wanted}]"
            yield _invalid(secret, '"REDACTED"', detail, _OLD_KEY)


def _kms(path: str, kms: RawKMS, names: set[str]) -> Iterator[Problem]:
    name, bare = shown(kms.name), shown_bare(kms.name)
    if not kms.name:
        yield _required(f"{path}.name", "name is a mandatory field for a provider", _KMS)
    if kms.api_version != "v1" and ":" in kms.name:
        detail = f"invalid KMS provider name {bare}, must not contain ':'"
        yield _invalid(f"{path}.name", name, detail, _KMS)
    if kms.api_version != "v1" and kms.name in names:
        detail = f"duplicate KMS provider name {bare}, names must be unique"
        yield _invalid(f"{path}.name", name, detail, _KMS)
    if kms.timeout <= 0:
        value = f'"{format_duration(kms.timeout)}"'
        yield _invalid(f"{path}.timeout", value, "timeout should be a positive value", _KMS)
    problem = _endpoint_problem(kms.endpoint)
    if problem:
        yield _invalid(f"{path}.endpoint", shown_endpoint(kms.endpoint), problem, _KMS)
    if kms.api_version != "v1" and kms.cache_size is not None:
        yield _invalid(
            f"{path}.cachesize", str(kms.cache_size), "cachesize is not supported in v2", "Remove cachesize."
        )
    if kms.api_version == "v1" and kms.cache_size == 0:
        detail = "cachesize should be a positive value, or negative to disable"
        yield _invalid(f"{path}.cachesize", "0", detail, _KMS)
    if kms.api_version not in {"v1", "v2"}:
        # The word apiVersion where a version belongs is upstream's.
        detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
        yield _invalid(f"{path}.apiVersion", shown(kms.api_version), detail, _KMS)


def _endpoint_problem(endpoint: str) -> str:
    if not endpoint:
        return "endpoint is a mandatory field for a kms"
    try:
        scheme = parse_endpoint(endpoint).scheme
    except ValueError as error:
        return f"invalid endpoint for kms provider, error: {error}"
    return (
        ""
        if scheme == "unix"
        else f"unsupported scheme {shown(scheme)} for KMS provider, only unix is supported"
    )
