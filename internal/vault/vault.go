// Package vault seals the hub's secrets under one master key that is kept outside the
// database: in the environment, or in a file. The database has a record of which key
// its secrets are sealed with, so that a wrong or missing key is noticed at the start,
// and no new key is ever made where the old one is needed.
package vault

import (
	"errors"
	"fmt"
	"io"
)

// Vault is a hub.Sealer. It is safe for concurrent use.
type Vault struct{ key *masterKey }

// Seal implements hub.Sealer.
func (v *Vault) Seal(secret []byte, about string) ([]byte, error) { return v.key.seal(secret, about) }

// Open implements hub.Sealer. What was sealed about something else, or under another
// key, or was changed, cannot be opened.
func (v *Vault) Open(sealed []byte, about string) ([]byte, error) { return v.key.open(sealed, about) }

// KeyID names the master key, for people who compare; it says nothing about the key.
func (v *Vault) KeyID() string { return v.key.id }

// Format implements fmt.Formatter, so that no verb shows the key.
func (Vault) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "(vault)") }

// errSealed is all that is said about a secret that cannot be opened.
var errSealed = errors.New("the sealed secret cannot be opened: it was changed, or belongs elsewhere")
