package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Profile is a hub as a client knows it.
type Profile struct {
	URL   string `toml:"url"`
	Token string `toml:"token"`
}

// ProfilePath is where the profiles are: $XDG_CONFIG_HOME/holdfast/config.toml,
// with the user's configuration directory if the variable is not set.
func ProfilePath() (string, error) {
	dir, err := os.UserConfigDir() // honours XDG_CONFIG_HOME
	if err != nil {
		return "", fmt.Errorf("find the configuration directory: %w; set XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "holdfast", "config.toml"), nil
}

// LoadProfile reads the profile of a name from a file with one table for each:
//
//	[profiles.work]
//	url = "https://hub.example.com"
//	token = "hf_…"
//
// The empty name is the profile "default", which may be missing, like the file;
// the zero Profile then. A named one has to be there. Unknown keys are errors.
func LoadProfile(path, name string) (Profile, error) {
	optional := name == ""
	if optional {
		name = "default"
	}
	profiles, err := readProfiles(path)
	if errors.Is(err, fs.ErrNotExist) && optional {
		return Profile{}, nil
	}
	if err != nil {
		return Profile{}, err
	}
	p, ok := profiles[name]
	if !ok && !optional {
		have := strings.Join(slices.Sorted(maps.Keys(profiles)), ", ")
		if have == "" {
			have = "none"
		}
		return Profile{}, fmt.Errorf("%s has no profile %q (it has: %s); add [profiles.%s] with url and token", path, name, have, name)
	}
	return p, nil
}

func readProfiles(path string) (map[string]Profile, error) {
	var file struct {
		Profiles map[string]Profile `toml:"profiles"`
	}
	meta, err := toml.DecodeFile(path, &file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no profile file: %w", err)
	}
	if parse := (toml.ParseError{}); errors.As(err, &parse) {
		// The parser's own words may quote the line, and that may hold a token.
		return nil, fmt.Errorf("%s: line %d is no valid TOML, or has a value of the wrong type", path, parse.Position.Line)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: %s is not known; a file has tables [profiles.NAME] with url and token", path, unknown[0])
	}
	return file.Profiles, nil
}
