package sqlite

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
	_, err := write(ctx, s, func(t *tx) (int64, error) {
		r, err := t.one("SELECT 1 FROM address WHERE handle = ? AND deleted_at IS NULL", a.Handle)
		if err != nil {
			return 0, err
		}
		if r != nil {
			return 0, hub.Errorf(hub.Exists, "the handle %q is taken; choose another", a.Handle)
		}
		n, err := t.insert(`INSERT INTO address (id, handle, kind, description, card, access, lease_ms, max_redeliveries, dedupe, on_unknown, created_at, relay_paths)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`,
			a.ID, a.Handle, int(a.Kind), a.Description, a.Card, int(a.Access), a.Lease.Milliseconds(),
			a.MaxRedeliveries, a.DedupeMessageID, a.OnUnknown, a.CreatedAt, optional(hub.EncodeList(a.RelayPaths)))
		if err == nil {
			// Known before the commit, so that no later transition misses it even if
			// the caller stops waiting; a number that was never committed names nothing.
			s.parties.add(n, hub.Party{ID: a.ID, Handle: a.Handle, Kind: a.Kind})
		}
		return n, err
	})
	return err
}

// Address implements hub.Directory.
func (s *Store) Address(ctx context.Context, ref string) (*hub.Address, error) {
	// With an OR in place of the two, SQLite looks at every address.
	return s.address(ctx, `n IN (SELECT n FROM address WHERE handle = ?1 AND deleted_at IS NULL
		UNION ALL SELECT n FROM address WHERE id = ?1 AND deleted_at IS NULL)`, ref)
}

// address finds an address by a condition, whose first argument is the handle or id.
func (s *Store) address(ctx context.Context, condition, ref string, more ...any) (a *hub.Address, err error) {
	err = s.read(ctx, func(c *conn) error {
		r, err := c.one("SELECT "+addressColumns+fromAddress+condition,
			append([]any{ref}, more...)...)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.Errorf(hub.NotFound, "there is no address %q", ref)
		}
		found := scanAddress(r)
		a = &found
		return nil
	})
	return a, err
}

// FormerAddress implements hub.Directory.
func (s *Store) FormerAddress(ctx context.Context, ref string, by hub.Viewer) (*hub.Address, error) {
	// A lane stays for ever, and tells who has sent anything.
	return s.address(ctx, `(handle = ?1 OR id = ?1) AND kind <> ?2
		AND EXISTS (SELECT 1 FROM lane WHERE callee = address.n AND (?3 OR caller = ?4)) ORDER BY n DESC`,
		ref, int(hub.KindHub), by.All, s.parties.n(by.Address))
}

// Addresses implements hub.Directory.
func (s *Store) Addresses(ctx context.Context) (all []hub.Address, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.each("SELECT "+addressColumns+fromAddress+"deleted_at IS NULL AND kind <> ? ORDER BY handle",
			[]any{int(hub.KindHub)}, func(r row) (bool, error) {
				all = append(all, scanAddress(r))
				return true, nil
			})
	})
	return all, err
}

// UpdateAddress implements hub.Directory.
func (s *Store) UpdateAddress(ctx context.Context, a hub.Address) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.exec(`UPDATE address SET description = ?, card = ?, access = ?, lease_ms = ?, max_redeliveries = ?, dedupe = ?, on_unknown = ?, relay_paths = ?
			WHERE id = ? AND deleted_at IS NULL`,
			a.Description, a.Card, int(a.Access), a.Lease.Milliseconds(),
			a.MaxRedeliveries, a.DedupeMessageID, a.OnUnknown, optional(hub.EncodeList(a.RelayPaths)), a.ID)
		if err == nil && n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		return err
	})
}

// SetEndpoint implements hub.Directory.
func (s *Store) SetEndpoint(ctx context.Context, address string, e *hub.Endpoint) error {
	return s.write(ctx, func(t *tx) error {
		r, err := t.one("SELECT n FROM address WHERE id = ? AND deleted_at IS NULL", address)
		switch {
		case err != nil:
			return err
		case r == nil:
			return hub.Errorf(hub.NotFound, "there is no such address")
		case e == nil:
			_, err = t.exec("DELETE FROM endpoint WHERE address = ?", r.int(0))
			return err
		}
		_, err = t.exec("INSERT OR REPLACE INTO endpoint (address, delivery, url, auth, header, private, sealed) VALUES (?,?,?,?,?,?,?)",
			r.int(0), e.Kind, e.URL, e.Auth, e.Header, e.Private, e.Sealed)
		return err
	})
}

