package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// A hub that is moved to PostgreSQL keeps its tasks, claims, tokens and keys.
func TestMoveToPostgres(t *testing.T) {
	on := onPostgres(t)
	old := testhub.Start(t)
	worker := old.Agent("dev")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent, err := client.New(old.URL, old.AdminToken).Send(ctx, "dev", "hello")
	if err != nil {
		t.Fatal(err)
	}
	held, err := client.New(old.URL, worker).Next(ctx)
	if err != nil || held == nil || held.ID != sent.ID {
		t.Fatalf("claimed %v, error %v", held, err)
	}
	_, card := do(t, "GET", old.URL+"/.well-known/jwks.json", "", "")

	cfg := config.Default()
	cfg.Data = old.Dir()
	on(&cfg)
	cfg.MasterKey = ""
	_, err = app.MoveToPostgres(ctx, cfg, false, discard(), nil)
	if hub.KindOf(err) != hub.Exists || !strings.Contains(err.Error(), "stop it") {
		t.Fatalf("a move of a hub that runs: %v", err)
	}
	old.Close()
	moved, err := app.MoveToPostgres(ctx, cfg, false, discard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if moved.KeyID == "" || moved.KeyFile == "" {
		t.Errorf("the move does not say which master key is needed: %+v", moved)
	}

	now := testhub.Start(t, on, func(c *config.Config) { c.MasterKey, c.MasterKeyFile = "", moved.KeyFile })
	caller := client.New(now.URL, old.AdminToken)
	if err := client.New(now.URL, worker).Claim(held.ID, held.ClaimID).Done(ctx, "done"); err != nil {
		t.Fatalf("the claim of before the move: %v", err)
	}
	got, err := caller.Get(ctx, "dev", sent.ID)
	if err != nil || got.State != "completed" {
		t.Errorf("the task is %+v, error %v", got, err)
	}
	if _, again := do(t, "GET", now.URL+"/.well-known/jwks.json", "", ""); again != card {
		t.Errorf("the signing key is another one: %s, before %s", again, card)
	}
	back := config.Default()
	back.Data, back.Listen = old.Dir(), "127.0.0.1:0"
	if a, err := app.New(ctx, back, discard()); err == nil || !strings.Contains(err.Error(), "--database-url") {
		t.Errorf("a hub on the old directory: %v", err)
		if err == nil {
			_ = a.Close()
		}
	}
}
