package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// HasData reports whether a hub has used a data directory before.
func HasData(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, sqlite.FileName))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("look at the data directory: %w", err)
}
