"""The one table of the service's routes (contract 4): for the HTTP server, the in-process transport and the OpenAPI.

Static routes stand before those with parameters (contract 10.9); the first that matches serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import answers, bodies

if TYPE_CHECKING:
    from .market import Market


@dataclass(frozen=True, slots=True)
class Call:
    """A request that found its route: the caller's key, path and query parameters, and the checked body."""

    key: str | None
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]
    idempotency_key: str | None = None
    lose_outcome: bool = False
    """The service commits and forgets its answer: what a write that broke off half-way leaves behind (contract 4.8)."""


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is plain text, not JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Route:
    """One route: how it is matched, what it takes and answers, and which verb of the market serves it.

    `errors` are the statuses beyond those every route may answer; `keyless` routes answer without an API key too;
    `uuid` says that the path's id must be one.
    """

    method: str
    path: str
    summary: str
    serve: Callable[[Market, Call], Any]
    answers: Any
    tag: str
    body: type[bodies.Body] | None = None
    body_required: bool = True
    query: tuple[bodies.QueryParameter, ...] = ()
    errors: tuple[int, ...] = ()
    keyless: bool = False
    idempotent: bool = False
    uuid: bool = False
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.removeprefix("/").split("/")))

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """The path parameters, or None where the path is another."""
        if len(segments) != len(self.segments):
            return None
        parameters: dict[str, str] = {}
        for mine, theirs in zip(self.segments, segments, strict=True):
            if mine.startswith("{"):
                if not theirs:
                    return None
                parameters[mine[1:-1]] = theirs
            elif mine != theirs:
                return None
        return parameters


PODS = Route(
    "GET",
    "/pods",
    "The pods of the key's account or workspace, in no fixed order",
    lambda market, call: market.list_pods(call.key, call.query),
    list[answers.Pod],
    "pods",
    query=(bodies.QueryParameter("api_key_id", "string", "only pods that this key rented"),),
)

