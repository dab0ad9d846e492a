// Package rawjson checks and reads JSON as bytes.
//
// The hub keeps A2A messages as canonical JSON bytes: what a client sent is
// what is stored and what is delivered. Its hot HTTP routes therefore do not
// decode a request into Go structs by reflection, as encoding/json does, to
// encode it again a moment later. They validate the body strictly and once,
// with [Check], and then pick the few members they need by hand, with
// [Members], [Elements], [Text], [Integer] and [Boolean], each of which works
// on a sub-slice of that same body.
//
// Check is the only gate. The readers assume input that passed it and look at
// no more than they need; given anything else they return an error or a
// meaningless value, but they never panic and always end.
//
// [AppendText] and [AppendCompact] are the way back, for writing JSON without
// an encoder.
package rawjson
