"""The members of a cluster as the listing shows them, and the state that is made of them (contract 3.3, 5.4, 7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pulumi_lium.api import Pod

from .values import usd

SCHEMA_VERSION = 1
"""Shape of the state. `delete` and `read` understand every older one."""

RENTED = "rented"
"""Every member is listed and none is lost: the order's own status, which does not change while the nodes boot."""
STARTING = "starting"
RUNNING = "running"
DEGRADED = "degraded"
"""A member is lost, or will not run again by itself."""
REMOVING = "removing"


def members_of(pods: Iterable[Pod], cluster_id: str) -> list[Pod]:
    """The cluster's members by rank; the listing itself has no order."""
    return by_rank(pod for pod in pods if pod.cluster_id == cluster_id)


def by_rank(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.rank is None, pod.rank or 0, pod.id))


def overlay_ip(pod: Pod) -> str | None:
    """The member's address in the overlay; by the rule `10.42.0.<rank+1>` where the row lacks it."""
    if pod.overlay_ip:
        return pod.overlay_ip
    return None if pod.rank is None else f"10.42.0.{pod.rank + 1}"


def gpu_count(pod: Pod) -> int | None:
    """GPUs that a member has: its machine's, as whole machines are rented (contract 7.2)."""
    return pod.node.gpu_count if pod.node else pod.gpu_count


def member_row(pod: Pod) -> dict[str, Any]:
    """What is known of a member from the order on and stays."""
    node = pod.node
    return {
        "rank": pod.rank,
        "pod_id": pod.id,
        "machine_id": node.id if node else None,
        "overlay_ip": overlay_ip(pod),
        "gpu_model": node.gpu_model if node else None,
        "gpu_count": gpu_count(pod),
        "country": node.country if node else None,
        "country_code": node.country_code if node else None,
        "price_per_hour": pod.price_per_hour,
    }


def node_info(pod: Pod) -> dict[str, Any]:
    """One entry of the output `nodes_info`."""
    row = member_row(pod)
    return {
        **{name: row[name] for name in ("rank", "pod_id", "machine_id", "overlay_ip")},
        "status": pod.status,
        "public_host": pod.ssh_host or (pod.node.public_ip if pod.node else None) or None,
        "ssh_port": pod.ssh_port,
        "ssh_command": pod.ssh_command or None,
        "gpu_type": pod.node.gpu_type if pod.node else None,
        "gpus": row["gpu_count"],
        "price_per_hour": row["price_per_hour"],
    }


def launch_outputs(rows: Sequence[Mapping[str, Any]], nodes: int) -> dict[str, Any]:
    """What a job is started with: addresses, hostfile, torchrun arguments. Of the members in `rows`, by rank."""
    addresses = [row["overlay_ip"] for row in rows if row.get("overlay_ip")]
    master = next((row["overlay_ip"] for row in rows if row.get("rank") == 0), None)
    slots = [f"{row['overlay_ip']} slots={row.get('gpu_count') or 1}\n" for row in rows if row.get("overlay_ip")]
    return {
        "master_addr": master,
        "node_addrs": addresses,
        "hostfile": "".join(slots),
        "torchrun_args": [
            f"--nnodes {nodes} --nproc_per_node {row.get('gpu_count') or 1}"
            f" --node_rank {row['rank']} --master_addr {master}"
            for row in rows
            if row.get("rank") is not None
        ],
    }


def total_price(prices: Sequence[float | None]) -> float | None:
    """USD an hour in all; None when one price is not known, or there is none."""
    known = [price for price in prices if price is not None]
    return round(sum(known), 6) if known and len(known) == len(prices) else None


def lost_ranks(known: Sequence[Mapping[str, Any]], nodes: int | None, members: Sequence[Pod]) -> list[str]:
    """What is wrong with the members, each named by rank: not listed any more, or never to run again.

    `known` are the rows of the state (an old state may have none, then `nodes` alone tells that some are missing).
    """
    listed = {pod.id for pod in members}
    lost = [
        f"rank {row.get('rank')} (pod {row['pod_id']}) is not listed any more"
        for row in known
        if row.get("pod_id") and row["pod_id"] not in listed
    ]
    lost += [f"{name_member(pod)} is {pod.status}" for pod in members if pod.is_terminal]
    missing = (nodes or 0) - len(members) - sum("is not listed" in text for text in lost)
    if missing > 0:
        ranks = {pod.rank for pod in members} | {row.get("rank") for row in known}
        absent = [str(rank) for rank in range(nodes or 0) if rank not in ranks]
        lost.append(f"rank {', '.join(absent) or '?'} is not listed")
    return lost


def order_status(lost: Sequence[str], members: Sequence[Pod]) -> str:
    """Of the order: `rented`, `degraded` or `removing`."""
    if members and all(pod.status == "DELETING" for pod in members):
        return REMOVING
    return DEGRADED if lost else RENTED


def node_status(lost: Sequence[str], members: Sequence[Pod]) -> str:
    """Of the nodes: `starting`, `running`, `degraded` or `removing`."""
    status = order_status(lost, members)
    if status != RENTED:
        return status
    return RUNNING if all(pod.is_ready for pod in members) else STARTING


def name_member(pod: Pod) -> str:
    """`rank 1 (pod 9b1e…)`, so that a person finds it in the console."""
    return f"{'a member' if pod.rank is None else f'rank {pod.rank}'} (pod {pod.id})"


def may_bill(pod: Pod) -> bool:
    """Whether it bills, or may do so before it is gone."""
    return pod.is_billable or not pod.is_terminal or pod.status == "DELETING"


def still_billing(members: Sequence[Pod], price: float | None = None) -> str:
    """One sentence: what stays, and what of it may bill per hour; `price` is what the state says of all of it."""
    named = ", ".join(
        f"{name_member(pod)} {pod.status}" + (f" at {usd(pod.price_per_hour)}" if may_bill(pod) else "")
        for pod in members
    )
    billing = [pod.price_per_hour for pod in members if may_bill(pod)]
    if members and not billing:
        return f"Nothing of it bills, but it is still listed: {named}."
    total = total_price(billing)
    return f"May still bill {usd(price if total is None else total)}" + (f": {named}." if named else ".")
