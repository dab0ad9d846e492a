package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
)

const (
	// probeTime bounds each request of the doctor.
	probeTime = 10 * time.Second
	// maxStreamDelay is how late the first bytes of an event stream may be; the hub
	// sends them at once.
	maxStreamDelay = 3 * time.Second
	// maxClockSkew is how far this machine's clock may be from the hub's.
	maxClockSkew = 30 * time.Second
	// minDisk is how much room the data directory should have.
	minDisk = 256 << 20
)

// The outcomes of a check.
const (
	checkOK      = "ok"
	checkFailed  = "failed"
	checkSkipped = "skipped"
)

// check is a finding of the doctor.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func good(format string, args ...any) check {
	return check{Status: checkOK, Detail: fmt.Sprintf(format, args...)}
}
func bad(fix, format string, args ...any) check {
	return check{Status: checkFailed, Detail: fmt.Sprintf(format, args...), Fix: fix}
}
func skipped(format string, args ...any) check {
	return check{Status: checkSkipped, Detail: fmt.Sprintf(format, args...)}
}

func (p *program) doctorCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check settings, data directory and hub, and say how to fix what is wrong",
		Long: `Check the settings of this command line, the data directory if it is on this machine,
and the hub as it looks from here. The directory of a hub that is named, with --url or
otherwise, has to be named too, with --data. Exit code 1 if a check fails.`,
		Example: "  holdfast doctor -o json",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			checks := p.examine(cmd.Context(), data, p.env["HOLDFAST_DATA"] != "" || cmd.Flags().Changed("data"))
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return p.showChecks(checks)
		}),
	}
	cmd.Flags().StringVar(&data, "data", first(p.env["HOLDFAST_DATA"], config.Default().Data), "data directory of the hub, if it is on this machine (HOLDFAST_DATA)")
	return cmd
}

func (p *program) showChecks(checks []check) error {
	failed := slices.ContainsFunc(checks, func(c check) bool { return c.Status == checkFailed })
	err := showList(p, list[check]{
		items: checks, id: func(c check) string { return c.Name },
		head: []string{"CHECK", "STATUS", "DETAIL"},
		row:  func(c check) []string { return []string{c.Name, c.Status, c.Detail} },
	})
	if err != nil {
		return err
	}
	if !failed {
		return nil
	}
	if p.words() {
		for _, c := range checks {
			if c.Fix != "" {
				p.note("To fix %s: %s", c.Name, c.Fix)
			}
		}
	}
	return outcome(exitError)
}

// patient is what the doctor examines.
type patient struct {
	p   *program
	a   access
	c   *client.Client
	web *http.Client
	// admin is what only the administrator is told; nil for others.
	admin *client.Info
}

