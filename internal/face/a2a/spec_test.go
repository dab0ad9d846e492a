package a2a_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
)

// spec are tests of single sentences of the specification, which its conformance kit
// has no test for, each on a hub of its own, over each binding.
var spec = []struct {
	name   string // with the section
	change func(*config.Config)
	test   func(*testing.T, *bed)
}{
	{"5.5 names and enums", nil, testNamesAndEnums},
	{"5.6.1 timestamps", nil, testTimestamps},
	{"5.7 required fields", nil, testRequiredFields},
	{"5.7 unknown fields", nil, testUnknownFields},
	{"4.1.4 messages name their task and context", nil, testMessagesNameTheirTask},
	{"3.2.2 blocking send returns at every end", nil, testBlockingSendReturnsAtEveryEnd},
	{"3.2.2 accepted output modes", nil, testAcceptedOutputModes},
	{"3.1.1 any media type", nil, testAnyMediaType},
	{"3.1.1 bare message", nil, testBareReply},
	{"3.4.1 context is inferred", nil, testContextIsInferred},
	{"3.4.1 unacceptable context", nil, testUnacceptableContext},
	{"3.4.2 ids are the server's", nil, testIDsAreTheServers},
	{"3.3.1 repeated message id", nil, testRepeatedMessageID},
	{"3.1.3 get task", nil, testGetTask},
	{"3.1.4 filters", nil, testListFilters},
	{"3.1.4 page sizes", nil, testPageSizes},
	{"3.1.4 pages under change", nil, testPagesUnderChange},
	{"3.1.4 pages over tied timestamps", nil, testPagesOverTies},
	{"3.1.4 artifacts do not move a task", nil, testArtifactsDoNotMove},
	{"3.1.5 cancel at every state", nil, testCancelAtEveryState},
	{"3.1.6 subscribe at every state", nil, testSubscribeAtEveryState},
	{"3.1.2 stream closes at every end", nil, testStreamClosesAtEveryEnd},
	{"3.5.2 streams of one task", nil, testStreamsOfOneTask},
	{"4.1.3 terminal is final", nil, testTerminalIsFinal},
	{"4.1.3 question and answer", nil, testQuestionAndAnswer},
	{"3.4.3 message to a task that is worked on", nil, testMessageToWorking},
	{"7.6 authorization required", nil, testAuthRequired},
	{"3.6 versions", nil, testVersions},
	{"3.2.6 extensions", nil, testExtensions},
	{"3.3.4 capabilities that are off", nil, testCapabilitiesOff},
	{"5.4 errors", nil, testErrors},
}

// notFormerSpec are the tests that are not for 0.3, and why.
var notFormerSpec = map[string]string{
	"3.1.4 filters":                      noListTasks,
	"3.1.4 page sizes":                   noListTasks,
	"3.1.4 pages under change":           noListTasks,
	"3.1.4 pages over tied timestamps":   noListTasks,
	"3.1.4 artifacts do not move a task": noListTasks,
	"3.2.6 extensions":                   "asked with ListTasks, which it has not; TestSameAnswer names extensions over all six",
	"3.6 versions":                       "a client of 0.3 need not name one; TestSameAnswer names versions over all six",
}

const noListTasks = "there is no such operation"

// TestSpec: every binding does what the specification says.
func TestSpec(t *testing.T) {
	for _, speak := range six() {
		_, former := speak.(*formerBinding)
		for _, c := range spec {
			if _, skip := notFormerSpec[c.name]; former && skip {
				continue
			}
			t.Run(speak.name()+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				var change []func(*config.Config)
				if c.change != nil {
					change = append(change, c.change)
				}
				b := newBed(t, change...)
				b.speak = speak
				c.test(t, b)
			})
		}
	}
}

// ends are the states in which a task has ended, and questions those in which it
// waits for its caller, in /v1's words.
var (
	ends      = []string{"completed", "failed", "rejected", "canceled"}
	questions = []string{"input_required", "auth_required"}
)

// protocol is a state's name in A2A.
func protocol(state string) string {
	return map[string]string{
		"submitted": "TASK_STATE_SUBMITTED", "working": "TASK_STATE_WORKING", "completed": "TASK_STATE_COMPLETED",
		"failed": "TASK_STATE_FAILED", "rejected": "TASK_STATE_REJECTED", "canceled": "TASK_STATE_CANCELED",
		"input_required": "TASK_STATE_INPUT_REQUIRED", "auth_required": "TASK_STATE_AUTH_REQUIRED",
	}[state]
}

// bring takes a new task to a state. Nobody else may have tasks to be claimed.
func (b *bed) bring(text, state string) task {
	b.t.Helper()
	sent := b.send(b.caller, text)
	b.lead(sent.ID, state)
	return b.get(sent.ID)
}

// lead takes a task that is ready to a state.
func (b *bed) lead(id, state string) {
	b.t.Helper()
	switch state {
	case "submitted":
		return
	case "canceled":
		decode[task](b.t, b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, id)))
		return
	}
	if got := b.next(); got.ID != id {
		b.t.Fatalf("claimed %s, want %s", got.ID, id)
	}
	if state != "working" {
		b.conclude(id, state)
	}
}

// conclude reports a state with a message, and gives the answer's status.
func (b *bed) conclude(id, state string) int {
	b.t.Helper()
	return b.v1("POST", id+"/result", json.RawMessage(fmt.Sprintf(
		`{"state":%q,"message":{"role":"agent","message_id":"r-%s","parts":[{"text":"says %s"}]}}`, state, state, state)), nil)
}

// sendTo sends a message to a task without waiting for it.
func (b *bed) sendTo(id, text string) answer {
	b.t.Helper()
	return b.call(b.caller, "SendMessage", message(text, fmt.Sprintf(`"taskId":%q,`, id), immediately))
}

// list lists the caller's tasks.
func (b *bed) list(params string) taskList {
	b.t.Helper()
	return decode[taskList](b.t, b.call(b.caller, "ListTasks", params))
}

// overGRPC reports whether the bed speaks gRPC, whose messages are no JSON.
func (b *bed) overGRPC() bool {
	_, ok := b.speak.(*grpcBinding)
	return ok
}
