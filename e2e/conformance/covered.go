package main

import "strings"

// cover is which of the hub's own tests are about a requirement that the kit has no test
// for, or why there is none.
type cover struct {
	// tests are those of internal/face/a2a, or of the package that is named before a colon.
	tests []string
	note  string
}

// covered has the requirements of 1.0 that the kit has no test for.
var covered = map[string]cover{
	"AUTH-INTASK-001": {tests: []string{"TestSpec/7.6 authorization required"}},
	"AUTH-INTASK-002": {tests: []string{"TestSpec/7.6 authorization required"}},
	"AUTH-INTASK-003": {tests: []string{"TestSpec/7.6 authorization required"}, note: "the words are the agent's; that they reach the caller is tested"},
	"AUTH-INTASK-004": {note: "the agent's part: the hub takes no credentials for agents, and has no way to ask for them"},
	"AUTH-INTASK-005": {tests: []string{"TestSpec/7.6 authorization required"}},
	"AUTH-INTASK-006": {tests: []string{"TestSpec/7.6 authorization required"}},
	"AUTH-SCOPE-001":  {tests: []string{"TestSemantics/13.1 not permitted", "TestSemantics/7.4 unauthenticated"}},
	"AUTH-SCOPE-002":  {tests: []string{"TestSemantics/13.1 foreign task is missing", "TestPushOwnerOnly"}},
	"AUTH-SCOPE-003":  {tests: []string{"TestSemantics/13.1 foreign task is missing", "TestSemantics/13.1 not permitted"}},
	"AUTH-SERVER-001": {tests: []string{"internal/egress: TestCertificatesAreVerified"}, note: "of the servers that the hub calls; else the client's part"},
	"AUTH-SERVER-002": {tests: []string{"TestSemantics/7.4 unauthenticated", "internal/identity: TestMiddlewareReadsTheCredential"}},
	"AUTH-TLS-001":    {tests: []string{"TestGRPCOverTLS", "internal/app: TestTLS"}, note: "whether TLS is on, here or at a proxy, is for the operator"},
	"AUTH-TLS-002":    {tests: []string{"internal/app: TestTLS"}, note: "TLS 1.3 for all who can, no less than 1.2, with the suites of Go"},
	"BIND-EQUIV-001":  {tests: []string{"TestSemantics", "TestSpec"}},
	"BIND-EQUIV-002":  {tests: []string{"TestSameAnswer"}},
	"BIND-EQUIV-003":  {tests: []string{"TestSpec/5.4 errors", "TestSameAnswer"}},
	"BIND-EQUIV-004":  {tests: []string{"TestSemantics/7.4 unauthenticated"}},
	"CARD-SIGN-001":   {tests: []string{"TestCanonicalCard", "TestCardPayloads", "TestSignedCards"}},
	"CARD-SIGN-002":   {tests: []string{"TestSignedCards"}},
	"CARD-SIGN-003":   {tests: []string{"TestSignatureHeader"}},
	"CARD-SIGN-004":   {tests: []string{"internal/delivery/remotea2a: TestCardSignatures", "internal/delivery/remotea2a: TestTheCardsOfHubs"}, note: "of the agents that the hub calls"},
	"GRPC-SVC-003":    {tests: []string{"TestGRPCOverTLS"}, note: "whether TLS is on is for the operator"},
	"VER-CLIENT-001":  {tests: []string{"internal/delivery/remotea2a: TestTheVersionIsSaid"}, note: "to the agents that the hub calls"},
	"VER-CLIENT-002":  {tests: []string{"TestSpec/3.6 versions", "TestVersions"}},
	"VER-SERVER-001":  {tests: []string{"TestSpec/3.6 versions", "TestVersions"}},
}

// String is the cell of a table.
func (c cover) String() string {
	if len(c.tests) == 0 {
		return strings.TrimSuffix("not covered: "+c.note, ": ")
	}
	text := "`" + strings.Join(c.tests, "`, `") + "`"
	if c.note != "" {
		text += "; " + c.note
	}
	return text
}
