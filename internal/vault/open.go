package vault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Options say where the secrets and the master key are.
type Options struct {
	// Secrets are the store's.
	Secrets hub.Secrets
	// Value is the master key as the environment has it. If it is empty, the key is in
	// File.
	Value string
	// File is the key file's path.
	File string
	// Make lets the file be made when there is none, if nothing was ever sealed.
	Make bool
	// Log gets what the operator should know of; discarded if nil.
	Log *slog.Logger
}

// envName is where Options.Value comes from.
const envName = "HOLDFAST_MASTER_KEY"

// from names where the key comes from.
func (o Options) from() string {
	if o.Value != "" {
		return envName
	}
	return "the file " + o.File
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Open gives the vault of a store. The first time, it notes in the store which master
// key that is, and may make one (Options.Make). Afterwards it takes no other: a key
// that is wrong, missing, damaged or open to others is a hub.Error of kind Invalid that
// says what to do.
func Open(ctx context.Context, o Options) (*Vault, error) {
	k, r, err := o.unlock(ctx)
	if err != nil {
		return nil, err
	}
	if r.fits(k) {
		if r.Handover == nil {
			return &Vault{k}, nil
		}
		// The new key has arrived, so the one before is of no use any more.
		if err := replaceRecord(ctx, o.Secrets, k, nil, nil); err != nil {
			return nil, fmt.Errorf("end the handover of the master key: %w", err)
		}
		return &Vault{k}, nil
	}
	next := r.successor(k)
	if next == nil {
		return nil, o.wrongKey(k, r)
	}
	if o.Value != "" {
		o.log().Warn("the master key was replaced, but HOLDFAST_MASTER_KEY still has the old one: set it to the new one, which holdfast keys rotate prints again while the old one is set", "old", k.id, "new", next.id)
	} else {
		o.log().Warn("the master key is being replaced, but that was interrupted: stop the hub and run holdfast keys rotate again", "old", k.id, "new", next.id)
	}
	return &Vault{next}, nil
}

// CheckKey reports whether a hub that has sealed nothing yet could begin with the master
// key that o says, and makes and changes nothing. Errors are as Open's. Of o, Secrets does
// not count.
func CheckKey(o Options) error {
	_, err := o.key()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if o.Make {
		return nil
	}
	return o.noFile()
}

// Check reports whether a hub with the secrets of s would start with the master key that
// o says, and changes nothing. It gives the id of the key that is needed, also with an
// error that says why the present one does not do; empty if nothing was ever sealed. Of
// o, Secrets does not count.
func Check(ctx context.Context, s Reader, o Options) (keyID string, err error) {
	r, err := readRecord(ctx, s)
	if hub.KindOf(err) == hub.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	k, err := o.key()
	if errors.Is(err, fs.ErrNotExist) {
		_, err = o.missing(false, r)
	}
	if err == nil && !r.fits(k) && r.successor(k) == nil {
		err = o.wrongKey(k, r)
	}
	return r.Key, err
}

// unlock gives the key that the operator gave and the record of the one that is
// needed. It may make both, if there is neither.
func (o Options) unlock(ctx context.Context) (*masterKey, record, error) {
	r, err := readRecord(ctx, o.Secrets)
	first := hub.KindOf(err) == hub.NotFound
	if err != nil && !first {
		return nil, r, err
	}
	k, err := o.key()
	if errors.Is(err, fs.ErrNotExist) {
		k, err = o.missing(first, r)
	}
	if err != nil {
		return nil, r, err
	}
	if first {
		r, err = addRecord(ctx, o.Secrets, k)
	}
	return k, r, err
}

// key reads the key that the operator gave; fs.ErrNotExist if that is no file.
func (o Options) key() (*masterKey, error) {
	if o.Value == "" && o.File == "" {
		return nil, hub.Errorf(hub.Invalid, "there is no master key: set %s, which holdfast keys new can make, or name a file with --master-key-file", envName)
	}
	if o.Value == "" {
		return readFile(o.File)
	}
	k, err := parseKey(o.Value)
	if err != nil {
		return nil, hub.Errorf(hub.Invalid, "%s cannot be used: %v", envName, err)
	}
	return k, nil
}

// missing makes the key file at a first start, and else says why there has to be one.
func (o Options) missing(first bool, r record) (*masterKey, error) {
	if !first {
		return nil, hub.Errorf(hub.Invalid, "the master key file %s is missing, but the database has secrets that are sealed with it (key %s): put the file back from where you keep a copy, or set %s; if the key is lost, see: holdfast keys reset --help", o.File, r.Key, envName)
	}
	if !o.Make {
		return nil, o.noFile()
	}
	k, err := newKey()
	if err != nil {
		return nil, err
	}
	return k, writeFile(o.File, k)
}

func (o Options) noFile() error {
	return hub.Errorf(hub.Invalid, "the master key file %s does not exist: make one with (umask 077; holdfast keys new > %s), or leave out --master-key-file to have one made in the data directory", o.File, o.File)
}

func (o Options) wrongKey(k *masterKey, r record) error {
	return hub.Errorf(hub.Invalid, "the secrets in the database are sealed with the master key %s, but %s has the key %s: give the hub the key that it had before, or one from the time of the backup if the data was restored; if that key is lost, see: holdfast keys reset --help", r.Key, o.from(), k.id)
}
