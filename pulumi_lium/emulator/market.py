"""The market: hosts, fabrics, offers, orders, pods, accounts and the ledger, as one deterministic state machine.

Signatures (final; every verb acts at `market.now`, call `advance_to(t)` first):

    load_scenario(source: str | dict | None) -> Scenario        # scenario.py; None = built-in, str = YAML or JSON text;
                                                                # ScenarioError names the path of what is wrong
    Market(scenario, start: float, *, track_changes=False)      # epoch seconds
    .now, .scenario, .settings (mutable copy), .revision (grows with every durable change)
    .advance_to(t) ; .next_due() -> float | None                # when the next transition or event is due
    .snapshot() -> dict ; Market.restore(d, track_changes=False) # JSON-able, exact
    .take_changes() -> dict | None                              # {"meta": {…}, "put": {table: {id: record}}} since last call
    .state() -> dict                                            # GET /_emulator/state (faults and journal are the shell's)
    .apply_event(event: dict)                                   # POST /_emulator/events; EventError (a ValueError)
    .load_measurements(report: dict) -> dict                    # POST /_emulator/measurements; MeasurementError (a ValueError)

API verbs. `api_key` is the X-API-KEY header's text (None or "" = none). They answer plain JSON-able values that the caller must
not change (rows are shared between answers), or raise `Refusal(status, code, message, hint, data, headers)`, whose
`.envelope(request_id)` is the body. `Reply(body, headers, committed)` is answered by the two order verbs only.

    version() ; executors(query: dict[str, str]) ; machines() ; key_scopes()                    # no key needed
    templates(api_key) ; get_template(api_key, id) ; create_template(api_key, body) ; update_template(api_key, id, body)
    default_docker_images(api_key, query) ; deployment_estimate(api_key, query) ; quote(api_key, executor_id, query)
    me(api_key) ; workspaces(api_key) ; get_workspace(api_key, id) ; workspace_members(api_key, id)
    ssh_keys(api_key) ; create_ssh_key(api_key, body)
    offers(api_key)                                             # GET /executors/infiniband-clusters
    order_cluster(api_key, body, idempotency_key=None, *, lose_outcome=False) -> Reply  # POST /executors/cluster/rent
    rent_host(api_key, executor_id, body, idempotency_key=None, *, lose_outcome=False) -> Reply
        # lose_outcome: it commits, but the answer is not recorded under the key (faults that commit and then answer 5xx
        # "transiently"): the same key later answers idempotency_in_progress (300 s), then idempotency_outcome_unknown
    hold_idempotency_key(api_key, idempotency_key)              # the key's first request is running (a delay before acting);
    release_idempotency_key(api_key, idempotency_key)           # call release right before the delayed order is made
    list_pods(api_key, query: dict[str, str] | None = None)     # rate limited: 60 a minute per account
    get_pod(api_key, id) ; pod_events(api_key, id) ; pod_logs(api_key, id) -> str
    delete_cluster(api_key, cluster_id) ; delete_pod(api_key, id) ; reboot_pod(api_key, id)
    schedule_removal(api_key, pod_id, body) ; cancel_removal(api_key, pod_id)
    identify(api_key) -> key id or None                         # for the journal; never the key itself
"""
