"""Scenario: what a market holds at its start (design 4.3), read from YAML or JSON with errors that name the place."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

Scope = Literal["read", "rent", "manage", "billing"]
# Bounded so that sums of money stay exact and times stay within the calendar.
Money = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Funds = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
# YAML reads a bare 0x3 as a number; the subnet manager's id is text on the wire.
SubnetManager = Annotated[Text, BeforeValidator(lambda value: hex(value) if type(value) is int else value)]


class ScenarioError(ValueError):
    """A scenario that cannot be used; `problems` holds one line per fault, each beginning with its path."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("scenario: " + "; ".join(problems))


class Part(BaseModel):
    """Base of all parts: read-only, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Boot(Part):
    """How long a pod stays PENDING: seconds between the two bounds, drawn per pod from the seed."""

    seconds: tuple[Seconds, Seconds] = (20.0, 40.0)

    @field_validator("seconds")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] > value[1]:
            raise ValueError("the first number must not be above the second")
        return value


class MarketSettings(Part):
    """Switches of the service.

    `cancel_in_flight_creates`: a delete also reaches a pod that still starts (contract 7.5.5); off, it answers 409
    (7.5.6).
    `idempotency`: the service advertises and honours Idempotency-Key. `delete_seconds`: how long a pod stays DELETING.
    `cluster_feature`: the feature flag of cluster orders (7.2.9). `rate_limit`: 60 pod listings a minute (1.5).
    """

    cancel_in_flight_creates: bool = True
    idempotency: bool = True
    delete_seconds: Seconds = 5.0
    cluster_feature: bool = True
    rate_limit: bool = True


class Budget(Part):
    """What a key may spend, USD, per UTC day, per calendar month, and in all (contract 2.2, 402)."""

    daily: Money | None = None
    monthly: Money | None = None
    max: Money | None = None


class Key(Part):
    """An API key, fit for a header. `workspace`: it acts inside that one; `billing` stands alone among the scopes."""

    key: Annotated[str, Field(pattern=r"^[!-~]+$")]
    id: Text | None = None
    name: Text | None = None
    scopes: list[Scope] = Field(default=["read", "rent", "manage"], min_length=1)
    workspace: Text | None = None
    budget: Budget = Budget()

    @field_validator("scopes")
    @classmethod
    def _billing_alone(cls, value: list[Scope]) -> list[Scope]:
        if "billing" in value and len(value) > 1:
            raise ValueError("billing must be the only scope of its key")
        return value


class Account(Part):
    """An account, its balance in USD and its keys."""

    id: Text
    email: Text | None = None
    balance: Funds = 0.0
    keys: list[Key] = Field(min_length=1)


class Template(Part):
    """A template; without `owner` (an account's id) everyone sees it."""

    name: Text
    docker_image: Text
    docker_image_tag: Text = "latest"
    id: Text | None = None
    category: Text = "PYTORCH"
    status: Text = "VERIFY_SUCCESS"
    owner: Text | None = None
    supports_volume_encryption: bool = True
    internal_ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=lambda: [22])
    volumes: list[str] = Field(default_factory=lambda: ["/root"])


class Location(Part):
    """Where a provider's rack stands."""

    country: Text = "United States"
    country_code: Annotated[str, Field(pattern="^[A-Z]{2}$")] = "US"
    city: Text | None = None


Pair = tuple[Text, Text, Annotated[float, Field(allow_inf_nan=False)] | None]


class MeasuredPairs(Part):
    """RDMA rates per pair of host ids, in Gb/s; null is a measurement that failed (contract 7.1.5)."""

    pairs: list[Pair]


class Fabric(Part):
    """One fabric of a provider: InfiniBand is known by its subnet manager, RoCE by its IPv4 segment (contract
    7.1.5)."""

    name: Text
    type: Literal["infiniband", "roce"]
    subnet_manager: SubnetManager | None = None
    segment: Text | None = None
    link_rate: Text | None = None
    udp_51820: Literal["open", "closed"] = "open"
    measured: Literal["all", "none"] | MeasuredPairs = "none"

    @model_validator(mode="after")
    def _known_by(self) -> Fabric:
        if self.type == "infiniband" and (self.subnet_manager is None or self.segment is not None):
            raise ValueError("an infiniband fabric needs subnet_manager, and has no segment")
        if self.type == "roce":
            if self.segment is None or self.subnet_manager is not None:
                raise ValueError("a roce fabric needs segment, and has no subnet_manager")
            try:
                ipaddress.IPv4Network(self.segment)
            except ValueError as error:
                raise ValueError(f"segment must be an IPv4 network such as 10.20.30.0/24: {error}") from None
        return self

    @property
    def identity(self) -> str:
        """What tells the fabric from the provider's others."""
        return self.segment or self.subnet_manager or self.name


