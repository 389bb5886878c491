"""View: the whole market as the control plane shows it (design 4.3, `GET /_emulator/state`)."""

from __future__ import annotations

from typing import Any

from . import billing
from .accounts import ApiKey
from .hosts import Host
from .pods import Pod
from .state import Cluster, State
from .wire import iso, maybe_iso, usd


def view(state: State) -> dict[str, Any]:
    """Hosts with occupancy, fabrics with measurements, pods (gone ones too), clusters, accounts, ledger, events,
    time."""
    tables = state.tables
    return {
        "now": iso(state.now),
        "started": iso(state.start),
        "settings": state.settings.model_dump(mode="json"),
        "hosts": [_host(host) for host in tables.hosts.values()],
        "fabrics": [
            {
                "id": fabric.id,
                "name": fabric.spec.name,
                "type": fabric.spec.type,
                "subnet_manager": fabric.spec.subnet_manager,
                "segment": fabric.spec.segment,
                "udp_51820": fabric.spec.udp_51820,
                "hosts": [host.id for group in fabric.groups for host in group.hosts],
                "measured": "all" if fabric.all_pairs else {"pairs": [list(pair) for pair in fabric.pairs]},
            }
            for fabric in tables.fabrics.values()
        ],
        "pods": [_pod(state, pod) for pod in tables.pods.values()],
        "clusters": [_cluster(state, cluster) for cluster in tables.clusters.values()],
        "accounts": [
            {
                "id": account.id,
                "email": account.spec.email,
                "balance": usd(account.balance),
                "price_per_hour": billing.burn(list(account.open_pods.values())),
                "keys": [_key(key) for key in tables.keys.values() if key.account is account],
            }
            for account in tables.accounts.values()
        ],
        "workspaces": [
            {"id": place.id, "name": place.name, "owner": place.owner, "members": list(place.members)}
            for place in tables.workspaces.values()
        ],
        "ledger": [row.public() for row in tables.ledger.values()],
        "billing": {
            "pods": list(state.billing),
            "price_per_hour": billing.burn(list(state.billing.values())),
        },
        "events": {
            "waiting_for_an_order": [dict(event) for event in state.armed],
            "to_come": [raw for _, _, raw in state.events[state.events_done :]],
            "failed": [dict(event) for event in state.events_failed],
        },
    }


def _host(host: Host) -> dict[str, Any]:
    return {
        "id": host.id,
        "provider": host.provider.name,
        "fabric": host.spec.fabric,
        "fabric_ip": host.fabric_ip,
        "public_ip": host.spec.public_ip,
        "gpu_model": host.spec.gpu_model,
        "gpu_count": host.gpu_count,
        "free_gpus": host.free,
        "taken_by_others": host.taken,
        "online": host.online,
        "pods": list(host.pods),
    }


def _pod(state: State, pod: Pod) -> dict[str, Any]:
    return {
        **pod.row(state.now),
        "account": pod.account,
        "gone_at": maybe_iso(pod.gone_at),
        "charged_usd": usd(pod.charged),
    }


def _cluster(state: State, cluster: Cluster) -> dict[str, Any]:
    members = state.members_of(cluster.id)
    return {
        "id": cluster.id,
        "name": cluster.name,
        "account": cluster.account,
        "fabric_id": cluster.fabric_id,
        "created_at": iso(cluster.created_at),
        "members": [pod.id for pod in members],
        "price_per_hour": billing.burn(members),
    }


def _key(key: ApiKey) -> dict[str, Any]:
    """A key without its text."""
    return {
        "id": key.id,
        "name": key.spec.name,
        "scopes": list(key.spec.scopes),
        "workspace": key.workspace.name if key.workspace else None,
        "budget": key.spec.budget.model_dump(mode="json"),
        "spent_usd": usd(key.spent),
    }
