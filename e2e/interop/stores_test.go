package interop

import (
	"os"
	"testing"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
)

func TestMain(m *testing.M) { os.Exit(hubproc.WithPostgres(m.Run)) }

// eachStore runs a test on hubs over SQLite and over PostgreSQL: on is one of a hub's
// settings, and gives each hub a store of its own.
func eachStore(t *testing.T, test func(t *testing.T, on func(*config.Config))) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, func(*config.Config) {}) })
	t.Run("PostgreSQL", func(t *testing.T) {
		key, err := app.NewMasterKey()
		if err != nil {
			t.Fatal(err)
		}
		test(t, func(c *config.Config) { c.DatabaseURL, c.MasterKey = hubproc.Database(t), key })
	})
}