// DeleteAddress implements hub.Directory.
func (s *Store) DeleteAddress(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.exec("UPDATE address SET deleted_at = ? WHERE id = ? AND deleted_at IS NULL", t.now, id)
		if err != nil {
			return err
		}
		if n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		if _, err := t.exec("DELETE FROM endpoint WHERE address = ?", s.parties.n(id)); err != nil {
			return err
		}
		_, err = t.exec("UPDATE token SET revoked_at = ? WHERE address = ? AND revoked_at IS NULL", t.now, s.parties.n(id))
		return err
	})
}

// DeletedAddresses implements hub.Directory.
func (s *Store) DeletedAddresses(ctx context.Context, before time.Time) (ids []string, err error) {
	err = s.read(ctx, func(c *conn) error {
		return c.each(`SELECT id FROM address WHERE deleted_at < ? AND EXISTS
			(SELECT 1 FROM lane WHERE callee = address.n AND open > 0)`,
			[]any{before}, func(r row) (bool, error) {
				ids = append(ids, r.text(0))
				return true, nil
			})
	})
	return ids, err
}

const tokenColumns = "id, address, name, role, hash, created_at, expires_at, revoked_at"

func (s *Store) scanToken(r row) hub.Token {
	a := s.parties.party(r.int(1))
	t := hub.Token{
		ID: r.text(0), Address: a.ID, Handle: a.Handle, Name: r.text(2), Role: hub.Role(r.int(3)),
		CreatedAt: r.time(5), ExpiresAt: r.time(6), RevokedAt: r.time(7),
	}
	copy(t.Hash[:], r.blob(4))
	return t
}

// CreateToken implements hub.Directory.
func (s *Store) CreateToken(ctx context.Context, k hub.Token) error {
	return s.write(ctx, func(t *tx) error {
		r, err := t.one("SELECT n FROM address WHERE id = ? AND deleted_at IS NULL", k.Address)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.Errorf(hub.NotFound, "there is no such address")
		}
		known, err := t.one("SELECT 1 FROM token WHERE hash = ?", k.Hash[:])
		if err != nil {
			return err
		}
		if known != nil {
			return hub.Errorf(hub.Exists, "this secret is or was another token's; choose another")
		}
		_, err = t.exec("INSERT INTO token ("+tokenColumns+") VALUES (?,?,?,?,?,?,?,?)",
			k.ID, r.int(0), k.Name, int(k.Role), k.Hash[:], k.CreatedAt, k.ExpiresAt, k.RevokedAt)
		return err
	})
}

// TokenByHash implements hub.Directory.
func (s *Store) TokenByHash(ctx context.Context, hash [32]byte) (k *hub.Token, err error) {
	now := s.opt.Now()
	err = s.read(ctx, func(c *conn) error {
		r, err := c.one("SELECT "+tokenColumns+` FROM token WHERE hash = ?1 AND revoked_at IS NULL
			AND (expires_at IS NULL OR expires_at > ?2)
			AND EXISTS (SELECT 1 FROM address WHERE n = token.address AND deleted_at IS NULL)`, hash[:], now)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.Errorf(hub.NotFound, "there is no such token")
		}
		found := s.scanToken(r)
		k = &found
		return nil
	})
	return k, err
}

// Tokens implements hub.Directory.
func (s *Store) Tokens(ctx context.Context, address string) (all []hub.Token, err error) {
	of, args := "", []any(nil)
	if address != "" {
		of, args = "address = ? AND ", []any{s.parties.n(address)}
	}
	err = s.read(ctx, func(c *conn) error {
		return c.each("SELECT "+tokenColumns+" FROM token WHERE "+of+"revoked_at IS NULL ORDER BY created_at, id",
			args, func(r row) (bool, error) {
				all = append(all, s.scanToken(r))
				return true, nil
			})
	})
	return all, err
}

// RevokeToken implements hub.Directory.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.exec("UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", t.now, id)
		if err == nil && n == 0 {
			return hub.Errorf(hub.NotFound, "there is no such token")
		}
		return err
	})
}
