// Package a2a is the hub's face to A2A clients: each address is an ordinary A2A
// 1.0 server at /a/{handle}, with an agent card of its own, and one of 0.3 and 0.2 at
// the same place.
//
// A request goes through four layers, each in a file of its own, so that a further
// binding replaces the first of them and nothing else:
//
//	binding   jsonrpc.go              JSON-RPC to an operation and its parameters, and back
//	          rest.go, rest_route.go  the same for HTTP+JSON
//	          grpc.go, grpc_method.go, grpc_status.go
//	                                  the same for gRPC of either version: a message becomes
//	                                  ProtoJSON, and ProtoJSON a message
//	          face.go, stream.go      what they share
//	decode    decode.go               ProtoJSON parameters to a request
//	handler   handler.go              one method for each A2A operation
//	errors    errors.go               any error to one of A2A's
//
// The operations on push notifications have their decoders and handlers in push.go, and
// v03_push.go.
//
// Clients older than 1.0 get the same handler through layers of their own: v03.go
// (operations and streams), v03_rest.go (paths and errors), v03_decode.go and
// v03_render.go (their JSON, in three forms, to and from canonical JSON of 1.0, byte by
// byte, so that numbers keep every digit), and v03_card.go.
//
// Cards are made in card.go, signed in card_sign.go, and made for one caller in
// card_extended.go.
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
// method without a version is served: nobody can mean anything else by it. A version
// that is named is obeyed. 0.2 is taken for 0.3.
//
// Cards of 0.3. No card is right for both versions: 1.0's kit refuses the members of
// 0.3, whose clients refuse a card without them. agent-card.json is 1.0's unless the
// request names 0.3; agent.json, where 0.2 looks, is 0.3's.
//
// Streams of 0.3 end with a question too, and say final at what they end with, because
// its clients answer only then. A task that is followed while it asks is followed on.
//
// History of 0.3. It ends with what the agent said last, the text of artifacts
// included, once the task has ended or asks something: clients of FastA2A show the
// last message and nothing else.
//
// Paths of HTTP+JSON (section 11.3). The tenant that may stand in front of a path has
// to be the address's handle; below the hub's own endpoint, /a/hub/{tenant}/…, it names
// the address. The paths of 1.0 are none of 0.3's, so that a request without a version
// is served here too. :subscribe is both GET and POST, since the specification has one
// in its text and the other in its .proto. A colon that is percent-encoded is part of
// an id.
//
// gRPC (section 10) is at the hub's own endpoint, where the tenant names the address.
// Messages of 0.3 have none, so the metadata a2a-tenant does, on any binding; and whoever
// may call a single address need not name it. A service tells the version, as a method
// does. A StreamResponse has no room for an event's number: the header of a stream has
// that of the first.
//
// Media types (section 11.1). Answers are application/json unless the client prefers
// application/a2a+json, because older clients and the conformance kit know no other.
// A body that is not sent as JSON is 415.
//
// Streams (sections 3.1.2 and 3.1.6). A stream ends with the task, not with a
// question: it stays open on INPUT_REQUIRED and AUTH_REQUIRED, so that whoever
// watches sees the answer and what follows. Events carry the task's event number as
// their SSE id, and Last-Event-ID resumes after it.
//
// Push notifications (sections 3.1.7 to 3.1.10 and 4.3). Answers have neither the token
// nor the credentials of a configuration, nor anything in their place: a secret that can
// be read back is one that leaks. In 0.3 a configuration without an id is the task's
// one configuration of that kind, since clients of 0.2 know of no ids; in 1.0 the hub
// makes an id. A configuration that is not there is TaskNotFound, and deleting it is no
// error.
//
// Cancel (sections 3.1.5 and 3.3.1). Canceling a canceled task gives the task;
// canceling one that ended otherwise is TaskNotCancelable.
//
// Extensions (section 4.6) and capabilities. An address's owner says on its card what
// it has and what it requires of callers; see offer. The hub activates what both have,
// and does nothing else: what extensions put into messages reaches the agent as it is.
//
// Idempotency (section 3.3.1). A repeated messageId is a new message unless the
// address says otherwise; the header Idempotency-Key makes any send repeatable.
package a2a
