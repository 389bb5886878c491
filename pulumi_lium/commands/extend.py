"""`pulumi-lium extend`: moves the time limit of a running cluster."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import click

from ..api import SYSTEM_CLOCK
from ..lifecycle.listing import parse_moment
from ..lifecycle.values import usd
from ..recovery.accounts import base_url_of, contexts_of
from ..recovery.export import OwnedCluster, parse_export
from ..recovery.extend import extend as extend_cluster
from ..recovery.stack import PulumiStack
from ._edge import account_option, json_option, print_json
from ._recovery import cwd_option, journal, span, told


@click.command()
@click.argument("cluster", required=False)
@click.option("--stack", help="The stack that has the cluster, in place of its id.")
@click.option("--resource", help="Name of the resource, where the stack has several clusters.")
@cwd_option
@click.option("--ttl", "total", callback=span, metavar="SPAN", help="New time limit, counted from the order: 90m, 8h.")
@click.option("--by", callback=span, metavar="SPAN", help="Moves the present end by so much.")
@account_option
@json_option
def extend(
    cluster: str | None,
    stack: str | None,
    resource: str | None,
    cwd: Path,
    total: timedelta | None,
    by: timedelta | None,
    account: str | None,
    as_json: bool,
) -> None:
    """Move the time limit of CLUSTER (its id), or of a stack's cluster.

    The time limit is a hard cap: the service removes the cluster then, however busy it is. A program whose `ttl` says
    another span moves it back at its next update.
    """
    if (cluster is None) == (stack is None):
        raise click.UsageError("Name the cluster: its id, or --stack.")
    if cluster is not None and not cluster.strip():
        raise click.UsageError("The cluster's id is empty.")
    if (total is None) == (by is None):
        raise click.UsageError("Say until when: --ttl or --by.")
    config: dict[str, str] = {}
    ordered_at: datetime | None = None
    if stack is not None:
        pulumi = PulumiStack(cwd, stack, os.environ)
        config = pulumi.config()
        source, now = f"the export of {stack}", SYSTEM_CLOCK.now()
        export = parse_export(pulumi.export(), source, base_url=base_url_of(config, os.environ), now=now)
        owned = _one(export.clusters, resource, stack)
        cluster, account, ordered_at = owned.cluster_id, owned.account, parse_moment(owned.state.get("ordered_at"))
    assert cluster is not None
    ctx = contexts_of(journal(), os.environ, told, config=config)(account)
    moved = extend_cluster(ctx, cluster, total=total, by=by, ordered_at=ordered_at)
    if as_json:
        print_json(
            {
                "cluster_id": moved.cluster_id,
                "name": moved.name,
                "price_per_hour": moved.price_per_hour,
                "before": moved.before.isoformat() if moved.before else None,
                "until": moved.until.isoformat(),
                "ttl": moved.input,
            }
        )
        return
    before = f"{moved.before:%Y-%m-%d %H:%M:%S} UTC" if moved.before else "no limit"
    click.echo(f"{moved.name} (cluster {moved.cluster_id}, {usd(moved.price_per_hour)}): was {before}")
    click.echo(f"It ends at {moved.until:%Y-%m-%d %H:%M:%S} UTC. Set ttl={moved.input!r} in its program to keep that.")


def _one(clusters: tuple[OwnedCluster, ...], resource: str | None, stack: str) -> OwnedCluster:
    found = [owned for owned in clusters if resource is None or owned.urn.rpartition("::")[2] == resource]
    if len(found) == 1:
        return found[0]
    names = ", ".join(owned.urn.rpartition("::")[2] for owned in clusters) or "none"
    raise click.UsageError(f"{len(found)} clusters of {stack} fit; it has: {names}. Choose one with --resource.")
