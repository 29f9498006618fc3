"""Which test covers which line of the list of faults reported against systems like this one (known-faults.md).

The list of lines is kept here. A line without a test, or one whose test is gone, fails; lines that belong to later
issues say so. Tests are named, not imported: ``file::test`` below ``tests``.
"""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COVERED: dict[str, tuple[str, ...]] = {
    "a2a-java#754": (
        "contract/test_streams.py::test_a2a_java_754_a_subscription_to_a_paused_task_stays_open",
        "integration/grpc/test_streams.py::test_a2a_java_754_a_subscription_stays_open_at_input_required",
        "integration/v0_3/test_v0_3_turns.py::test_a2a_java_754_resubscribing_gives_the_task_first_and_stays_open_at_input_required",
    ),
    "a2a-dotnet#344": ("contract/test_streams.py::test_a2a_dotnet_344_a_dropped_stream_is_taken_up_by_a_subscription",),
    "a2a-python#296": ("contract/test_known_faults.py::test_a2a_python_296_a_client_that_drops_cancels_nothing",),
    "open-cowork#662": ("contract/test_streams.py::test_open_cowork_662_several_streams_get_the_same_events",),
    "frontmcp#529": ("contract/test_streams.py::test_frontmcp_529_a_foreign_tasks_cursor_shows_nothing",),
    "xagent#1358": (
        "contract/test_known_faults.py::test_xagent_1358_no_proxy_holds_a_stream_back",
        "integration/test_streams_bytes.py::test_a_native_stream_byte_by_byte",
    ),
    "a2a-python#545": (
        "integration/test_streams_bytes.py::test_scenario_6_heartbeats_are_comments_without_a_blank_line",
        "integration/grpc/test_streams.py::test_a2a_python_545_kagent_907_a_silent_stream_lives_on_pings",
    ),
    "kagent#907": (
        "integration/test_streams_bytes.py::test_scenario_6_heartbeats_are_comments_without_a_blank_line",
        "integration/grpc/test_streams.py::test_a2a_python_545_kagent_907_a_silent_stream_lives_on_pings",
    ),
    "stemdeck#532": (
        "integration/test_streams_lifecycle.py::test_stemdeck_532_a_reset_before_the_first_byte_leaks_no_slot",
        "integration/grpc/test_streams.py::test_stemdeck_532_canceled_streams_leak_no_slot",
    ),
    "ggcode#446": (
        "contract/test_envelopes.py::test_json_rpc_envelope",
        "integration/v0_3/test_v0_3_envelopes.py::test_ggcode_446_bad_params_of_a_stream_are_a_json_error_with_the_id",
    ),
    "a2a-rs#79": (
        "contract/test_envelopes.py::test_json_rpc_envelope",
        "integration/v0_3/test_v0_3_envelopes.py::test_ggcode_446_bad_params_of_a_stream_are_a_json_error_with_the_id",
    ),
    "agentstack#1497": (
        "contract/test_streams.py::test_agentstack_1497_every_frame_has_the_requests_id",
        "integration/v0_3/test_v0_3_envelopes.py::test_agentstack_1497_every_answer_and_frame_has_the_id",
    ),
    "typescript-sdk#1925": (
        "integration/test_streams_bytes.py::test_typescript_sdk_1925_line_separators_split_no_frame",
    ),
    "a2a-python#1078": ("contract/test_known_faults.py::test_a2a_python_1078_streams_are_raw_utf_8",),
    "backend.ai#12680": ("contract/test_artifacts.py::test_backend_ai_12680_more_tasks_make_no_more_metric_series",),
    "siclaw#340": ("contract/test_streams.py::test_siclaw_340_a_late_failure_does_not_overwrite_canceled",),
    "a2a-python#413, cancel": ("contract/test_cancel.py::test_a2a_python_413_a_terminal_task_is_not_cancelable",),
    "a2a-go#438": ("contract/test_messages.py::test_a2a_go_438_a_terminal_task_takes_no_message",),
    "a2a-python#1205": ("contract/test_streams.py::test_a2a_python_1205_a_terminal_task_has_no_subscription",),
    "a2a-java#741": (
        "contract/test_known_faults.py::test_a2a_java_741_a_completed_task_takes_no_message_of_either_kind",
    ),
    "salesagent#2257": (
        "integration/test_streams_replicas.py::test_salesagent_2257_kill_9_changes_no_task_and_loses_no_event",
    ),
    "xagent#838": (
        "integration/ledger/test_leases.py::test_queue_timeout",
        "integration/runtime/test_repair.py::test_a_live_task_that_stands_in_no_queue_is_queued_again",
    ),
    "aegra#476": ("integration/runtime/test_repair.py::test_a_live_task_that_stands_in_no_queue_is_queued_again",),
    "deer-flow#4414": ("fault/test_outage.py::test_postgresql_is_killed_under_load",),
    "hatchet#1022": (
        "integration/native/test_workers_api_leases.py::test_twenty_workers_and_one_task_make_one_lease",
        "integration/ledger/test_races.py::test_twenty_claimers_on_one_task_make_one_lease",
    ),
    "hatchet#4383": (
        "fault/test_graceful_stop.py::test_everything_that_waits_is_ended_in_good_order",
        "fault/test_graceful_stop.py::test_rolling_restarts_under_load",
    ),
    "aws-samples/sample-autonomous-cloud-coding-agents#58": (
        "contract/test_known_faults.py::test_sample_autonomous_cloud_coding_agents_58_a_duplicate_is_the_original_task",
    ),
    "Overpass#16": ("contract/test_idempotency.py::test_overpass_16_the_same_key_with_another_body_is_a_conflict",),
    "mastra#20205": (
        "contract/test_artifacts.py::test_mastra_20205_a_message_to_a_working_task_makes_no_second_lease",
    ),
    "adk-python#4934": ("contract/test_messages.py::test_adk_python_4934_the_context_alone_starts_a_new_task",),
    "adk-python#3765": ("contract/test_known_faults.py::test_adk_python_3765_the_task_resumes_the_same_one",),
    "a2a-java#723": (
        "contract/test_messages.py::test_a2a_java_723_a_mismatched_context_is_refused_and_nothing_stored",
    ),
    "a2a-rs#248": ("contract/test_messages.py::test_a2a_rs_248_an_unknown_task_is_not_found_and_nothing_created",),
    "A2A#1249": ("contract/test_known_faults.py::test_a2a_1249_the_context_is_inferred_from_the_task",),
    "A2A#192": (
        "contract/test_artifacts.py::test_a2a_192_each_message_stands_once",
        "contract/test_history.py::test_a2a_192_history_has_each_message_once_in_order_agents_too",
    ),
    "a2a-python#573": (
        "contract/test_messages.py::test_a2a_python_573_history_length",
        "contract/test_history.py::test_a2a_python_573_history_length_counts_from_the_end",
    ),
    "a2a-rs#122, historyLength": ("contract/test_messages.py::test_a2a_rs_122_a_negative_history_length_is_invalid",),
    "adk-python#6686": ("contract/test_artifacts.py::test_adk_python_6686_chunks_are_added_and_append_false_replaces",),
    "a2a-python#1038": (
        "contract/test_artifacts.py::test_a2a_python_1038_and_a2a_1231_a_refused_append_stores_nothing",
    ),
    "a2a-python#735": ("contract/test_artifacts.py::test_a2a_python_735_append_merges_metadata",),
    "a2a-rs#295": ("contract/test_artifacts.py::test_a2a_rs_295_a_repeated_id_is_one_artifact",),
    "A2A#1231": ("contract/test_artifacts.py::test_a2a_python_1038_and_a2a_1231_a_refused_append_stores_nothing",),
    "a2a-python#1164": (
        "contract/test_push_configs.py::test_a2a_python_1164_a2a_go_373_urls_refused_at_creation_and_inline",
    ),
    "a2a-go#373": (
        "contract/test_push_configs.py::test_a2a_python_1164_a2a_go_373_urls_refused_at_creation_and_inline",
    ),
    "a2a-java#810": ("integration/webhooks/test_sending.py::test_a2a_java_810_credentials_and_token_go_along",),
    "a2a-python#585": ("integration/webhooks/test_sending.py::test_a2a_java_810_credentials_and_token_go_along",),
    "a2a-java#1043": ("contract/test_push_configs.py::test_a2a_java_1043_what_cannot_stand_in_a_header_is_refused",),
    "a2a-js#541": ("contract/test_push_configs.py::test_a2a_js_541_a2a_java_1092_two_creates_without_id_two_ids",),
    "a2a-java#1092": ("contract/test_push_configs.py::test_a2a_js_541_a2a_java_1092_two_creates_without_id_two_ids",),
    "a2a-java#594": (
        "integration/webhooks/test_sending.py::test_a2a_java_594_every_event_is_notified_once_and_in_order",
    ),
    "a2a-dotnet#450": (
        "contract/test_messages.py::test_a2a_dotnet_450_a_tenant_in_the_body_owns_nothing",
        "integration/grpc/test_errors.py::test_a2a_dotnet_450_the_routing_key_chooses_the_agent_and_never_a_tenant",
    ),
    "agentgateway#1031": (
        "contract/test_card_urls.py::test_agentgateway_1031_and_mycelium_799_forwarded_headers_are_believed_from_trusted_peers_only",
    ),
    "mycelium#799": (
        "contract/test_card_urls.py::test_agentgateway_1031_and_mycelium_799_forwarded_headers_are_believed_from_trusted_peers_only",
    ),
    "a2a-java#749": ("contract/test_cards.py::test_a2a_java_749_etag_and_304_with_a_list_of_tags",),
    "a2a-js#435": ("contract/test_cards.py::test_a2a_js_435_the_etag_follows_the_card",),
    "a2a-python#413, envelope": (
        "contract/test_envelopes.py::test_json_rpc_envelope",
        "integration/v0_3/test_v0_3_envelopes.py::test_a2a_python_413_envelopes",
    ),
    "deja-vu#1796": ("contract/test_known_faults.py::test_deja_vu_1796_a_batch_is_one_error_and_bad_json_has_no_id",),
    "a2a-python#856": (
        "contract/test_envelopes.py::test_a2a_python_856_version",
        "integration/grpc/test_errors.py::test_a2a_python_856_a2a_rs_271_versions",
    ),
    "a2a-rs#271": (
        "contract/test_envelopes.py::test_a2a_python_856_version",
        "integration/grpc/test_errors.py::test_a2a_python_856_a2a_rs_271_versions",
    ),
    "a2a-java#731": ("integration/grpc/test_errors.py::test_a2a_java_731_a2a_rs_103_unknown_task_has_errorinfo",),
    "a2a-rs#103": ("integration/grpc/test_errors.py::test_a2a_java_731_a2a_rs_103_unknown_task_has_errorinfo",),
    "A2A#1600": ("contract/test_envelopes.py::test_a2a_1600_a_rest_error_is_a_status_with_details",),
    "a2a-rs#122, lists": ("contract/test_list.py::test_a2a_rs_122_bad_filters_are_invalid",),
    "a2a-python#473": (
        "contract/test_bad_input.py::test_a2a_python_473_a_large_raw_part_is_413_and_not_500",
        "integration/grpc/test_hostile_input.py::test_a2a_python_473_too_large_a_message_is_resource_exhausted",
    ),
    "a2a-python#952": ("contract/test_messages.py::test_a2a_python_952_return_immediately_does_not_wait",),
    "a2a-go#381": (
        "contract/test_cancel.py::test_a2a_go_381_cancel_with_an_empty_body",
        "contract/test_streams.py::test_a2a_go_381_subscribe_by_get_and_by_post",
        "integration/v0_3/test_v0_3_envelopes.py::test_a2a_go_381_empty_bodies",
    ),
}
LATER = {
    "adk-python#6585": "issue 5: only a pushed agent can close its stream early; a worker's end is in the ledger",
}
"""Lines that no test covers yet: which issue has them, and why."""
LINES = 67
"""How many faults the list names; two of them (a2a-python#413, a2a-rs#122) twice, for different symptoms."""


@pytest.mark.parametrize(("line", "test"), [(line, test) for line, tests in COVERED.items() for test in tests])
def test_the_test_of_this_line_is_there(line: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert re.search(rf"^\s*(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE), f"{line}: {test} is gone"


def test_every_line_is_covered_or_belongs_to_a_later_issue() -> None:
    assert COVERED.keys().isdisjoint(LATER)
    assert all(COVERED.values())
    assert all(re.match(r"issue \d+: ", why) for why in LATER.values())
    assert len(COVERED) + len(LATER) == LINES
    tests = {test for tests in COVERED.values() for test in tests}
    print(f"{len(COVERED)} of {LINES} lines of known-faults.md are covered, by {len(tests)} tests; later: {len(LATER)}")
