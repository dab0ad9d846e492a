package vault

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// recordName is the secret that says which key the others are sealed with.
	recordName = "vault/check"
	// checkAbout and handoverAbout are what the record's sealed parts are about.
	checkAbout    = "vault/check"
	handoverAbout = "vault/handover"
)

// record is what the database knows about the master key.
type record struct {
	// Key is the id of the key that everything is sealed with.
	Key string `json:"key"`
	// Check is something sealed with it: who can open it has that key.
	Check []byte `json:"check"`
	// Handover is that key itself, sealed with the one before, whose id is Old. It is
	// there from the moment a key is replaced until the new one is where the hub takes
	// it from; so long, a hub starts with either.
	Handover []byte `json:"handover,omitempty"`
	Old      string `json:"old,omitempty"`
}

// newRecord is the record of a key; old is the one before it, nil for none.
func newRecord(k, old *masterKey) (record, error) {
	check, err := k.seal([]byte(k.id), checkAbout)
	r := record{Key: k.id, Check: check}
	if err == nil && old != nil {
		r.Old = old.id
		r.Handover, err = old.seal([]byte(k.text), handoverAbout)
	}
	return r, err
}

// fits reports whether the record is a key's.
func (r record) fits(k *masterKey) bool {
	_, err := k.open(r.Check, checkAbout)
	return err == nil
}

// successor is the key that replaced k; nil if that is not known, or k was not the last.
func (r record) successor(k *masterKey) *masterKey {
	text, err := k.open(r.Handover, handoverAbout)
	if err != nil {
		return nil
	}
	next, err := parseKey(string(text))
	if err != nil || !r.fits(next) {
		return nil
	}
	return next
}

// Reader reads named secrets, as they were sealed; hub.NotFound if there is none. A
// hub.Secrets is one.
type Reader interface {
	Secret(ctx context.Context, name string) ([]byte, error)
}

// readRecord gives the record; NotFound if nothing was ever sealed.
func readRecord(ctx context.Context, s Reader) (record, error) {
	raw, err := s.Secret(ctx, recordName)
	if err != nil {
		return record{}, err
	}
	return parseRecord(raw)
}

// addRecord keeps a key's record unless there is one, and gives the one that is kept.
func addRecord(ctx context.Context, s hub.Secrets, k *masterKey) (record, error) {
	r, err := newRecord(k, nil)
	if err != nil {
		return record{}, err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return record{}, err
	}
	if raw, err = s.AddSecret(ctx, recordName, raw); err != nil {
		return record{}, fmt.Errorf("note the master key: %w", err)
	}
	return parseRecord(raw)
}

// replaceRecord makes k the key, in one transaction with what f does to the secrets.
func replaceRecord(ctx context.Context, s hub.Secrets, k, old *masterKey, f func([]byte, string) ([]byte, error)) error {
	r, err := newRecord(k, old)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.Reseal(ctx, f, recordName, raw)
}

func parseRecord(raw []byte) (r record, err error) {
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read the record of the master key: %w", err)
	}
	return r, nil
}
