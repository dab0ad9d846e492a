package main

import (
	"slices"
	"strings"
)

// exception is tests that may fail or be skipped, and why.
type exception struct {
	tests   []string // by their names, so that it hides no new one
	outcome string   // the only one that is excused
	because string   // a part of why they did not pass; empty for anything
	over    string   // the only transport; empty for any
	other   bool     // they are for another transport
	reason  string   // for the documentation
}

// exceptions are the tests of the kit for 1.0 that may differ.
var exceptions = []exception{
	{tests: []string{"test_version_not_supported_returns_unimplemented"}, outcome: fail, because: "FAILED_PRECONDITION", reason: of100},
	{tests: []string{"test_unsupported_operation_returns_unimplemented", "test_push_not_supported_returns_unimplemented"}, outcome: fail, because: "got FAILED_PRECONDITION", reason: of100},
	{
		tests:   []string{"test_should_requirement[no-requirements-grpc]", "test_should_requirement[no-requirements-http_json]", "test_should_requirement[no-requirements-jsonrpc]"},
		outcome: skip, reason: "This stands for an empty list in the kit.",
	},
}

const of100 = "The kit is of 1.0.0, where the gRPC status of VersionNotSupported, UnsupportedOperation and PushNotificationNotSupported is UNIMPLEMENTED. 1.0.1 has FAILED_PRECONDITION, and so has the hub."

// exceptions03 are those of the kit for 0.3.
var exceptions03 = []exception{
	{tests: ofOneTransport, outcome: skip, because: "Test specific to", other: true, reason: otherTransport},
	{tests: []string{"test_sse_header_compliance"}, outcome: skip, because: "only applicable to JSON-RPC", other: true, reason: otherTransport},
	{tests: ofAClient, outcome: skip, because: "client implementation required", reason: "The test wants a class of client that the kit does not have."},
	{tests: ofCredentials, outcome: skip, over: "gRPC", because: "schemes declared", reason: "Over gRPC the kit fails when it reads a card that has security schemes, and then takes it for one without."},
	{tests: ofCredentials, outcome: skip, over: "HTTP+JSON", because: "No security schemes declared", reason: "Over HTTP+JSON the kit calls its own function for the extended card with an argument that it does not take, and then takes the card for one without security schemes."},
	{tests: []string{"test_mutual_tls_scheme_support", "test_oauth2_metadata_url_support"}, outcome: skip, because: "security schemes declared", reason: "The hub has neither mutual TLS nor OAuth2: its credential is a bearer token."},
	{tests: []string{"test_in_task_authentication_flow"}, outcome: skip, because: "requires SUT implementation support", reason: skipsAlways},
	{tests: []string{"test_authentication_structure"}, outcome: skip, because: "does not have an authentication section", reason: "The kit looks for the authentication member of 0.1's cards, which 0.2 and 0.3 replaced by securitySchemes."},
	{tests: []string{"test_http_to_https_redirect"}, outcome: fail, because: "got status code 400", reason: "The kit sends plain HTTP to the port that has TLS, and wants a redirection. Such a request has shown its credential already; the hub answers 400."},
	{tests: []string{"test_streaming_connection_resilience"}, outcome: skip, because: "flaky", reason: skipsAlways},
	{tests: []string{"test_message_send_continue_with_contextid"}, outcome: fail, over: "HTTP+JSON", reason: "Over HTTP+JSON the kit looks for context_id where ProtoJSON has contextId, then makes up a context of its own for the task, and a task has one context only."},
	{tests: []string{"test_message_send_valid_file_part", "test_message_send_valid_multiple_parts"}, outcome: fail, over: "gRPC", reason: "The kit's test has a url where 0.3 has the uri of a file. The hub takes both, but over gRPC the kit sends no file at all."},
	{tests: []string{"test_message_send_data_part_array"}, outcome: fail, over: "gRPC", reason: "Over gRPC data is an object, so the kit fails before it has sent an array."},
	{tests: []string{"test_tasks_resubscribe"}, outcome: skip, over: "HTTP+JSON", because: "Could not capture task ID", reason: "Over HTTP+JSON the kit expects the events of a stream in the form of JSON-RPC."},
}

const (
	otherTransport = "The test is for another transport."
	skipsAlways    = "The kit skips this test always."
)

var (
	ofOneTransport = []string{
		"test_grpc_bidirectional_streaming", "test_grpc_compression_support", "test_grpc_metadata_handling", "test_grpc_method_optimizations",
		"test_grpc_tls_configuration", "test_json_rpc_batch_requests", "test_json_rpc_error_extensions", "test_json_rpc_method_extensions",
		"test_json_rpc_notification_requests", "test_json_rpc_security_headers", "test_rest_api_method_mappings", "test_rest_api_security",
		"test_rest_content_negotiation", "test_rest_http_verb_mapping", "test_rest_pagination_support",
	}
	ofAClient = []string{
		"test_grpc_bidirectional_streaming", "test_grpc_compression_support", "test_grpc_metadata_handling", "test_grpc_method_optimizations",
		"test_rest_api_method_mappings", "test_rest_http_verb_mapping", "test_rest_pagination_support",
	}
	ofCredentials = []string{
		"test_auth_schemes_available", "test_authentication_error_codes", "test_authentication_transport_independence",
		"test_in_task_authentication_flow", "test_invalid_authentication", "test_invalid_credentials_handling", "test_missing_authentication",
		"test_mutual_tls_scheme_support", "test_oauth2_metadata_url_support", "test_security_scheme_negotiation", "test_security_scheme_structure_compliance",
	}
)

// unguarded reports whether a test found no credentials or no TLS where it ran.
func unguarded(t testCase) bool {
	for _, why := range []string{"schemes declared", "HTTPS", "https in agent card"} {
		if t.outcome != pass && strings.Contains(t.why, why) {
			return true
		}
	}
	return false
}

// excused is the exception that a test falls under, nil if none does.
func excused(list []exception, t testCase) *exception {
	for i, e := range list {
		if e.outcome == t.outcome && (e.over == "" || e.over == t.over) && slices.Contains(e.tests, shorten(t.node)) && strings.Contains(t.why, e.because) {
			return &list[i]
		}
	}
	return nil
}
