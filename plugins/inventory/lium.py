# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
name: lium
short_description: Clusters and pods of a Lium account
version_added: 0.1.0
author:
  - The pulumi-lium authors (@lium-io)
description:
  - Makes each pod of the account a host, named C(<pod name>-<rank>) where it is a member of a cluster.
  - An account without pods is an empty inventory with a warning.
    A key that is refused, or a listing that cannot be read, is an error and never an empty inventory.
  - "Groups: V(lium_pods), V(lium_clusters), and one for each cluster (C(lium_cluster_<name>)), GPU type
    (C(lium_gpu_<type>)), fabric (C(lium_on_fabric_<id>), where the service names one) and status
    (C(lium_status_<status>)). Characters outside letters, digits and C(_) become C(_). Where two values would share a
    group, the changed ones get four hex digits of their SHA-256 behind the name."
  - The configuration file's name must end in C(lium.yml) or C(lium.yaml).
extends_documentation_fragment:
  - constructed
  - inventory_cache
options:
  plugin:
    description: The name of this plugin.
    required: true
    choices: [lium.cluster.lium]
    type: str
  api_key:
    description: The API key. It needs the scope V(read). Keep it out of the file; the variable is there for that.
    type: str
    required: true
    env:
      - name: LIUM_API_API_KEY
      - name: LIUM_API_KEY
  base_url:
    description: Address of the API, ending in C(/api).
    type: str
    default: https://lium.io/api
    env:
      - name: LIUM_BASE_URL
  connect_by:
    description:
      - The address that Ansible connects to, V(public) for the host and port of the pod's SSH command,
        V(overlay) for the address on the cluster's overlay (from inside the overlay only; port 22).
    type: str
    choices: [public, overlay]
    default: public
  ready_only:
    description: Leave out pods that cannot be entered (not V(RUNNING), or without an SSH command), with a warning.
    type: bool
    default: true
  timeout:
    description: Seconds that one request may take.
    type: int
    default: 30
"""

EXAMPLES = r"""
# train.lium.yml, with the key in LIUM_API_KEY. The first line alone is enough; the rest groups the hosts by rank as
# well, and keeps the listing for a minute.
plugin: lium.cluster.lium
keyed_groups:
  - key: lium_rank | string
    prefix: rank
compose:
  is_master: lium_rank == 0
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/lium-inventory
cache_timeout: 60
"""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError

from ansible.errors import AnsibleParserError
from ansible.module_utils.urls import open_url
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible_collections.lium.cluster.plugins.plugin_utils._account import Host, RowError, hosts_of

_ATTEMPTS = 3


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Reads `GET /pods` once, or the cache (API contract 4.9)."""

    NAME = "lium.cluster.lium"

    def verify_file(self, path: str) -> bool:
        return super().verify_file(path) and path.endswith(("lium.yml", "lium.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        hosts = self._hosts(path, cache)
        if not hosts:
            self.display.warning(f"{path}: the account has no pods, so the inventory is empty.")
        left_out = [host for host in hosts if self.get_option("ready_only") and not host.ready]
        if left_out:
            names = ", ".join(f"{host.name} ({host.status})" for host in left_out)
            self.display.warning(
                f"{path}: left out, since they cannot be entered yet: {names}. ready_only: false keeps them."
            )
        for host in hosts:
            if host not in left_out:
                self._add(host)

    def _hosts(self, path: str, cache: bool) -> list[Host]:
        key = self._cache_key(path)
        use_cache = self.get_option("cache")
        rows = self._cache.get(key) if use_cache and cache else None
        if rows is None:
            rows = self._fetch(time.sleep)
            if use_cache:
                self._cache[key] = rows
        if not isinstance(rows, list):
            raise AnsibleParserError(f"{path}: the pod listing is no list. Check base_url (it ends in /api).")
        try:
            return hosts_of(rows)
        except RowError as error:
            raise AnsibleParserError(f"{path}: {error}. Check base_url, and that the service is a Lium API.") from error

    def _cache_key(self, path: str) -> str:
        """One file may be read for several accounts or services: each has its own listing. Does not tell the key."""
        account = f"{self.get_option('base_url')}\0{self.get_option('api_key')}"
        return f"{self.get_cache_key(path)}_{hashlib.sha256(account.encode()).hexdigest()[:16]}"

    def _fetch(self, sleep: Callable[[float], None]) -> Any:
        base_url = self.get_option("base_url").rstrip("/")
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(2.0 ** (attempt - 1))
            try:
                return self._request(f"{base_url}/pods")
            except OSError as error:  # URLError and HTTPError are among them
                failure = error
            status = failure.code if isinstance(failure, HTTPError) else None
            if status is not None and status != 429 and status < 500:
                break
        # Not chained: the library's error holds the request, and with it the key.
        raise AnsibleParserError(_what_failed(base_url, status, failure))

    def _request(self, url: str) -> Any:
        # Redirects are not followed: the key goes to the configured server and to no other.
        with open_url(
            url,
            headers={"X-API-KEY": self.get_option("api_key"), "Accept": "application/json"},
            timeout=self.get_option("timeout"),
            follow_redirects="none",
            use_netrc=False,
        ) as answer:
            body = answer.read()
        try:
            return json.loads(body)
        except ValueError:
            raise AnsibleParserError(
                f"{url} answered, but not with JSON. Check base_url (it ends in /api); nothing is known about the pods."
            ) from None

    def _add(self, host: Host) -> None:
        self.inventory.add_host(host.name)
        variables = dict(host.variables)
        if self.get_option("connect_by") == "overlay":
            variables["ansible_host"] = variables.get("lium_overlay_ip")
        elif "lium_public_host" in variables:
            variables["ansible_host"] = variables["lium_public_host"]
            variables["ansible_port"] = variables["lium_ssh_port"]
        for name, value in variables.items():
            self.inventory.set_variable(host.name, name, value)
        for group in host.groups:
            self.inventory.add_group(group)
            self.inventory.add_child(group, host.name)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, host.name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host.name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host.name, strict=strict)


def _what_failed(base_url: str, status: int | None, error: Exception) -> str:
    """What a person reads; holds no key."""
    advice = {
        401: "The key is not accepted: set LIUM_API_KEY to a valid one.",
        403: "The key may not list pods: it needs the scope 'read'.",
        404: "There is no such address: base_url ends in /api.",
        429: "Too many listings: wait a minute, or use the cache.",
    }
    unknown = "nothing is known about the pods"
    if status is None:
        reason = getattr(error, "reason", None) or error
        return f"{base_url} cannot be reached ({reason}); {unknown}. Check base_url and the network."
    if 300 <= status < 400:
        return f"{base_url}/pods redirects; the key is not sent elsewhere. If the service has moved, set base_url."
    return f"{base_url}/pods answered HTTP {status}; {unknown}. {advice.get(status, 'Try again later.')}"
