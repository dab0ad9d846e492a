package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Rotated is the outcome of a rotation.
type Rotated struct {
	// Old and New are the ids of the keys.
	Old, New string
	// Value is the new key, if the operator has to put it into the environment.
	Value string
	// Resumed says that an earlier rotation was finished, with the key that it made.
	Resumed bool
}

// Rotate replaces the master key and seals everything anew. No hub may use the store
// meanwhile. It may be cut off at any point: a hub starts with what is there then, and
// Rotate, called again, finishes.
//
//  1. One transaction seals everything with a new key, and keeps that key, sealed with
//     the old one: from here on, a hub starts with either.
//  2. The new key goes where the hub takes it from: into the file, or to the operator.
//  3. The sealed new key is removed, so that the old key opens nothing: right away, or
//     when a hub starts with the new key in its environment.
func Rotate(ctx context.Context, o Options) (Rotated, error) {
	return rotate(ctx, o, func(string) error { return nil })
}

// rotate calls done after each step, and stops where that fails.
func rotate(ctx context.Context, o Options, done func(step string) error) (Rotated, error) {
	old, r, err := o.unlock(ctx)
	if err != nil {
		return Rotated{}, err
	}
	next, resumed := r.successor(old), true
	if r.fits(old) {
		resumed = false
		if next, err = reseal(ctx, o.Secrets, old); err != nil {
			return Rotated{}, err
		}
	}
	if next == nil {
		return Rotated{}, o.wrongKey(old, r)
	}
	out := Rotated{Old: old.id, New: next.id, Resumed: resumed}
	if err := done("reseal"); err != nil {
		return out, err
	}
	if o.Value != "" {
		out.Value = next.text
		return out, nil
	}
	if err := writeFile(o.File, next); err != nil {
		return out, err
	}
	if err := done("write"); err != nil {
		return out, err
	}
	if err := replaceRecord(ctx, o.Secrets, next, nil, nil); err != nil {
		return out, fmt.Errorf("end the handover of the master key: %w", err)
	}
	return out, done("forget")
}

// reseal seals everything that is sealed with old with a new key, and gives that.
func reseal(ctx context.Context, s hub.Secrets, old *masterKey) (*masterKey, error) {
	next, err := newKey()
	if err != nil {
		return nil, err
	}
	err = replaceRecord(ctx, s, next, old, func(sealed []byte, about string) ([]byte, error) {
		secret, err := old.open(sealed, about)
		if err != nil {
			return nil, fmt.Errorf("seal the secret %s anew: %w", about, err)
		}
		return next.seal(secret, about)
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Reset makes the key that the operator gives the master key although the secrets are
// sealed with another one, which is lost: they are dropped. A key file is made if
// there is none. It gives the key's id and how many secrets were dropped, and refuses
// with Conflict when the key fits, since then nothing is lost.
func Reset(ctx context.Context, o Options) (id string, dropped int, err error) {
	r, err := readRecord(ctx, o.Secrets)
	if err != nil && hub.KindOf(err) != hub.NotFound {
		return "", 0, err
	}
	k, err := o.key()
	if errors.Is(err, fs.ErrNotExist) {
		if k, err = newKey(); err == nil {
			err = writeFile(o.File, k)
		}
	}
	if err != nil {
		return "", 0, err
	}
	if r.fits(k) || r.successor(k) != nil {
		return "", 0, hub.Errorf(hub.Conflict, "%s has the master key that the secrets are sealed with (%s), so nothing has to be given up; to replace it, use: holdfast keys rotate", o.from(), r.Key)
	}
	lost := map[string]bool{}
	err = replaceRecord(ctx, o.Secrets, k, nil, func(sealed []byte, about string) ([]byte, error) {
		if _, err := k.open(sealed, about); err == nil {
			return sealed, nil
		}
		lost[about] = true
		return nil, nil
	})
	return k.id, len(lost), err
}
