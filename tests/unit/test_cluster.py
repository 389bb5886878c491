"""`LiumCluster`: what a program sees, with a mocked engine."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks as engine_mocks

from tests.support.world import public_key


class Mocks(pulumi.runtime.Mocks):
    """Answers like the provider: the order's outputs, then those of the wait."""

    def __init__(self) -> None:
        self.registered: dict[str, pulumi.runtime.MockResourceArgs] = {}

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.registered[args.name] = args
        if args.typ.endswith("lium:Cluster"):
            return "c-1", {**args.inputs, "cluster_id": "c-1", "name": "train-x", "status": "rented", "members": [1]}
        return "c-1", {**args.inputs, "status": "running", "nodes_info": [{"rank": 0}]}

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        raise AssertionError("a cluster calls nothing")


@pytest.fixture
def mocks() -> Mocks:
    mocks = Mocks()
    engine_mocks.set_mocks(mocks, organization="acme", project="web", stack="dev", preview=False)
    return mocks


def declare(mocks: Mocks, **inputs: Any) -> dict[str, Any]:
    """Declares one cluster and answers its outputs as a program sees them."""
    import pulumi_lium as lium

    seen: dict[str, Any] = {}

    @pulumi.runtime.test
    def program() -> Any:
        cluster = lium.LiumCluster("train", **{"nodes": 2, "ssh_public_keys": [public_key()], **inputs})
        return pulumi.Output.all(
            status=cluster.status, nodes_info=cluster.nodes_info, cluster_id=cluster.cluster_id, name=cluster.name
        ).apply(seen.update)

    program()
    return seen


def test_one_class_two_resources(mocks: Mocks) -> None:
    declare(mocks)
    order, ready = mocks.registered["train"], mocks.registered["train-ready"]
    assert order.typ == "pulumi-python:dynamic/lium:Cluster"
    assert ready.typ == "pulumi-python:dynamic/lium:ClusterReady"
    assert ready.inputs["cluster_id"] == "c-1"
    assert ready.inputs["members"] == [1]
    assert order.inputs["owner"] == "acme/web/dev/train"
    assert order.inputs["resource"] == "train"


def test_how_to_enter_the_nodes_comes_from_the_wait_and_the_rest_from_the_order(mocks: Mocks) -> None:
    assert declare(mocks) == {
        "status": "running",
        "nodes_info": [{"rank": 0}],
        "cluster_id": "c-1",
        "name": "train-x",
    }


def test_options_of_the_wait_go_to_the_order_too_which_checks_them(mocks: Mocks) -> None:
    declare(mocks, on_start_failure="keep", ready_timeout=60, wait_for_ready=False, delete_timeout=30, account="a")
    order, ready = mocks.registered["train"].inputs, mocks.registered["train-ready"].inputs
    options = ("on_start_failure", "ready_timeout", "wait_for_ready", "delete_timeout", "account")
    for inputs in (order, ready):
        assert [inputs[name] for name in options] == ["keep", 60, False, 30, "a"]


def test_the_wait_is_for_the_cluster_that_the_engine_has(mocks: Mocks) -> None:
    """Under `ignore_changes`, or a transformation, the program's own number is not the cluster's."""
    declare(mocks, nodes=4, opts=pulumi.ResourceOptions(transformations=[_with_two_nodes]))
    assert mocks.registered["train"].inputs["nodes"] == 2
    assert mocks.registered["train-ready"].inputs["nodes"] == 2


def _with_two_nodes(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
    props = {**args.props, "nodes": 2} if args.name == "train" else args.props
    return pulumi.ResourceTransformationResult(props=props, opts=args.opts)


def test_no_key_is_among_the_inputs(mocks: Mocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIUM_API_KEY", "sk_marker")
    declare(mocks)
    assert "sk_marker" not in repr([args.inputs for args in mocks.registered.values()])


def test_an_engine_s_import_is_refused_with_the_way_that_works(mocks: Mocks) -> None:
    import pulumi_lium as lium

    with pytest.raises(ValueError, match="adopt='c-9'"):
        lium.LiumCluster("train", nodes=2, opts=pulumi.ResourceOptions(import_="c-9"))


def test_below_components_owners_differ(mocks: Mocks) -> None:
    import pulumi_lium as lium

    @pulumi.runtime.test
    def program() -> Any:
        for parent in ("one", "two"):
            web = pulumi.ComponentResource("my:Web", parent)
            lium.LiumCluster(
                f"train-{parent}",
                nodes=2,
                ssh_public_keys=[public_key()],
                opts=pulumi.ResourceOptions(parent=web, protect=True),
            )

    program()
    owners = [mocks.registered[f"train-{parent}"].inputs["owner"] for parent in ("one", "two")]
    for parent, owner in zip(("one", "two"), owners, strict=True):
        assert owner.startswith("acme/web/dev/")
        assert owner.endswith(f"my:Web::{parent}::train-{parent}")


def test_outputs_are_unknown_in_a_preview() -> None:
    mocks = Mocks()
    mocks.new_resource = lambda args: ("", dict(args.inputs))  # type: ignore[method-assign]
    engine_mocks.set_mocks(mocks, organization="acme", project="web", stack="dev", preview=True)
    import pulumi_lium as lium

    known: dict[str, bool] = {}

    @pulumi.runtime.test
    async def program() -> None:
        cluster = lium.LiumCluster("train", nodes=2, ssh_public_keys=[public_key()], gpu_type="H100")
        for name in ("cluster_id", "hostfile", "price_per_hour", "nodes_info", "status", "torchrun_args", "expires_at"):
            known[name] = await getattr(cluster, name).is_known()
        known["gpu_type"] = await cluster.gpu_type.is_known()

    program()
    assert known.pop("gpu_type")
    assert set(known.values()) == {False}


def test_public_names() -> None:
    import pulumi_lium as lium

    assert sorted(lium.__all__) == [
        "EphemeralCluster",
        "LiumCluster",
        "Machine",
        "Offer",
        "ephemeral_cluster",
        "get_offers",
    ]
    for name in lium.__all__:
        assert getattr(lium, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = lium.Nothing
