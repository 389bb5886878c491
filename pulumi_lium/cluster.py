"""`LiumCluster`: what a program imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi.dynamic import Resource

from .dynamic import LiumClusterProvider, LiumClusterReadyProvider


class LiumCluster(Resource, module="lium", name="Cluster"):
    """A multi-node GPU cluster on Lium: whole machines of one InfiniBand or RoCE fabric, ordered as one.

    The order and the wait are two resources, so that a slow or failed start never loses the cluster: this one has the
    cluster in the state within seconds, its child `<name>-ready` waits until every node runs.

    A change replaces the cluster only if the running one no longer satisfies the request; then the old one is deleted
    first. `ttl` changes in place. Every output is known after `up`; in a preview of a new cluster they are unknown.
    """

    nodes: pulumi.Output[int]
    cluster_id: pulumi.Output[str]
    """The service's id of the cluster; also the resource's id."""
    name: pulumi.Output[str]
    """The name of every pod."""
    status: pulumi.Output[str]
    """`starting`, `running`, `degraded` (a node is lost or failed) or `removing`."""
    fabric_id: pulumi.Output[str | None]
    """None for an adopted cluster: the service does not tell it."""
    fabric_type: pulumi.Output[str | None]
    """`infiniband` or `roce`; None for an adopted cluster."""
    gpu_type: pulumi.Output[str]
    """Short name: `H100`."""
    gpus_per_node: pulumi.Output[int]
    nodes_info: pulumi.Output[list[dict[str, Any]]]
    """Per rank: `rank`, `pod_id`, `machine_id`, `overlay_ip`, `status`, `public_host`, `ssh_port`, `ssh_command`,
    `gpu_type`, `gpus`, `price_per_hour` (USD)."""
    master_addr: pulumi.Output[str]
    """Overlay address of rank 0: `10.42.0.1`."""
    node_addrs: pulumi.Output[list[str]]
    """Overlay addresses by rank."""
    hostfile: pulumi.Output[str]
    """A line `<overlay address> slots=<GPUs>` per node."""
    torchrun_args: pulumi.Output[list[str]]
    """Arguments for `torchrun`, one text per rank; add a fresh `--master_port` for each run."""
    price_per_hour: pulumi.Output[float]
    """USD an hour for the whole cluster."""
    expires_at: pulumi.Output[str | None]
    """When `ttl` ends it (ISO 8601, UTC); None without."""
    ordered_at: pulumi.Output[str]
    """When it was ordered (ISO 8601, UTC); `ttl` counts from then."""
    members: pulumi.Output[list[dict[str, Any]]]
    """What is known of the nodes from the order on; programs read `nodes_info`."""
    adopted: pulumi.Output[bool | None]
    """True for a cluster that was taken over by `adopt`: a failed start does not delete it."""
    unscheduled: pulumi.Output[list[str]]
    """Members that have no removal time though `ttl` asks for one."""

    def __init__(
        self,
        resource_name: str,
        *,
        nodes: pulumi.Input[int],
        ssh_public_keys: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None,
        gpu_type: pulumi.Input[str] | None = None,
        gpus_per_node: pulumi.Input[int] | None = None,
        fabric_type: pulumi.Input[str] | None = None,
        country: pulumi.Input[str] | None = None,
        max_price_per_hour: pulumi.Input[float] | None = None,
        fabric_id: pulumi.Input[str] | None = None,
        machines: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None,
        ttl: pulumi.Input[str] | None = None,
        name: pulumi.Input[str] | None = None,
        template_id: pulumi.Input[str] | None = None,
        ports_per_node: pulumi.Input[int] | None = None,
        volume_encryption: pulumi.Input[bool] | None = None,
        backups: pulumi.Input[bool] | None = None,
        on_start_failure: pulumi.Input[str] | None = None,
        wait_for_ready: pulumi.Input[bool] | None = None,
        ready_timeout: pulumi.Input[int] | None = None,
        delete_timeout: pulumi.Input[int] | None = None,
        adopt: pulumi.Input[str] | None = None,
        account: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Selectors that are left out make no demand; the cheapest machines that satisfy the others are taken.

        :param nodes: Whole machines, 2 to 254. A text is refused, also one that looks like a number.
        :param ssh_public_keys: OpenSSH lines; at least one, unless `adopt` is set.
        :param gpu_type: Short or full name: `H100`, `NVIDIA H100 80GB HBM3`.
        :param gpus_per_node: GPUs of each machine.
        :param fabric_type: `infiniband` or `roce`.
        :param country: Name or two-letter code.
        :param max_price_per_hour: USD for the whole cluster.
        :param fabric_id: Exactly this fabric.
        :param machines: Exactly these machines, by executor id, in rank order.
        :param ttl: The service removes the cluster this long after the order: `90m`, `8h`, `2d`.
        :param name: Exact name of every pod; by default one that no other order has.
        :param template_id: By default the newest cluster image's.
        :param ports_per_node: Ports to expose on each node.
        :param volume_encryption: Default true.
        :param backups: Default true.
        :param on_start_failure: `delete` (default) or `keep`: what happens to a cluster whose node fails to start.
        :param wait_for_ready: Default true: `up` ends when every node runs.
        :param ready_timeout: Seconds to wait for that, 900 by default.
        :param delete_timeout: Seconds to try to delete the cluster, 900 by default.
        :param adopt: Id of a running cluster to take over, changing nothing: the import of this resource.
        :param account: Name of a configured account (`lium:apiKey-NAME`); no secret.
        """
        if opts is not None and opts.import_ is not None:
            raise ValueError(
                f"A cluster cannot be imported by the engine: write LiumCluster({resource_name!r},"
                f" adopt={opts.import_!r}, …) instead; it takes the running cluster over and changes nothing."
            )
        inputs = {
            "nodes": nodes,
            "gpu_type": gpu_type,
            "gpus_per_node": gpus_per_node,
            "fabric_type": fabric_type,
            "country": country,
            "max_price_per_hour": max_price_per_hour,
            "fabric_id": fabric_id,
            "machines": machines,
            "ssh_public_keys": ssh_public_keys,
            "ttl": ttl,
            "name": name,
            "template_id": template_id,
            "ports_per_node": ports_per_node,
            "volume_encryption": volume_encryption,
            "backups": backups,
            "delete_timeout": delete_timeout,
            "adopt": adopt,
            "account": account,
            # Given to the order too, though only the wait uses them: a bad one is refused before anything is rented.
            "wait_for_ready": wait_for_ready,
            "ready_timeout": ready_timeout,
            "on_start_failure": on_start_failure,
            "resource": resource_name,
            "owner": _owner(resource_name, opts),
        }
        super().__init__(
            LiumClusterProvider(),
            resource_name,
            {**dict.fromkeys(_OUTPUTS), **inputs},
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True)),
        )
        ready = _ClusterReady(
            f"{resource_name}-ready",
            {
                # The id, not the output `cluster_id`: it stays known while a preview shows an update in place.
                "cluster_id": self.id,
                "name": self.name,
                # As the engine decided them, not as the program says: `ignore_changes` and transformations count.
                "nodes": self.nodes,
                "adopted": self.adopted,
                "members": self.members,
                "unscheduled": self.unscheduled,
                "price_per_hour": self.price_per_hour,
                "ordered_at": self.ordered_at,
                "account": account,
                "wait_for_ready": wait_for_ready,
                "ready_timeout": ready_timeout,
                "on_start_failure": on_start_failure,
                "delete_timeout": delete_timeout,
            },
            pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        # How to enter the nodes is known only when they run, and a program reads it when they do.
        self.nodes_info = ready.nodes_info
        self.status = ready.status


class _ClusterReady(Resource, module="lium", name="ClusterReady"):
    """The wait for the nodes of one cluster; it may fail or be cut off without losing the cluster."""

    nodes_info: pulumi.Output[list[dict[str, Any]]]
    status: pulumi.Output[str]

    def __init__(self, resource_name: str, inputs: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(
            LiumClusterReadyProvider(), resource_name, {"nodes_info": None, "status": None, **inputs}, opts
        )


_OUTPUTS = (
    "cluster_id",
    "name",
    "status",
    "fabric_id",
    "fabric_type",
    "gpu_type",
    "gpus_per_node",
    "master_addr",
    "node_addrs",
    "hostfile",
    "torchrun_args",
    "price_per_hour",
    "expires_at",
    "ordered_at",
    "members",
    "adopted",
    "unscheduled",
)
"""Computed by the provider: declared without a value, a preview shows them as unknown."""


def _owner(resource_name: str, opts: pulumi.ResourceOptions | None) -> pulumi.Input[str]:
    """`organization/project/stack/resource`; below a component its place is in the last part, so that it is unique."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    parent = opts.parent if opts is not None else None
    if parent is None:
        return f"{stack}/{resource_name}"
    return _owner_below(parent, stack, resource_name)


async def _owner_below(parent: pulumi.Resource, stack: str, resource_name: str) -> str:
    # Awaited, not applied: an input that depends on the parent would depend on all its children, this one too.
    urn = await parent.urn.future()
    return f"{stack}/{str(urn).split('::', 2)[2]}::{resource_name}"
