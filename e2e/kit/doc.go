// Package kit runs what the A2A conformance kit (a2aproject/a2a-tck) is pointed at: a
// whole hub on a data directory of its own, and a callee that plays the kit's
// scenarios through /v1 with the public client, as any agent would.
//
// The kit says what it wants to see by the beginning of a message's id; its
// scenarios/*.feature say what stands for what.
package kit