class Host(Part):
    """A machine. `free: false` or `free_gpus` less than `gpu_count` means that others rent it, whole or in part.

    `fabric_ip` is its address on a RoCE segment (default: the next free one, from .11 on); `min_gpu_count_for_rental`
    null means that it rents whole only (contract 3.1).
    """

    id: Text
    gpu_model: Text
    gpu_count: Annotated[int, Field(ge=1, le=64)]
    price_per_gpu: Money
    public_ip: Text
    fabric: Text | None = None
    fabric_ip: Text | None = None
    free: bool = True
    free_gpus: Annotated[int, Field(ge=0)] | None = None
    min_gpu_count_for_rental: Annotated[int, Field(ge=1)] | None = None
    tier: Literal["spot", "secure"] = "secure"
    driver: Text = "570.86.10"
    max_cuda_version: float = 12.8
    nvlink: bool = True

    @model_validator(mode="after")
    def _counts(self) -> Host:
        if self.free_gpus is not None and self.free_gpus > self.gpu_count:
            raise ValueError(f"free_gpus {self.free_gpus} is more than gpu_count {self.gpu_count}")
        if self.min_gpu_count_for_rental is not None and self.min_gpu_count_for_rental > self.gpu_count:
            raise ValueError("min_gpu_count_for_rental is more than gpu_count")
        return self


class Provider(Part):
    """A provider's rack: one place, its fabrics and hosts."""

    name: Text
    location: Location = Location()
    fabrics: list[Fabric] = Field(default_factory=list)
    hosts: list[Host] = Field(default_factory=list)


class Scenario(Part):
    """Everything a market starts with; `events` are raw here and checked by `events.parse_event`."""

    seed: int = 0
    boot: Boot = Boot()
    settings: MarketSettings = MarketSettings()
    accounts: list[Account] = Field(min_length=1)
    templates: list[Template] = Field(default_factory=list)
    providers: list[Provider] = Field(default_factory=list)
    events: list[dict[str, Any]] = Field(default_factory=list)


def builtin_scenario() -> str:
    """The text of the built-in scenario."""
    return files("pulumi_lium.emulator").joinpath("builtin.yaml").read_text(encoding="utf-8")


def load_scenario(source: str | Mapping[str, Any] | None = None) -> Scenario:
    """Read a scenario from YAML or JSON text, from its parsed form, or (None) the built-in one.

    Raises ScenarioError, which names the path of every fault, unknown keys included.
    """
    data: Any = builtin_scenario() if source is None else source
    if isinstance(data, str):
        try:
            data = yaml.safe_load(data)
        except yaml.YAMLError as error:
            raise ScenarioError([f"not YAML: {' '.join(str(error).split())}"]) from None
        except RecursionError:
            raise ScenarioError(["is nested too deeply"]) from None
    if not isinstance(data, Mapping):
        raise ScenarioError([f"the top must be a mapping with accounts and providers, not {type(data).__name__}"])
    try:
        scenario = Scenario.model_validate(dict(data))
    except ValidationError as error:
        raise ScenarioError([_problem(fault) for fault in error.errors(include_url=False)]) from None
    problems = [*_unlike(scenario), *_bad_events(scenario)]
    if problems:
        raise ScenarioError(problems)
    return scenario


def _path(parts: tuple[int | str, ...]) -> str:
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part not in ("MeasuredPairs", "literal['all','none']"):
            text += f".{part}" if text else str(part)
    return text


def _problem(fault: Any) -> str:
    """One fault of pydantic's as a line: path, what is wrong, what would be right."""
    loc = tuple(fault["loc"])
    if fault["type"] == "extra_forbidden":
        hint = difflib.get_close_matches(str(loc[-1]), _names_at(loc[:-1]), n=1)
        return f"{_path(loc)}: unknown key" + (f", did you mean {hint[0]}?" if hint else "")
    if fault["type"] == "missing":
        return f"{_path(loc)}: is missing"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{_path(loc)}: {message[0].lower()}{message[1:]}"


