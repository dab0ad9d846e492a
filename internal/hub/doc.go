// Package hub is the domain of Holdfast: tasks and their states, the people and
// programs that act on them, the kinds of error that an operation can end with,
// and the ports that stores implement. It imports the standard library only, so
// every other package can depend on it.
//
// A task has two lives that change independently. Its state is A2A's own and
// never goes backwards; its phase says what the hub does with it:
//
//	           accept                claim                  report (terminal)
//	(nothing) ────────▶ ready ──────────────────▶ leased ─────────────────────▶ done
//	                     ▲ ▲                       │  │                          ▲
//	                     │ └── lease lost, backoff ┘  │ report (question)        │
//	                     │                            ▼                          │
//	                     └────────── answer ─────── parked ── cancel, deadline ──┘
//
// Cancel and the deadline lead from every phase to done. Payloads (messages,
// parts, artifacts, metadata) are canonical A2A 1.0 JSON bytes, validated once
// where they enter; nothing in here parses them.
package hub
