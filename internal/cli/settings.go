package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
)

const (
	defaultURL = "http://127.0.0.1:7420"
	// maxTokenFile is far more than any token has.
	maxTokenFile = 16 << 10
)

// hubFlags say which hub to talk to, and as whom.
type hubFlags struct {
	url, token, tokenFile, profile string
	// used is the URL that was settled on, for messages.
	used string
	// asked is the client that was made for the address of this handle, if one was.
	asked  *client.Client
	handle string
}

func (h *hubFlags) add(f *pflag.FlagSet) {
	f.StringVar(&h.url, "url", "", "base URL of the hub (HOLDFAST_URL; "+defaultURL+")")
	f.StringVar(&h.tokenFile, "token-file", "", "file with the token, - for stdin (HOLDFAST_TOKEN_FILE, or the token itself in HOLDFAST_TOKEN)")
	f.StringVar(&h.token, "token", "", "the token itself; others on this machine may see it in the list of processes")
	f.StringVar(&h.profile, "profile", "", "profile of the configuration file to take url and token from (HOLDFAST_PROFILE)")
}

// access is where a hub is and how to get in.
type access struct {
	url, token string
	// urlFrom and tokenFrom say where they come from, such as "HOLDFAST_URL".
	urlFrom, tokenFrom string
}

// access settles where the hub is: a flag counts before the environment, and that
// before the profile.
func (p *program) access() (access, error) {
	profile, path, err := p.profile()
	if err != nil {
		return access{}, err
	}
	a := access{url: defaultURL, urlFrom: "the default"}
	switch {
	case p.hub.url != "":
		a.url, a.urlFrom = p.hub.url, "--url"
	case p.env["HOLDFAST_URL"] != "":
		a.url, a.urlFrom = p.env["HOLDFAST_URL"], "HOLDFAST_URL"
	case profile.URL != "":
		a.url, a.urlFrom = profile.URL, path
	}
	if a.token, a.tokenFrom, err = p.token(profile, path); err != nil {
		return access{}, err
	}
	p.hub.used = a.url
	return a, nil
}

func (p *program) profile() (config.Profile, string, error) {
	name := p.hub.profile
	if name == "" {
		name = p.env["HOLDFAST_PROFILE"]
	}
	path, err := config.ProfilePath()
	if err != nil {
		if name == "" {
			return config.Profile{}, "", nil // without a home there is no profile
		}
		return config.Profile{}, "", err
	}
	profile, err := config.LoadProfile(path, name)
	if err != nil {
		return config.Profile{}, "", usagef("%v", err)
	}
	return profile, path, nil
}

func (p *program) token(profile config.Profile, path string) (token, from string, err error) {
	switch {
	case p.hub.token != "":
		return p.hub.token, "--token", nil
	case p.hub.tokenFile != "":
		token, err = p.readToken(p.hub.tokenFile)
		return token, p.hub.tokenFile, err
	case p.env["HOLDFAST_TOKEN"] != "":
		return p.env["HOLDFAST_TOKEN"], "HOLDFAST_TOKEN", nil
	case p.env["HOLDFAST_TOKEN_FILE"] != "":
		token, err = p.readToken(p.env["HOLDFAST_TOKEN_FILE"])
		return token, p.env["HOLDFAST_TOKEN_FILE"], err
	case profile.Token != "":
		return profile.Token, path, nil
	}
	return "", "", nil
}

// readToken reads the token in a file; - is stdin.
func (p *program) readToken(name string) (string, error) {
	b, err := p.readInput(name, maxTokenFile)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(b))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", usagef("%s holds no token: it should have the token on one line, and nothing else", name)
	}
	return token, nil
}

// readInput reads a file of at most limit bytes; - is stdin.
func (p *program) readInput(name string, limit int64) ([]byte, error) {
	r := p.in
	if name != "-" {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, usagef("there is no file %s", name)
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(b)) > limit {
		return nil, usagef("%s is larger than %s", name, config.ByteSize(limit))
	}
	return b, nil
}

// client makes a client of the hub that the settings name.
func (p *program) client() (*client.Client, error) {
	a, err := p.access()
	if err != nil {
		return nil, err
	}
	return p.clientOf(a.url, a.token), nil
}

// clientOf makes a client that gives up soon on a hub that is not there, because
// somebody is waiting at a terminal. Waits and streams that have begun do not.
func (p *program) clientOf(url, token string) *client.Client {
	return client.New(url, token,
		client.WithUserAgent("holdfast-cli/"+version()),
		client.WithRetry(client.Retry{Tries: 4, Min: 100 * time.Millisecond, Max: time.Second}),
		client.WithLogger(slog.New(slog.NewTextHandler(p.err, nil))))
}

// clientAt makes a client for an address as it was written, and gives its handle.
func (p *program) clientAt(ref string) (*client.Client, string, error) {
	base, handle, err := parseAddress(ref)
	if err != nil {
		return nil, "", err
	}
	a, err := p.access()
	if err != nil {
		return nil, "", err
	}
	if base != "" && !sameURL(base, a.url) {
		// A token goes to the hub it was meant for, and no other.
		if a.urlFrom != "the default" {
			return nil, "", usagef("%s is at another hub than %s, which %s names; choose one of them", ref, a.url, a.urlFrom)
		}
		a.url, p.hub.used = base, base
	}
	p.hub.asked, p.hub.handle = p.clientOf(a.url, a.token), handle
	return p.hub.asked, handle, nil
}

func sameURL(a, b string) bool { return strings.TrimRight(a, "/") == strings.TrimRight(b, "/") }

// parseAddress reads an address: @handle, handle, or the URL of its A2A endpoint,
// HUB/a/handle. base is the hub's URL in the last case.
func parseAddress(s string) (base, handle string, err error) {
	bad := usagef("%q is no address: write @handle, or the URL of an A2A endpoint, such as %s/a/handle", s, defaultURL)
	if !strings.Contains(s, "://") {
		handle = strings.TrimPrefix(s, "@")
		if handle == "" || strings.ContainsAny(handle, "/?#@ \t\r\n") {
			return "", "", bad
		}
		return "", handle, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", bad
	}
	before, handle, ok := strings.Cut(strings.TrimRight(u.Path, "/"), "/a/")
	if !ok || handle == "" || strings.Contains(handle, "/") {
		return "", "", bad
	}
	u.Path = before
	return u.String(), handle, nil
}
