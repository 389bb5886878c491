"""The inputs of a cluster: one parser per property, every bad one named.

Whole numbers travel as floats, so 2.0 is 2; 2.5, True and "2" are no whole numbers (a text is never read as one).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .accounts import fault_of_account_name
from .errors import InvalidInputs
from .ssh_key import key_identity, normalise_public_key
from .values import UNKNOWN, has_unknown, parse_ttl

MOST_NODES = 254
"""The overlay `10.42.0.0/24` holds no more (contract 7.2)."""
_LARGEST_EXACT = 2**53
"""Whole numbers beyond this do not survive the engine's floats."""
_MOST_USD = 1e9
"""USD an hour; more is no price, and neither are infinity and NaN."""
DEFAULT_READY_TIMEOUT = 900
DEFAULT_DELETE_TIMEOUT = 900

Parser = Callable[[Any], Any]


# Parsers: a value in, the value to keep out; ValueError with a reason that reads on from "property: ".


def _whole(lowest: int, highest: int) -> Parser:
    def parse(value: Any) -> int:
        number = value
        if isinstance(number, (int, float)) and abs(number) > _LARGEST_EXACT:
            raise ValueError(f"is {_shown(value)}: that is too large")
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if type(number) is not int:
            raise ValueError(f"is {_shown(value)}: a whole number is needed")
        if not lowest <= number <= highest:
            raise ValueError(f"is {number}: it must be from {lowest} to {highest}")
        return number

    return parse


def _nodes(value: Any) -> int:
    number: int = _whole(-_LARGEST_EXACT, _LARGEST_EXACT)(value)
    if number < 2:
        raise ValueError(f"is {number}: a cluster has at least 2 nodes")
    if number > MOST_NODES:
        raise ValueError(f"is {number}: the overlay 10.42.0.0/24 has room for {MOST_NODES} nodes")
    return number


def _price(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MOST_USD:
        raise ValueError(f"is {_shown(value)}: a number (USD an hour for the whole cluster) is needed")
    if value <= 0:
        raise ValueError(f"is {value:g}: it must be above 0")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is {_shown(value)}: true or false is needed")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {_shown(value)}: a text is needed")
    if not value.strip():
        raise ValueError("is empty: leave it out or give a value")
    if not value.isprintable():
        raise ValueError("holds a line break or another character that cannot be printed")
    return value.strip()


def _name(value: Any) -> str:
    """Names that later commands cannot take for something else (contract 5.2)."""
    name = _text(value)
    if name != value or "," in name or name.isdigit() or name.lower() == "all" or len(name) > 128:
        raise ValueError(
            f"is {_shown(value)}: at most 128 characters, no comma, no blank at the ends, not all digits, not 'all'"
        )
    return name


def _fabric_type(value: Any) -> str:
    kind = _text(value).lower()
    if kind not in ("infiniband", "roce"):
        raise ValueError(f"is {_shown(value)}: 'infiniband' or 'roce' is needed")
    return kind


def _ttl(value: Any) -> str:
    text = _text(value)
    parse_ttl(text)
    return text


def _on_start_failure(value: Any) -> str:
    if value not in ("delete", "keep"):
        raise ValueError(f"is {_shown(value)}: 'delete' or 'keep' is needed")
    return str(value)