// examine makes all checks. Those that need what an earlier one found missing are
// skipped. The data directory is that of the hub if it was named, or if the hub was not.
func (p *program) examine(ctx context.Context, data string, named bool) []check {
	var all []check
	add := func(name string, c check) bool {
		c.Name = name
		all = append(all, c)
		return c.Status == checkOK
	}
	a, err := p.access()
	if err != nil {
		add("settings", bad("correct the file or the variable that it names", "%v", err))
		return all
	}
	add("settings", checkSettings(a))
	database := p.env["HOLDFAST_DATABASE_URL"]
	if database != "" {
		add("database", checkDatabase(ctx, database))
	}
	if named || a.url == defaultURL && database == "" {
		add("data directory", checkData(data))
		add("disk space", checkDisk(data))
	} else {
		for _, name := range []string{"data directory", "disk space"} {
			if database != "" {
				add(name, skipped("HOLDFAST_DATABASE_URL says that the hub keeps its data in PostgreSQL"))
				continue
			}
			add(name, skipped("the hub is the one that %s names; if it is on this machine, name its directory with --data", a.urlFrom))
		}
	}
	x := &patient{p: p, a: a, c: p.clientOf(a.url, a.token), web: &http.Client{
		Timeout:       probeTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if !add("hub", x.reach(ctx)) {
		for _, name := range []string{"clock", "token", "version", "public url", "agent card", "event stream"} {
			add(name, skipped("the hub cannot be reached"))
		}
		return all
	}
	add("clock", x.clock(ctx))
	known := add("token", x.token(ctx))
	add("version", x.version())
	add("public url", x.publicURL(ctx))
	add("agent card", x.card(ctx))
	if known {
		add("event stream", x.stream(ctx))
	} else {
		add("event stream", skipped("it needs a valid token"))
	}
	return all
}

// checkDatabase looks at the database that the environment names.
func checkDatabase(ctx context.Context, url string) check {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	used, err := app.CheckDatabase(ctx, url)
	switch {
	case err != nil:
		return bad("do what it says, and see PostgreSQL in docs/run-a-hub.md", "%v", databaseFailure(err))
	case !used:
		return good("HOLDFAST_DATABASE_URL names an empty database, which the first replica makes its tables in")
	}
	return good("HOLDFAST_DATABASE_URL names a hub's database, and this program can use it")
}

func checkSettings(a access) check {
	if a.tokenFrom != "" && a.tokenFrom[0] == filepath.Separator {
		if st, err := os.Stat(a.tokenFrom); err == nil && st.Mode().Perm()&0o077 != 0 {
			return bad("chmod 600 "+a.tokenFrom, "others may read %s, which holds a token", a.tokenFrom)
		}
	}
	if a.tokenFrom == "" {
		return good("hub %s from %s, no token", a.url, a.urlFrom)
	}
	return good("hub %s from %s, token from %s", a.url, a.urlFrom, a.tokenFrom)
}

func checkData(dir string) check {
	used, err := app.HasData(dir)
	switch {
	case err != nil:
		return bad("run this as the user that the hub runs as, or name the right directory with --data", "%v", err)
	case !used:
		return skipped("no hub keeps its data in %s here", dir)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return bad("let the user that the hub runs as own it: chown -R USER "+dir, "%s cannot be read and written: %v", dir, err)
	}
	st, err := os.Stat(dir)
	if err == nil && st.Mode().Perm()&0o007 != 0 {
		return bad("chmod -R o-rwx "+dir, "everybody on this machine may look into %s", dir)
	}
	return good("%s can be read and written", dir)
}

func checkDisk(dir string) check {
	if used, err := app.HasData(dir); err != nil || !used {
		return skipped("no hub keeps its data in %s here", dir)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return bad("look at the disk with df", "the free space of %s is unknown: %v", dir, err)
	}
	free := st.Bavail * uint64(st.Bsize)
	if free < minDisk {
		return bad("make room, or keep finished tasks for a shorter time with holdfast serve --retain", "only %d MiB are free for %s", free>>20, dir)
	}
	return good("%d MiB are free for %s", free>>20, dir)
}

// get makes a request without the SDK, to see what it does not show.
func (x *patient) get(ctx context.Context, url string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return x.web.Do(req)
}

func (x *patient) at(path string) string { return strings.TrimRight(x.a.url, "/") + path }

func (x *patient) reach(ctx context.Context) check {
	resp, err := x.get(ctx, x.at("/readyz"))
	if err != nil {
		return bad(x.p.unreachableHint(err), "%v", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only to be shown
	if resp.StatusCode != http.StatusOK {
		return bad("look at the hub's log; if it is no Holdfast hub, correct the URL", "%s answers %s: %s", x.at("/readyz"), resp.Status, short(string(body)))
	}
	return good("%s is ready", x.a.url)
}

func (x *patient) clock(ctx context.Context) check {
	resp, err := x.get(ctx, x.at("/healthz"))
	if err != nil {
		return bad(x.p.unreachableHint(err), "%v", err)
	}
	resp.Body.Close()
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return skipped("the hub does not tell its time")
	}
	skew := time.Since(there).Round(time.Second)
	if skew.Abs() > maxClockSkew {
		return bad("set both clocks, for example with chrony or systemd-timesyncd", "this machine's clock and the hub's are %s apart", skew.Abs())
	}
	return good("this machine's clock and the hub's agree")
}

func (x *patient) token(ctx context.Context) check {
	who, err := x.c.Whoami(ctx)
	switch {
	case errors.Is(err, client.ErrUnauthenticated) && x.a.token == "":
		return bad("set HOLDFAST_TOKEN, or give --token-file", "there is no token")
	case errors.Is(err, client.ErrUnauthenticated):
		return bad("ask the administrator for a new one: holdfast tokens add @you", "the token from %s does not count: it is wrong, expired or revoked", x.a.tokenFrom)
	case err != nil:
		return bad("look at the hub's log", "%v", err)
	}
	if slices.Contains(who.Roles, "admin") {
		if x.admin, err = x.c.Info(ctx); err != nil {
			return bad("look at the hub's log", "%v", err)
		}
	}
	return good("you are @%s", who.Handle)
}

func (x *patient) version() check {
	switch mine := version(); {
	case x.admin == nil:
		return skipped("only the administrator is told the hub's version")
	case x.admin.Version != mine:
		return bad("use the same release on both sides", "this program is %s, the hub is %s", mine, x.admin.Version)
	default:
		return good("both are %s", mine)
	}
}

func (x *patient) publicURL(ctx context.Context) check {
	if x.admin == nil {
		return skipped("only the administrator is told it")
	}
	resp, err := x.get(ctx, x.admin.PublicURL+"/healthz")
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return good("%s leads to a hub", x.admin.PublicURL)
		}
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	return bad("start the hub with the URL that callers use: holdfast serve --public-url https://…", "agent cards name %s, which does not work from here: %v", x.admin.PublicURL, err)
}

func (x *patient) card(ctx context.Context) check {
	agents, err := x.c.Agents(ctx)
	if err != nil || len(agents) == 0 {
		return skipped("there is no address that you may call")
	}
	url := agents[0].URL + "/.well-known/agent-card.json"
	resp, err := x.get(ctx, url, "Authorization", "Bearer "+x.a.token)
	if err != nil {
		return bad("check --public-url of the hub", "the card of @%s cannot be read: %v", agents[0].Handle, err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return bad("check --public-url of the hub, and what a proxy in front of it lets through", "%s answers %s", url, resp.Status)
	}
	return good("the card of @%s can be read", agents[0].Handle)
}

// stream measures how soon the first bytes of an event stream arrive: a proxy that
// collects them makes every stream late.
func (x *patient) stream(ctx context.Context) check {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	start := time.Now()
	resp, err := x.get(ctx, x.at("/api/activity"), "Accept", "text/event-stream", "Authorization", "Bearer "+x.a.token)
	const fix = "turn off buffering for it in the proxy in front of the hub; nginx: proxy_buffering off"
	if err != nil {
		return bad(fix, "no event stream began within %s: %v", probeTime, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return bad("look at the hub's log", "/api/activity answers %s", resp.Status)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		return bad(fix, "nothing came on an event stream: %v", err)
	}
	took := time.Since(start).Round(time.Millisecond)
	if took > maxStreamDelay {
		return bad(fix, "the first bytes of an event stream took %s", took)
	}
	return good("the first bytes came after %s", took)
}
