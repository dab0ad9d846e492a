package app

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

// Backup describes a backup of a hub's database.
type Backup struct {
	// Taken is when it was taken, in UTC; zero for a copy that Holdfast has not made.
	Taken time.Time
	// Bytes is the size of its file, Schema the version of its tables.
	Bytes  int64
	Schema int
	// Tasks is how many tasks are in it, Unfinished how many of them had not ended.
	Tasks, Unfinished int64
	// KeyID is the id of the master key that its secrets are sealed with, which is not in
	// it; empty if it has none.
	KeyID string
	// KeyProblem says why a hub on this backup would not start with the master key that is
	// in place now; nil if it would.
	KeyProblem error
}

// Progress is told now and then which step is under way, and how many bytes of how many
// are done; both are zero for a step that cannot tell. The steps are copy, check and
// prepare.
type Progress func(step string, done, total int64)

// MakeBackup copies the database of a hub, running or not, to a new file, and checks the
// copy: see sqlite.Backup. Where the master key is, it does not look.
func MakeBackup(ctx context.Context, dataDir, file string, p Progress) (Backup, error) {
	c, err := sqlite.Backup(ctx, dataDir, file, sqlite.CopyOptions{Progress: p})
	if err != nil {
		return Backup{}, err
	}
	b := backupOf(ctx, config.Config{Data: dataDir}, file, c)
	b.KeyProblem = nil
	return b, nil
}

// CheckBackup reads all of a backup, and changes nothing. The master key is looked for
// where a hub with cfg would.
func CheckBackup(ctx context.Context, cfg config.Config, file string, p Progress) (Backup, error) {
	c, err := sqlite.Verify(ctx, file, sqlite.CopyOptions{Progress: p})
	if err != nil {
		return Backup{}, err
	}
	return backupOf(ctx, cfg, file, c), nil
}

// RestoreBackup makes the database of a hub from a backup, and says how many claims were
// open and are taken back: see sqlite.Restore. Of cfg, Data and the settings of the
// master key count.
func RestoreBackup(ctx context.Context, cfg config.Config, file string, p Progress) (b Backup, takenBack int, err error) {
	r, err := sqlite.Restore(ctx, file, cfg.Data, sqlite.CopyOptions{Progress: p})
	if err != nil {
		return Backup{}, 0, err
	}
	return backupOf(ctx, cfg, file, r.Copy), r.TakenBack, nil
}

// backupOf describes a backup, with what the master key is to it.
func backupOf(ctx context.Context, cfg config.Config, file string, c sqlite.Copy) Backup {
	b := Backup{Taken: c.Taken, Bytes: c.Bytes, Schema: c.Schema, Tasks: c.Tasks, Unfinished: c.Unfinished}
	b.KeyID, b.KeyProblem = vault.Check(ctx, backupSecrets(file), vaultOptions(cfg, nil, nil))
	return b
}

// backupSecrets reads the secrets in a backup's file.
type backupSecrets string

// Secret implements vault.Reader.
func (file backupSecrets) Secret(ctx context.Context, name string) ([]byte, error) {
	return sqlite.SecretIn(ctx, string(file), name)
}