def _list_of(parse: Parser, identity: Callable[[Any], Any]) -> Parser:
    """A list, each entry parsed and named by its place when bad; unknown entries stay."""

    def parse_all(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            # Not shown: what was given may be a private key.
            raise ValueError(f"is {'a single text' if isinstance(value, str) else 'no list'}: a list is needed")
        kept, seen, faults = [], set(), []
        for place, item in enumerate(value):
            if item is UNKNOWN:
                kept.append(item)
                continue
            try:
                entry = parse(item)
            except ValueError as error:
                faults.append(f"entry {place} {error}")
                continue
            if identity(entry) not in seen:
                seen.add(identity(entry))
                kept.append(entry)
        if faults:
            raise ValueError("; ".join(faults))
        return kept

    return parse_all


def _machine(value: Any) -> str:
    return _text(value)


def _public_key(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text: give a line such as `ssh-ed25519 AAAA… name`")
    return normalise_public_key(value)


def _account(value: Any) -> str:
    account = _text(value)
    if fault := fault_of_account_name(account):
        raise ValueError(fault)
    return account


def _as_it_is(value: Any) -> Any:
    return value


READY_OPTIONS: dict[str, Parser] = {
    "wait_for_ready": _flag,
    "ready_timeout": _whole(1, 86400),
    "on_start_failure": _on_start_failure,
    "delete_timeout": _whole(1, 86400),
}
"""What a person sets for the readiness resource."""

_OPTIONS: dict[str, Parser] = {
    "nodes": _nodes,
    "gpu_type": _text,
    "gpus_per_node": _whole(1, 1024),
    "fabric_type": _fabric_type,
    "fabric_id": _text,
    "country": _text,
    "max_price_per_hour": _price,
    "machines": _list_of(_machine, _as_it_is),
    "ssh_public_keys": _list_of(_public_key, key_identity),
    "ttl": _ttl,
    "name": _name,
    "template_id": _text,
    "ports_per_node": _whole(1, 65535),
    "volume_encryption": _flag,
    "backups": _flag,
    "adopt": _text,
    "account": _account,
    **READY_OPTIONS,
}
"""What a person sets on the cluster. The wait's options too: that resource is checked only once machines bill."""

_INTERNAL: dict[str, Parser] = {
    "owner": _text,
    "resource": _text,
    "idempotency_key": _text,
    "planned": _as_it_is,
    "adopted": _text,
    "holder": _as_it_is,
}
"""What `LiumCluster` and `check` add."""

READY_INTERNAL: dict[str, Parser] = {
    "cluster_id": _text,
    "name": _text,
    "nodes": _nodes,
    "adopted": _as_it_is,
    "members": _as_it_is,
    "unscheduled": _as_it_is,
    "price_per_hour": _as_it_is,
    "ordered_at": _text,
    "account": _text,
}

SELECTORS = (
    "nodes",
    "gpu_type",
    "gpus_per_node",
    "fabric_type",
    "fabric_id",
    "country",
    "max_price_per_hour",
    "machines",
)
"""What an offer, or a running cluster, has to satisfy."""


@dataclass(frozen=True)
class Selectors:
    """What the machines have to be. None means: anything."""

    nodes: int
    gpu_type: str | None = None
    gpus_per_node: int | None = None
    fabric_type: str | None = None
    fabric_id: str | None = None
    country: str | None = None
    max_price_per_hour: float | None = None
    machines: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ClusterArgs:
    """Inputs that are known and right, defaults filled in."""

    selectors: Selectors
    owner: str
    ssh_public_keys: tuple[str, ...] = ()
    ttl: timedelta | None = None
    name: str | None = None
    idempotency_key: str | None = None
    template_id: str | None = None
    ports_per_node: int | None = None
    volume_encryption: bool = True
    backups: bool = True
    delete_timeout: float = DEFAULT_DELETE_TIMEOUT
    adopt: str | None = None
    account: str | None = None


Failures = list[tuple[str, str]]


def parse_cluster_inputs(props: Mapping[str, Any]) -> tuple[dict[str, Any], Failures]:
    """The inputs to keep, and what is wrong with the others, by property. Unknown values pass as they are."""
    kept, failures = parse_properties(props, _OPTIONS, _INTERNAL)
    if "nodes" not in props or props["nodes"] is None:
        failures.append(("nodes", "is missing: the number of machines, at least 2"))
    failures += _between_fields(kept, props)
    return kept, failures


def parse_properties(
    props: Mapping[str, Any], options: Mapping[str, Parser], internal: Mapping[str, Parser]
) -> tuple[dict[str, Any], Failures]:
    """`props` through the parsers: what to keep, and each bad or unknown property with its reason."""
    kept: dict[str, Any] = {}
    failures: Failures = []
    parsers = {**options, **internal}
    for name, value in props.items():
        if name.startswith("__") or value is None:
            continue
        if name not in parsers:
            failures.append((name, _unknown_name(name, options)))
        elif value is UNKNOWN:
            kept[name] = value
        else:
            try:
                kept[name] = parsers[name](value)
            except ValueError as error:
                failures.append((name, str(error)))
    return kept, failures


def _between_fields(kept: Mapping[str, Any], props: Mapping[str, Any]) -> Failures:
    failures = _between_selectors(kept)
    no_key = props.get("ssh_public_keys") is None or kept.get("ssh_public_keys") == []
    if no_key and kept.get("adopt") is None:
        failures.append(("ssh_public_keys", "is missing: at least one public key, or nobody could log in"))
    return failures


def _between_selectors(kept: Mapping[str, Any]) -> Failures:
    nodes, machines = kept.get("nodes"), kept.get("machines")
    if isinstance(nodes, int) and machines is not None and not has_unknown(machines) and len(machines) != nodes:
        return [("machines", f"names {len(machines)} machines for {nodes} nodes: name as many as `nodes` says")]
    return []


def cluster_args(props: Mapping[str, Any]) -> ClusterArgs:
    """Checked inputs as a value. Raises `InvalidInputs`, also for what is still unknown."""
    kept, failures = parse_cluster_inputs(props)
    failures += [(name, "is not known yet") for name, value in kept.items() if has_unknown(value)]
    if failures:
        raise InvalidInputs(failures)
    return ClusterArgs(
        selectors=selectors_of(kept),
        owner=kept.get("owner", ""),
        ssh_public_keys=tuple(kept.get("ssh_public_keys", ())),
        ttl=parse_ttl(kept["ttl"]) if "ttl" in kept else None,
        name=kept.get("name"),
        idempotency_key=kept.get("idempotency_key"),
        template_id=kept.get("template_id"),
        ports_per_node=kept.get("ports_per_node"),
        volume_encryption=kept.get("volume_encryption", True),
        backups=kept.get("backups", True),
        delete_timeout=kept.get("delete_timeout", DEFAULT_DELETE_TIMEOUT),
        adopt=kept.get("adopt"),
        account=kept.get("account"),
    )


def selectors_of(kept: Mapping[str, Any]) -> Selectors:
    """The selectors among inputs that `parse_cluster_inputs` has kept and that are known."""
    machines = kept.get("machines")
    return Selectors(
        nodes=kept["nodes"],
        gpu_type=kept.get("gpu_type"),
        gpus_per_node=kept.get("gpus_per_node"),
        fabric_type=kept.get("fabric_type"),
        fabric_id=kept.get("fabric_id"),
        country=kept.get("country"),
        max_price_per_hour=kept.get("max_price_per_hour"),
        machines=None if machines is None else tuple(machines),
    )


def parse_selectors(props: Mapping[str, Any]) -> tuple[Selectors | None, Failures]:
    """Selectors alone, for a look at the offers; None when one is wrong."""
    kept, failures = parse_properties(props, {name: _OPTIONS[name] for name in SELECTORS}, {})
    failures += _between_selectors(kept)
    return (None if failures else selectors_of(kept)), failures


def _unknown_name(name: str, options: Mapping[str, Parser]) -> str:
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    near = near or [option for option in options if name.lower() in option or option in name.lower()][:1]
    return "is not a property of this resource" + (f": did you mean {near[0]}?" if near else "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
