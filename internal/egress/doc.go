// Package egress is the hub's only way out: every request that the hub sends to
// somewhere else goes through a [Guard].
//
// Users of a hub give it URLs to call: webhooks, push notifications, remote agents.
// Without a guard they could have it call what only the hub's machine can reach, such
// as services on loopback or a cloud's metadata. So the guard looks twice:
//
//   - [Guard.Check] looks at a URL when it is saved, so that whoever gave it learns at
//     once what is wrong. This is a courtesy: names can lead elsewhere later.
//   - [Guard.Client] gives the HTTP client for the requests. Each of its dials resolves
//     the name itself, looks at every address that came back, and connects to exactly
//     one of these addresses, without a second lookup. This is the defence.
//
// # What is refused
//
// Addresses count by what they mean, not by how they are written. The hub calls global
// unicast addresses. It calls private ones (10/8, 172.16/12, 192.168/16, fc00::/7) with
// [Permit].Private only, and loopback at the ports in [Options].AllowLocal only. It
// calls no others: link-local, cloud metadata, unspecified, multicast, broadcast,
// shared (100.64/10), documentation, benchmark and reserved ranges, tunnels that hide
// an IPv4 address (6to4, Teredo, mapped, compatible), and NAT64 or ISATAP addresses
// around an IPv4 address that it would not call. If a name leads to several addresses,
// all of them have to be good.
//
// URLs have to be plain: http or https, a host name in ASCII or an address in its usual
// form, no user information, no fragment, no control characters. Spellings that
// resolvers disagree about (2130706433, 0177.0.0.1, 0x7f.1, 127.1, full-width digits, a
// dot at the end) are refused whatever they mean. http is allowed, because endpoints in
// a private network often have no certificate; the one who gives the URL chooses.
//
// # What else the client does not do
//
// It follows no redirects: the caller gets the 3xx. It uses no proxy from the
// environment, keeps no cookies, and sends no header with control characters. Time,
// size and concurrency are limited; see [Options]. Errors are of type [Error]; their
// text has neither bodies nor addresses that a name led to, nor the path and query of
// the URL, which may be secret.
//
// # What it cannot know
//
// That a public address belongs to the hub's own machine or to a neighbour that trusts
// it, or that the network translates a prefix of its own to IPv4 (NAT64 with another
// prefix than 64:ff9b::/96). Firewalls are for that.
package egress
