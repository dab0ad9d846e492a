package app_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// onPostgres gives the settings of a hub on a new and empty database.
func onPostgres(t *testing.T) func(*config.Config) {
	t.Helper()
	srv, err := pgtest.Start(t.Context(), pgtest.Options{})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := srv.Create(t.Context(), "hub", ""); err != nil {
		t.Fatal(err)
	}
	key, err := app.NewMasterKey()
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config.Config) { c.DatabaseURL, c.MasterKey = srv.URL("hub"), key }
}

// Whichever replica a request meets, what happens on another wakes it.
func TestReplicasAreOneHub(t *testing.T) {
	on := onPostgres(t)
	one, two := testhub.Start(t, on), testhub.Start(t, on)
	token := one.Agent("echo")
	worker := client.New(two.URL, token)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		_, err := worker.Serve(ctx, func(_ context.Context, task *client.Task) (any, error) { return "done", nil })
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	caller := client.New(one.URL, one.AdminToken)
	for range 5 {
		limited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		task, err := caller.SendAndWait(limited, "echo", "hi")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		seen, err := client.New(two.URL, two.AdminToken).Get(t.Context(), "echo", task.ID)
		if err != nil || seen.State != task.State || !strings.Contains(seen.State, "completed") {
			t.Errorf("the other replica has it as %+v; error %v", seen, err)
		}
	}
	if ready, _ := do(t, http.MethodGet, two.URL+"/readyz", "", ""); ready.StatusCode != http.StatusOK {
		t.Errorf("readyz gave %s", ready.Status)
	}
}

func TestOneReplicaMakesTheAdminToken(t *testing.T) {
	on := onPostgres(t)
	const n = 4
	var secrets [n]string
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cfg := config.Default()
			cfg.Listen = "127.0.0.1:0"
			on(&cfg)
			a, err := app.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Close()
			secrets[i] = a.NewAdminToken()
			var said bytes.Buffer
			if err := a.Banner(&said); err != nil || strings.Contains(said.String(), "postgres://") {
				t.Errorf("the banner shows the database URL, or an error: %s %v", said.String(), err)
			}
		})
	}
	wg.Wait()
	made := 0
	for _, s := range secrets {
		if s != "" {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d of %d replicas made an admin token", made, n)
	}
}
