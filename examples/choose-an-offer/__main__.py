"""Looks at what is on sale first: InfiniBand if the budget allows it, else RoCE.

pulumi config set budget 40      # USD an hour for the whole cluster
"""

from pathlib import Path

import pulumi

import pulumi_lium as lium

config = pulumi.Config()
budget = config.get_float("budget") or 40.0
nodes = config.get_int("nodes") or 2

# Plain data, looked up in every preview and update.
offers = lium.get_offers(nodes=nodes, gpu_type="H100", max_price_per_hour=budget)
for offer in offers:
    pulumi.log.info(
        f"{offer.fabric_type}: {nodes} x {offer.gpus_per_node} {offer.gpu_type}"
        f" for ${offer.price_per_hour:.2f} an hour, {offer.free_count} of {offer.node_count} machines free"
    )
has_infiniband = any(offer.fabric_type == "infiniband" for offer in offers)

cluster = lium.LiumCluster(
    "chosen",
    nodes=nodes,
    gpu_type="H100",
    fabric_type="infiniband" if has_infiniband else "roce",
    max_price_per_hour=budget,
    ssh_public_keys=[Path("key.pub").read_text()],  # cp ~/.ssh/id_ed25519.pub key.pub
    ttl="8h",
    # Chosen once: a cluster that runs is not exchanged because other offers have come or gone.
    opts=pulumi.ResourceOptions(ignore_changes=["fabric_type"]),
)

pulumi.export("fabric_type", cluster.fabric_type)
pulumi.export("price_per_hour", cluster.price_per_hour)