def _names_at(loc: tuple[int | str, ...]) -> list[str]:
    """The field names of the part at `loc`."""
    here: type[Part] = Scenario
    for part in loc:
        field = here.model_fields.get(str(part))
        if field is not None:
            here = next((kind for kind in _kinds(field.annotation) if issubclass(kind, Part)), Part)
    return list(here.model_fields)


def _kinds(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _unlike(scenario: Scenario) -> Iterator[str]:
    """Faults that lie between parts: names used twice, references to nothing."""
    yield from _twice((f"accounts[{i}].id", a.id) for i, a in enumerate(scenario.accounts))
    keys = [(f"accounts[{i}].keys[{j}]", k) for i, a in enumerate(scenario.accounts) for j, k in enumerate(a.keys)]
    yield from _twice(((f"{path}.key", key.key) for path, key in keys), show=False)
    yield from _twice((f"{path}.id", key.id) for path, key in keys if key.id)
    yield from _twice((f"templates[{i}].id", t.id) for i, t in enumerate(scenario.templates) if t.id)
    accounts = {account.id for account in scenario.accounts}
    for i, template in enumerate(scenario.templates):
        if template.owner is not None and template.owner not in accounts:
            yield f"templates[{i}].owner: no account {template.owner!r}"
    yield from _twice((f"providers[{i}].name", p.name) for i, p in enumerate(scenario.providers))
    yield from _twice(
        (f"providers[{i}].hosts[{j}].id", h.id) for i, p in enumerate(scenario.providers) for j, h in enumerate(p.hosts)
    )
    for i, provider in enumerate(scenario.providers):
        yield from _unlike_provider(f"providers[{i}]", provider)


def _unlike_provider(path: str, provider: Provider) -> Iterator[str]:
    fabrics = {fabric.name: fabric for fabric in provider.fabrics}
    yield from _twice((f"{path}.fabrics[{i}].name", f.name) for i, f in enumerate(provider.fabrics))
    yield from _twice((f"{path}.fabrics[{i}]", f"{f.type} {f.identity}") for i, f in enumerate(provider.fabrics))
    addresses: list[tuple[str, str]] = []
    for j, host in enumerate(provider.hosts):
        where = f"{path}.hosts[{j}]"
        if host.fabric is None:
            if host.fabric_ip is not None:
                yield f"{where}.fabric_ip: the host names no fabric"
            continue
        fabric = fabrics.get(host.fabric)
        if fabric is None:
            yield f"{where}.fabric: provider {provider.name!r} has no fabric {host.fabric!r}"
        elif host.fabric_ip is not None and fabric.segment is not None:
            addresses.append((f"{where}.fabric_ip", host.fabric_ip))
            try:
                inside = ipaddress.IPv4Address(host.fabric_ip) in ipaddress.IPv4Network(fabric.segment)
            except ValueError:
                inside = False
            if not inside:
                yield f"{where}.fabric_ip: {host.fabric_ip} is no address of {fabric.segment}"
    yield from _twice(iter(addresses))
    for i, fabric in enumerate(provider.fabrics):
        if isinstance(fabric.measured, MeasuredPairs):
            members = {host.id for host in provider.hosts if host.fabric == fabric.name}
            for k, (a, b, _) in enumerate(fabric.measured.pairs):
                for name in (a, b):
                    if name not in members:
                        yield f"{path}.fabrics[{i}].measured.pairs[{k}]: no host {name!r} on this fabric"
                if a == b:
                    yield f"{path}.fabrics[{i}].measured.pairs[{k}]: a pair needs two hosts"


def _twice(named: Iterator[tuple[str, str | None]], *, show: bool = True) -> Iterator[str]:
    first: dict[str | None, str] = {}
    for path, value in named:
        if value in first:
            yield f"{path}: {repr(value) + ' ' if show else ''}is used already at {first[value]}"
        first.setdefault(value, path)


def _bad_events(scenario: Scenario) -> Iterator[str]:
    from .events import EventError, check_names, parse_event  # events.py names the market's parts, which name scenarios

    hosts = {host.id for provider in scenario.providers for host in provider.hosts}
    accounts = {account.id for account in scenario.accounts}
    fabrics = {
        name
        for provider in scenario.providers
        for fabric in provider.fabrics
        for name in (fabric.name, f"{provider.name}/{fabric.name}")
    }
    for i, raw in enumerate(scenario.events):
        try:
            check_names(parse_event(raw, scheduled=True), hosts, accounts, fabrics)
        except EventError as error:
            yield f"events[{i}]{error.field and '.' + error.field}: {error.reason}"
