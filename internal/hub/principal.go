package hub

import "time"

// Role is what a principal may do beyond its own tasks.
type Role uint8

// The roles.
const (
	// RoleAgent acts as one address and sees that address's tasks alone.
	RoleAgent Role = iota + 1
	// RoleAdmin administers the hub, sees every task and sends as the address admin.
	RoleAdmin
	// RoleAnonymous is anybody, where the hub was told to let anybody in.
	RoleAnonymous
)

// String is the role's name in lower case.
func (r Role) String() string {
	switch r {
	case RoleAgent:
		return "agent"
	case RoleAdmin:
		return "admin"
	case RoleAnonymous:
		return "anonymous"
	}
	return "unknown"
}

// Principal is who makes a request. Its address is what counts everywhere
// (ownership, fairness, idempotency), so rotating a token changes nothing.
type Principal struct {
	Address string // address id
	Handle  string
	Role    Role
	Token   string // token id, empty for anonymous
}

// Admin reports whether the principal administers the hub.
func (p Principal) Admin() bool { return p.Role == RoleAdmin }

// Viewer is the set of tasks that the principal may read.
func (p Principal) Viewer() Viewer { return Viewer{Address: p.Address, All: p.Admin()} }

// Viewer limits reads to the tasks that an address sent or was sent.
type Viewer struct {
	Address string
	All     bool // every task: the administrator
}

// The handles that the hub itself uses as addresses.
const (
	AdminHandle     = "admin"
	AnonymousHandle = "anonymous"
)

// Address is a handle that tasks can be sent to or come from.
type Address struct {
	ID          string
	Handle      string
	Kind        AddressKind
	Description string
	// Card is the owner's part of the agent card, canonical JSON, or nil.
	Card []byte
	// Access says who may call.
	Access Access
	// Lease is how long a claim lasts when the callee does not say; 0 is the hub's
	// default.
	Lease time.Duration
	// MaxRedeliveries is how often a lost delivery is repeated; negative is the
	// hub's default.
	MaxRedeliveries int
	// DedupeMessageID makes a repeated messageId of one caller the same send.
	DedupeMessageID bool
	// OnUnknown says what to do when a send's outcome is unknown: "resend" or "fail".
	OnUnknown string
	// RelayPaths are the prefixes of the paths that outside services may reach through
	// the tunnels of the agent; none turns that off.
	RelayPaths []string
	// Endpoint is where the hub brings the tasks; nil for an address that pulls.
	Endpoint  *Endpoint
	CreatedAt time.Time
	// DeletedAt is when the address was deleted, zero while it lives.
	DeletedAt time.Time
}

// AddressKind tells agents, people and the hub's own addresses apart.
type AddressKind uint8

// The kinds of address.
const (
	KindAgent AddressKind = iota + 1
	KindPerson
	// KindHub is an address of the hub itself: admin and anonymous. It sends and
	// is never called.
	KindHub
)

// String is the kind's name in /v1.
func (k AddressKind) String() string {
	switch k {
	case KindAgent:
		return "agent"
	case KindPerson:
		return "person"
	case KindHub:
		return "hub"
	}
	return "unknown"
}

// Delivery is how a task reaches an address of this kind, in /v1's words: an agent
// pulls, and a person has an inbox.
func (k AddressKind) Delivery() string {
	if k == KindPerson {
		return "inbox"
	}
	return "pull"
}

// Access says who may call an address.
type Access uint8

// The ways into an address.
const (
	// Open lets in any token of the hub.
	Open Access = iota + 1
	// Approved lets in the administrator, and callers with an approved binding.
	Approved
)

// String is the access's name in /v1.
func (a Access) String() string {
	if a == Approved {
		return "approved"
	}
	return "open"
}

// Token is a credential. The secret itself is never kept, only its hash.
type Token struct {
	ID      string
	Address string // address id it acts as
	Handle  string // that address's handle
	Name    string
	Role    Role
	Hash    [32]byte // SHA-256 of the secret
	// CreatedAt, ExpiresAt and RevokedAt: the last two are zero when they never come.
	CreatedAt, ExpiresAt, RevokedAt time.Time
}
