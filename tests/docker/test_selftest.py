"""The self-test of the runtime on a real daemon: what it says of a good one, and of each way to be wrong."""

from __future__ import annotations

import os

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._probe import HostProbe, SubprocessRunner
from ansible_collections.lium.cluster.plugins.module_utils._record import Record
from ansible_collections.lium.cluster.plugins.module_utils._runtime.selftest import CONTAINER, selftest

from tests.docker.conftest import Site
from tests.docker.test_wrapper_runtime import limit_here

pytestmark = pytest.mark.docker

IMAGE = "lium-test"


def run(site: Site, scope: str, image: str = IMAGE) -> Record:
    probe = HostProbe(SubprocessRunner({**os.environ, "DOCKER_HOST": site.daemon.host}))
    record = selftest(probe, image, scope, devices=str(site.devices))
    assert CONTAINER not in site.daemon.docker("ps", "--all", "--format", "{{.Names}}").stdout
    return record


def without_the_limit(record: Record) -> list[str]:
    """Faults but that of a machine whose root may not lift the limit of locked memory."""
    if record.status == "OK":
        return []
    faults = record.observed.rpartition(" (")[0].split("; ")
    # `ulimit -l` counts in KiB, the kernel in bytes.
    allowed = f"locked memory limited to {int(limit_here()) // 1024}" if limit_here() != "unlimited" else None
    return [fault for fault in faults if fault != allowed]


@pytest.mark.parametrize("scope", ["host", "pod"])
def test_a_good_runtime(site: Site, scope: str) -> None:
    record = run(site, scope)
    assert without_the_limit(record) == [], record
    assert "lium-rdma: rdma_cm, uverbs0, uverbs1; locked memory" in record.observed
    assert "runc: no device" in record.observed
    assert (record.status == "OK") is (limit_here() == "unlimited")


def test_a_device_that_the_hook_does_not_give(site: Site) -> None:
    site.write_settings("runc")
    hidden = site.devices.with_name("elsewhere")
    text = site.settings.read_text()
    hidden.mkdir()
    site.settings.write_text(text.replace(str(site.devices), str(hidden)))
    try:
        record = run(site, "host")
    finally:
        site.settings.write_text(text)
        hidden.rmdir()
    assert record.status == "MUST_FIX"
    assert "rdma_cm, uverbs0, uverbs1 missing" in record.observed
    assert "Run the role runtime_hook again" in record.remediation


def test_a_pod_whose_default_is_another(bare_site: Site) -> None:
    assert "uverbs0, uverbs1 missing" in run(bare_site, "pod").observed
    named = run(bare_site, "host")
    assert named.status == "MUST_FIX"
    assert "lium-rdma" in named.observed, named


def test_an_image_that_is_not_there_is_not_pulled(site: Site) -> None:
    record = run(site, "host", "nowhere/none:1")
    assert record.status == "MUST_FIX"
    assert "has the image nowhere/none:1" in record.remediation


def test_nothing_is_started_beside_a_rental(site: Site) -> None:
    site.daemon.docker("run", "-d", "--name", "pod_7", "--network", "none", IMAGE, "sleep", "600")
    try:
        record = run(site, "host")
    finally:
        site.daemon.docker("rm", "-f", "pod_7")
    assert (record.status, record.observed) == ("SKIPPED", "a rental runs (pod_7)")
