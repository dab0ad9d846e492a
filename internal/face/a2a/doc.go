// Package a2a is the hub's face to A2A clients: each address is an ordinary A2A
// 1.0 server at /a/{handle}, with an agent card of its own.
//
// A request goes through four layers, each in a file of its own, so that a further
// binding replaces the first and the last of them and nothing else:
//
//	binding   jsonrpc.go, stream.go   HTTP to an operation and its parameters, and back
//	decode    decode.go               ProtoJSON parameters to a request
//	handler   handler.go              one method for each A2A operation
//	errors    errors.go               any error to one of A2A's
//
// The order of the checks is the same for every operation: who is it (401), is
// the body one that can be read, may they call this address (403, the same for an
// address that does not exist), and only then anything about a task. A task that
// is not the caller's is TaskNotFound on every operation.
//
// # Decisions where the specification leaves room
//
// Version (spec section 3.6). A client that names no version speaks 0.3 by the
// specification. The JSON-RPC methods of 0.3 (message/send) and of 1.0
// (SendMessage) have no name in common, so the method tells the version, and a
// 1.0 method without a version is served: nobody can mean anything else by it. A
// version that is named is obeyed.
//
// Streams (sections 3.1.2 and 3.1.6). A stream ends with the task, not with a
// question: it stays open on INPUT_REQUIRED and AUTH_REQUIRED, so that whoever
// watches sees the answer and what follows. Events carry the task's event number as
// their SSE id, and Last-Event-ID resumes after it.
//
// Cancel (sections 3.1.5 and 3.3.1). Canceling a canceled task gives the task;
// canceling one that ended otherwise is TaskNotCancelable.
//
// Extensions (section 4.6). The hub activates none, so A2A-Extensions is ignored and
// none is echoed; what extensions put into messages reaches the agent as it is.
//
// Idempotency (section 3.3.1). A repeated messageId is a new message unless the
// address says otherwise; the header Idempotency-Key makes any send repeatable.
package a2a
