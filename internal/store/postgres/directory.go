package postgres

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const addressColumns = "n, id, handle, kind, description, card, access, lease_ms, max_redeliveries, dedupe, on_unknown, created_at, deleted_at, " +
	"delivery, url, auth, header, private, sealed, relay_paths"

const fromAddress = " FROM address LEFT JOIN endpoint ON endpoint.address = n WHERE "

func scanAddress(r row) hub.Address {
	a := hub.Address{
		ID: r.text(1), Handle: r.text(2), Kind: hub.AddressKind(r.int(3)), Description: r.text(4),
		Card: r.blob(5), Access: hub.Access(r.int(6)), Lease: time.Duration(r.int(7)) * time.Millisecond,
		MaxRedeliveries: int(r.int(8)), DedupeMessageID: r.flag(9), OnUnknown: r.text(10),
		CreatedAt: r.time(11), DeletedAt: r.time(12), RelayPaths: hub.DecodeList(r.text(19)),
	}
	if !r.null(13) {
		a.Endpoint = &hub.Endpoint{Kind: r.text(13), URL: r.text(14), Auth: r.text(15), Header: r.text(16), Private: r.flag(17), Sealed: r.blob(18)}
	}
	return a
}

// CreateAddress implements hub.Directory.
func (s *Store) CreateAddress(ctx context.Context, a hub.Address) error {
	n, err := solo(ctx, s, func(t *tx) (int64, error) {
		r, err := t.one(`INSERT INTO address (id, handle, kind, description, card, access, lease_ms, max_redeliveries, dedupe, on_unknown, created_at, relay_paths)
			VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12) ON CONFLICT (handle) WHERE deleted_at IS NULL DO NOTHING RETURNING n`,
			a.ID, a.Handle, int(a.Kind), a.Description, a.Card, int(a.Access), a.Lease.Milliseconds(),
			a.MaxRedeliveries, a.DedupeMessageID, a.OnUnknown, a.CreatedAt, optional(hub.EncodeList(a.RelayPaths)))
		if err != nil {
			return 0, err
		}
		if r == nil {
			return 0, hub.Errorf(hub.Exists, "the handle %q is taken; choose another", a.Handle)
		}
		return r.int(0), nil
	})
	if err == nil {
		s.parties.add(n, hub.Party{ID: a.ID, Handle: a.Handle, Kind: a.Kind})
	}
	return err
}

// Address implements hub.Directory.
func (s *Store) Address(ctx context.Context, ref string) (*hub.Address, error) {
	return s.address(ctx, `n IN (SELECT n FROM address WHERE handle = $1 AND deleted_at IS NULL
		UNION ALL SELECT n FROM address WHERE id = $1 AND deleted_at IS NULL)`, ref)
}

// address finds an address by a condition, whose first argument is the handle or id.
func (s *Store) address(ctx context.Context, condition, ref string, more ...any) (a *hub.Address, err error) {
	missing := hub.Errorf(hub.NotFound, "there is no address %q", ref)
	if !isText(ref) {
		return nil, missing
	}
	err = s.read(ctx, func(c *conn) error {
		r, err := c.one("SELECT "+addressColumns+fromAddress+condition, append([]any{ref}, more...)...)
		if err != nil {
			return err
		}
		if r == nil {
			return missing
		}
		found := scanAddress(r)
		a = &found
		return nil
	})
	return a, err
}

// FormerAddress implements hub.Directory.
func (s *Store) FormerAddress(ctx context.Context, ref string, by hub.Viewer) (*hub.Address, error) {
	me, err := s.parties.n(ctx, by.Address)
	if err != nil {
		return nil, storeError(ctx, err)
	}
	// A lane stays for ever, and tells who has sent anything.
	return s.address(ctx, `(handle = $1 OR id = $1) AND kind <> $2
		AND EXISTS (SELECT 1 FROM lane WHERE callee = address.n AND rank > 0 AND ($3::boolean OR caller = $4)) ORDER BY n DESC LIMIT 1`,
		ref, int(hub.KindHub), by.All, me)
}

// Addresses implements hub.Directory.
func (s *Store) Addresses(ctx context.Context) (all []hub.Address, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.each("SELECT "+addressColumns+fromAddress+"deleted_at IS NULL AND kind <> $1 ORDER BY handle",
			[]any{int(hub.KindHub)}, func(r row) error {
				all = append(all, scanAddress(r))
				return nil
			})
	})
	return all, err
}

// UpdateAddress implements hub.Directory.
func (s *Store) UpdateAddress(ctx context.Context, a hub.Address) error {
	if !isText(a.ID) {
		return hub.Errorf(hub.NotFound, "there is no such address")
	}
	return s.solo(ctx, func(t *tx) error {
		n, err := t.execNow(`UPDATE address SET description = $1, card = $2, access = $3, lease_ms = $4, max_redeliveries = $5, dedupe = $6, on_unknown = $7, relay_paths = $8
			WHERE id = $9 AND deleted_at IS NULL`,
			a.Description, a.Card, int(a.Access), a.Lease.Milliseconds(), a.MaxRedeliveries, a.DedupeMessageID, a.OnUnknown, optional(hub.EncodeList(a.RelayPaths)), a.ID)
		if err == nil && n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		return err
	})
}