OFFERS = Route(
    "GET",
    "/executors/infiniband-clusters",
    "Fabrics on sale now, RoCE too",
    lambda market, call: market.offers(call.key),
    list[answers.Offer],
    "clusters",
)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/version",
        "Version and features",
        lambda market, call: market.version(),
        answers.Version,
        "service",
        keyless=True,
    ),
    Route("GET", "/users/me", "The key's user", lambda market, call: market.me(call.key), answers.User, "service"),
    Route(
        "GET",
        "/keys/scopes",
        "Scopes that a key can have",
        lambda market, call: market.key_scopes(),
        list[answers.KeyScope],
        "service",
        keyless=True,
    ),
    Route(
        "GET",
        "/workspaces",
        "Workspaces of the key",
        lambda market, call: market.workspaces(call.key),
        list[answers.Workspace],
        "workspaces",
    ),
    Route(
        "GET",
        "/workspaces/{id}",
        "One workspace",
        lambda market, call: market.get_workspace(call.key, call.path["id"]),
        answers.Workspace,
        "workspaces",
        errors=(404,),
    ),
    Route(
        "GET",
        "/workspaces/{id}/members",
        "Members of a workspace",
        lambda market, call: market.workspace_members(call.key, call.path["id"]),
        list[answers.WorkspaceMember],
        "workspaces",
        errors=(404,),
    ),
    Route(
        "GET",
        "/ssh-keys",
        "Registered SSH keys",
        lambda market, call: market.ssh_keys(call.key),
        list[answers.SshKey],
        "ssh keys",
    ),
    Route(
        "POST",
        "/ssh-keys",
        "Register an SSH key; a key already there is answered as it is",
        lambda market, call: market.create_ssh_key(call.key, call.body),
        answers.SshKey,
        "ssh keys",
        body=bodies.SshKeyBody,
    ),
    Route(
        "GET",
        "/templates",
        "Templates the caller may see",
        lambda market, call: market.templates(call.key),
        list[answers.Template],
        "templates",
        keyless=True,
    ),
    Route(
        "GET",
        "/templates/{id}",
        "One template",
        lambda market, call: market.get_template(call.key, call.path["id"]),
        answers.Template,
        "templates",
        errors=(404, 422),
        keyless=True,
        uuid=True,
    ),
    Route(
        "POST",
        "/templates",
        "Create a template",
        lambda market, call: market.create_template(call.key, call.body),
        answers.Template,
        "templates",
        body=bodies.TemplateBody,
    ),
    Route(
        "PUT",
        "/templates/{id}",
        "Change a template",
        lambda market, call: market.update_template(call.key, call.path["id"], call.body),
        answers.Template,
        "templates",
        body=bodies.TemplateChange,
        errors=(404,),
    ),
    Route(
        "GET",
        "/machines",
        "GPU models on sale",
        lambda market, call: market.machines(),
        list[answers.Machine],
        "executors",
        keyless=True,
    ),
    Route(
        "GET",
        "/executors",
        "Hosts that can be rented as ordinary pods",
        lambda market, call: market.executors(call.query),
        list[answers.NodeRow],
        "executors",
        query=bodies.EXECUTOR_FILTERS,
        keyless=True,
        errors=(422,),
    ),
    OFFERS,
    Route(
        "GET",
        "/executors/default-docker-image",
        "Image that `up` takes without a template",
        lambda market, call: market.default_docker_images(call.key, call.query),
        list[answers.DockerImage],
        "executors",
        query=(
            bodies.QueryParameter("gpu_model", "string", "full GPU product name"),
            bodies.QueryParameter("driver_version", "string", "NVIDIA driver"),
        ),
    ),
    Route(
        "GET",
        "/executors/deployment-estimate",
        "How long a start will take",
        lambda market, call: market.deployment_estimate(call.key, call.query),
        answers.DeploymentEstimate,
        "executors",
        query=(
            bodies.QueryParameter("executor_id", "string", "host"),
            bodies.QueryParameter("template_id", "string", "template"),
        ),
        errors=(404, 422),
    ),
    Route(
        "POST",
        "/executors/cluster/rent",
        "Order a cluster: all nodes or none",
        lambda market, call: market.order_cluster(
            call.key, call.body, call.idempotency_key, lose_outcome=call.lose_outcome
        ),
        answers.ClusterOrderAnswer,
        "clusters",
        body=bodies.ClusterOrderBody,
        errors=(402, 404, 409),
        idempotent=True,
    ),
    Route(
        "GET",
        "/executors/{id}/quote",
        "What a rent would cost",
        lambda market, call: market.quote(call.key, call.path["id"], call.query),
        answers.Quote,
        "executors",
        query=bodies.QUOTE_PARAMETERS,
        errors=(404, 422),
    ),
    Route(
        "POST",
        "/executors/{id}/rent",
        "Rent one host",
        lambda market, call: market.rent_host(
            call.key, call.path["id"], call.body, call.idempotency_key, lose_outcome=call.lose_outcome
        ),
        answers.RentAnswer,
        "executors",
        body=bodies.RentBody,
        errors=(400, 402, 404, 409),
        idempotent=True,
    ),
    PODS,
    Route(
        "GET",
        "/pods/{id}",
        "One pod, with its last event",
        lambda market, call: market.get_pod(call.key, call.path["id"]),
        answers.Pod,
        "pods",
        errors=(404,),
    ),
    Route(
        "GET",
        "/pods/{id}/events",
        "What happened to a pod, oldest first; deleted pods too",
        lambda market, call: market.pod_events(call.key, call.path["id"]),
        list[answers.PodEvent],
        "pods",
        errors=(404,),
    ),
    Route(
        "GET",
        "/pods/{id}/logs",
        "The pod's log",
        lambda market, call: Text(market.pod_logs(call.key, call.path["id"])),
        Text,
        "pods",
        query=(
            bodies.QueryParameter("tail", "string", "lines"),
            bodies.QueryParameter("follow", "string", "true or false; the log is answered once either way"),
        ),
        errors=(404,),
    ),
    Route(
        "DELETE",
        "/pods/{id}",
        "Delete one pod",
        lambda market, call: market.delete_pod(call.key, call.path["id"]),
        answers.Done,
        "pods",
        body=bodies.PodFeedback,
        body_required=False,
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/pods/{id}/schedule-removal",
        "Set the time at which a pod is deleted",
        lambda market, call: market.schedule_removal(call.key, call.path["id"], call.body),
        answers.ScheduledRemoval,
        "pods",
        body=bodies.ScheduleRemovalBody,
        errors=(400, 402, 404, 409),
    ),
    Route(
        "DELETE",
        "/pods/{id}/schedule-removal",
        "Forget a pod's time of removal",
        lambda market, call: market.cancel_removal(call.key, call.path["id"]),
        answers.Done,
        "pods",
        errors=(400, 402, 404, 409),
    ),
    Route(
        "POST",
        "/pods/{id}/reboot",
        "Start a pod's container anew",
        lambda market, call: market.reboot_pod(call.key, call.path["id"]),
        answers.Done,
        "pods",
        body=bodies.RebootBody,
        body_required=False,
        errors=(400, 404),
    ),
    Route(
        "DELETE",
        "/clusters/{id}",
        "Delete every member of a cluster; one row each",
        lambda market, call: market.delete_cluster(call.key, call.path["id"]),
        answers.ClusterRemoval,
        "clusters",
        errors=(404, 409),
    ),
    Route(
        "GET",
        "/volumes",
        "Volumes; the emulator has none",
        lambda market, call: market.volumes(call.key),
        list[answers.Done],
        "service",
    ),
)


def find(method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]] | tuple[None, tuple[str, ...]]:
    """The route of a request and its path parameters; else None and the methods that the path has."""
    allowed: list[str] = []
    for route in ROUTES:
        parameters = route.match(segments)
        if parameters is None:
            continue
        if route.method == method:
            return route, parameters
        allowed.append(route.method)
    return None, tuple(sorted(set(allowed)))
