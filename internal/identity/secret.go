package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// agentPrefix and adminPrefix begin every secret, so that people and scanners
	// recognise one that leaked.
	agentPrefix = "hf_"
	adminPrefix = "hfa_"
	// envTokenName is the name of the admin token that came from the environment.
	envTokenName = "HOLDFAST_ADMIN_TOKEN"
	// minEnvToken is how long a token from the environment must be.
	minEnvToken = 24
)

// newSecret makes a secret of 256 random bits: the prefix and 43 characters.
func newSecret(prefix string) string {
	var b [32]byte
	rand.Read(b[:]) // never fails: the runtime ends the process instead
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// addToken gives t an id and a fresh secret, and stores it.
func (s *Service) addToken(ctx context.Context, t hub.Token) (hub.Token, string, error) {
	prefix := agentPrefix
	if t.Role == hub.RoleAdmin {
		prefix = adminPrefix
	}
	secret := newSecret(prefix)
	t.ID, t.Hash = s.opt.NewID(), sha256.Sum256([]byte(secret))
	if err := s.opt.Store.CreateToken(ctx, t); err != nil {
		return hub.Token{}, "", err
	}
	s.changed()
	return t, secret, nil
}

// EnsureAdmin makes what a hub cannot be without: its own addresses, and an admin
// token. envToken, if not empty, is that token, and replaces an earlier one from
// the environment. Otherwise, if no admin token lives, it makes one and gives its
// secret, to be shown once; created says so.
func (s *Service) EnsureAdmin(ctx context.Context, envToken string) (secret string, created bool, err error) {
	admin, err := s.ensureAddress(ctx, hub.AdminHandle)
	if err != nil {
		return "", false, err
	}
	anonymous, err := s.ensureAddress(ctx, hub.AnonymousHandle)
	if err != nil {
		return "", false, err
	}
	if s.opt.Anonymous {
		p := hub.Principal{Address: anonymous.ID, Handle: anonymous.Handle, Role: hub.RoleAnonymous}
		s.anonymous.Store(&outcome{p: p})
	}
	if envToken != "" {
		return "", false, s.takeEnvToken(ctx, admin, envToken)
	}
	tokens, err := s.opt.Store.Tokens(ctx, admin.ID)
	if err != nil {
		return "", false, fmt.Errorf("list admin tokens: %w", err)
	}
	for _, t := range tokens {
		if !grantOf(&t).expired(s.opt.Now()) {
			return "", false, nil
		}
	}
	_, secret, err = s.addToken(ctx, s.adminToken(admin, "first"))
	return secret, err == nil, err
}

// ReplaceAdmin makes a new admin token and revokes all earlier ones, for whoever
// holds the data directory.
func (s *Service) ReplaceAdmin(ctx context.Context) (secret string, err error) {
	admin, err := s.ensureAddress(ctx, hub.AdminHandle)
	if err != nil {
		return "", err
	}
	old, err := s.opt.Store.Tokens(ctx, admin.ID)
	if err != nil {
		return "", fmt.Errorf("list admin tokens: %w", err)
	}
	_, secret, err = s.addToken(ctx, s.adminToken(admin, "replacement"))
	if err != nil {
		return "", err
	}
	for _, t := range old {
		if err := s.revoke(ctx, t.ID); err != nil && hub.KindOf(err) != hub.NotFound {
			return "", fmt.Errorf("revoke the old admin token %s: %w", t.ID, err)
		}
	}
	return secret, nil
}

// CheckEnvToken reports whether token could be the admin token from the environment. If
// not, the error, of kind Invalid, says what one is made of.
func CheckEnvToken(token string) error {
	if len(token) < minEnvToken || !plausible(token) {
		return hub.Errorf(hub.Invalid, "HOLDFAST_ADMIN_TOKEN needs at least %d and at most %d characters out of A-Z a-z 0-9 - . _ ~ + / =; try: openssl rand -hex 32", minEnvToken, maxSecret)
	}
	return nil
}

// takeEnvToken makes token the one admin token from the environment.
func (s *Service) takeEnvToken(ctx context.Context, admin *hub.Address, token string) error {
	if err := CheckEnvToken(token); err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(token))
	tokens, err := s.opt.Store.Tokens(ctx, admin.ID)
	if err != nil {
		return fmt.Errorf("list admin tokens: %w", err)
	}
	have := false
	for _, t := range tokens {
		same := subtle.ConstantTimeCompare(t.Hash[:], hash[:]) == 1
		have = have || same
		if t.Name == envTokenName && !same {
			if err := s.revoke(ctx, t.ID); err != nil && hub.KindOf(err) != hub.NotFound {
				return fmt.Errorf("revoke the previous HOLDFAST_ADMIN_TOKEN: %w", err)
			}
		}
	}
	if have {
		return nil
	}
	t := s.adminToken(admin, envTokenName)
	t.ID, t.Hash = s.opt.NewID(), hash
	if err := s.opt.Store.CreateToken(ctx, t); hub.KindOf(err) == hub.Exists {
		return hub.Errorf(hub.Invalid, "HOLDFAST_ADMIN_TOKEN has a value that was a token before and was revoked, or is the token of an agent; unset HOLDFAST_ADMIN_TOKEN, or choose a value that was never used")
	} else if err != nil {
		return fmt.Errorf("store HOLDFAST_ADMIN_TOKEN: %w", err)
	}
	s.changed()
	return nil
}

func (s *Service) adminToken(admin *hub.Address, name string) hub.Token {
	return hub.Token{
		Address: admin.ID, Handle: admin.Handle, Name: name, Role: hub.RoleAdmin, CreatedAt: s.opt.Now(),
	}
}

// ensureAddress finds one of the hub's own addresses, or makes it.
func (s *Service) ensureAddress(ctx context.Context, handle string) (*hub.Address, error) {
	a, err := s.opt.Store.Address(ctx, handle)
	if err == nil || hub.KindOf(err) != hub.NotFound {
		return a, err
	}
	made := hub.Address{
		ID: s.opt.NewID(), Handle: handle, Kind: hub.KindHub, Access: hub.Approved,
		MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: s.opt.Now(),
		Description: "one of the hub's own addresses",
	}
	if err := s.opt.Store.CreateAddress(ctx, made); err != nil {
		return nil, fmt.Errorf("create the hub's address %s: %w", handle, err)
	}
	s.changed()
	return &made, nil
}

func roleOf(a *hub.Address) hub.Role {
	if a.Kind == hub.KindHub && a.Handle == hub.AdminHandle {
		return hub.RoleAdmin
	}
	return hub.RoleAgent
}