// SetEndpoint implements hub.Directory.
func (s *Store) SetEndpoint(ctx context.Context, address string, e *hub.Endpoint) error {
	if !isText(address) {
		return hub.Errorf(hub.NotFound, "there is no such address")
	}
	return s.solo(ctx, func(t *tx) error {
		// The address is locked, so that it is not deleted meanwhile without this endpoint.
		r, err := t.one("SELECT n FROM address WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE", address)
		switch {
		case err != nil:
			return err
		case r == nil:
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		t.exec("DELETE FROM endpoint WHERE address = $1", r.int(0))
		if e != nil {
			t.exec("INSERT INTO endpoint (address, delivery, url, auth, header, private, sealed) VALUES ($1,$2,$3,$4,$5,$6,$7)",
				r.int(0), e.Kind, e.URL, e.Auth, e.Header, e.Private, e.Sealed)
		}
		return nil
	})
}

// DeleteAddress implements hub.Directory.
func (s *Store) DeleteAddress(ctx context.Context, id string) error {
	if !isText(id) {
		return hub.Errorf(hub.NotFound, "there is no such address")
	}
	return s.solo(ctx, func(t *tx) error {
		n, err := t.execNow("UPDATE address SET deleted_at = $1 WHERE id = $2 AND deleted_at IS NULL", t.now, id)
		if err != nil {
			return err
		}
		if n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		t.exec("DELETE FROM endpoint WHERE address = (SELECT n FROM address WHERE id = $1)", id)
		t.exec("UPDATE token SET revoked_at = $1 WHERE address = (SELECT n FROM address WHERE id = $2) AND revoked_at IS NULL", t.now, id)
		return nil
	})
}

// DeletedAddresses implements hub.Directory.
func (s *Store) DeletedAddresses(ctx context.Context, before time.Time) (ids []string, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.each(`SELECT id FROM address WHERE deleted_at < $1 AND EXISTS
			(SELECT 1 FROM lane WHERE callee = address.n AND open > 0)`,
			[]any{before}, func(r row) error {
				ids = append(ids, r.text(0))
				return nil
			})
	})
	return ids, err
}

const tokenColumns = "k.id, a.id, a.handle, k.name, k.role, k.hash, k.created_at, k.expires_at, k.revoked_at FROM token k JOIN address a ON a.n = k.address "

func scanToken(r row) hub.Token {
	t := hub.Token{
		ID: r.text(0), Address: r.text(1), Handle: r.text(2), Name: r.text(3), Role: hub.Role(r.int(4)),
		CreatedAt: r.time(6), ExpiresAt: r.time(7), RevokedAt: r.time(8),
	}
	copy(t.Hash[:], r[5])
	return t
}

// CreateToken implements hub.Directory.
func (s *Store) CreateToken(ctx context.Context, k hub.Token) error {
	return s.solo(ctx, func(t *tx) error {
		// The address is locked, so that it is not deleted meanwhile without this token.
		r, err := t.one("SELECT n FROM address WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE", k.Address)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		n, err := t.execNow(`INSERT INTO token (id, address, name, role, hash, created_at, expires_at, revoked_at)
			VALUES ($1,$2,$3,$4,$5,$6,$7,$8) ON CONFLICT (hash) DO NOTHING`,
			k.ID, r.int(0), k.Name, int(k.Role), k.Hash[:], k.CreatedAt, k.ExpiresAt, k.RevokedAt)
		if err == nil && n == 0 {
			return hub.Errorf(hub.Exists, "this secret is or was another token's; choose another")
		}
		return err
	})
}

// TokenByHash implements hub.Directory.
func (s *Store) TokenByHash(ctx context.Context, hash [32]byte) (k *hub.Token, err error) {
	var now any
	if s.opt.Now != nil {
		now = s.opt.Now()
	}
	err = s.read(ctx, func(c *conn) error {
		r, err := c.one("SELECT "+tokenColumns+`WHERE k.hash = $1 AND k.revoked_at IS NULL AND a.deleted_at IS NULL
			AND (k.expires_at IS NULL OR k.expires_at > coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))`, hash[:], now)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.Errorf(hub.NotFound, "there is no such token")
		}
		found := scanToken(r)
		k = &found
		return nil
	})
	return k, err
}

// Tokens implements hub.Directory.
func (s *Store) Tokens(ctx context.Context, address string) (all []hub.Token, err error) {
	of, args := "", []any(nil)
	if address != "" {
		of, args = "a.id = $1 AND ", []any{address}
	}
	err = s.read(ctx, func(c *conn) error {
		return c.each("SELECT "+tokenColumns+"WHERE "+of+"k.revoked_at IS NULL ORDER BY k.created_at, k.id", args, func(r row) error {
			all = append(all, scanToken(r))
			return nil
		})
	})
	return all, err
}

// RevokeToken implements hub.Directory.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	if !isText(id) {
		return hub.Errorf(hub.NotFound, "there is no such token")
	}
	return s.solo(ctx, func(t *tx) error {
		n, err := t.execNow("UPDATE token SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL", t.now, id)
		if err == nil && n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such token")
		}
		return err
	})
}
