package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// run runs the real binary with an environment of its own, and gives what it said and its
// exit code.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("HOLDFAST_E2E_BINARY"), args...)
	cmd.Dir, cmd.Env = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		code = exit.ExitCode()
	}
	return out.String(), said.String(), code
}

// oneLine is an error as the binary prints it: a line, with a hint after it at most.
func oneLine(said string) bool { return strings.Count(strings.TrimSpace(said), "\n") == 0 }

// as gives a database's URL with another user, password or name.
func as(t *testing.T, database string, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(database)
	must(t, err)
	change(u)
	return u.String()
}

// prepared is an empty database in which statements were run.
func prepared(t *testing.T, statements ...string) string {
	t.Helper()
	database := hubproc.Database(t)
	for _, sql := range statements {
		must(t, pgtest.ExecAt(t.Context(), database, sql))
	}
	return database
}

// relations lists the tables of a database, empty if it cannot be asked.
func relations(t *testing.T, database string) (names string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close(context.Background()) }()
	must(t, c.QueryRow(t.Context(), "SELECT coalesce(string_agg(relname, ',' ORDER BY relname), '') FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&names))
	return names
}

// Each database that a hub cannot use ends the program with 1 and one line that says what
// to do, and is left as it is.
func TestAHubOnADatabaseThatCannotBeUsedSaysWhatToDo(t *testing.T) {
	empty := hubproc.Database(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody := l.Addr().String()
	must(t, l.Close())
	guest := func(password, database string) string {
		return as(t, database, func(u *url.URL) { u.User = url.UserPassword(pgtest.Guest, password) })
	}
	key := hubproc.MasterKey(t)
	for name, c := range map[string]struct {
		url  string
		says []string
	}{
		"another kind of database": {"mysql://u:hush@localhost/x", []string{"postgres://"}},
		"half a URL":               {"postgres://u:hush@host:port/x", []string{"cannot be read", "postgres://user:password@host"}},
		"no server":                {"postgres://u:hush@" + nobody + "/x", []string{nobody, "cannot be reached", "check"}},
		"a wrong password":         {guest("hush", empty), []string{"refuses the user", pgtest.Guest, "check"}},
		"no such database":         {as(t, empty, func(u *url.URL) { u.Path = "nothing" }), []string{"does not exist", "CREATE DATABASE"}},
		"no rights":                {guest(pgtest.Password, prepared(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")), []string{"may not create", "OWNER"}},
		"another program's":        {prepared(t, "CREATE TABLE invoices (id integer)"), []string{"another program's", "create one"}},
		"a newer Holdfast's": {prepared(t, "CREATE TABLE goose_db_version (version_id bigint, is_applied boolean)", "CREATE TABLE meta (key text, value text)",
			"INSERT INTO meta VALUES ('application', 'holdfast'), ('oldest_binary', '99')"), []string{"newer Holdfast", "99", "install"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := relations(t, c.url)
			_, said, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + c.url, "HOLDFAST_MASTER_KEY=" + key}, "serve", "--listen", "127.0.0.1:0")
			if code != 1 || !oneLine(said) || strings.Contains(said, "hush") {
				t.Errorf("it ended with %d and said: %s", code, said)
			}
			for _, word := range c.says {
				if !strings.Contains(said, word) {
					t.Errorf("it does not say %q: %s", word, said)
				}
			}
			if after := relations(t, c.url); after != before {
				t.Errorf("its tables were %q and are %q", before, after)
			}
		})
	}
}

// A hub that cannot start for another reason has made no tables.
func TestAHubThatCannotStartLeavesNoTables(t *testing.T) {
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	broken := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(broken, []byte("no key\n"), 0o600))
	for name, c := range map[string]struct {
		env, args []string
		says      string
	}{
		"no master key":              {nil, nil, "holdfast keys new"},
		"a master key that is none":  {[]string{"HOLDFAST_MASTER_KEY=hush"}, nil, "HOLDFAST_MASTER_KEY"},
		"a key file that is missing": {nil, []string{"--master-key-file", broken + "s"}, broken + "s"},
		"a key file that is none":    {nil, []string{"--master-key-file", broken}, broken},
		"a bad admin token":          {[]string{"HOLDFAST_MASTER_KEY=" + key, "HOLDFAST_ADMIN_TOKEN=short"}, nil, "HOLDFAST_ADMIN_TOKEN"},
		"an address that is taken":   {[]string{"HOLDFAST_MASTER_KEY=" + key}, []string{"--listen", taken.Addr().String()}, taken.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)
			_, said, code := run(t, append(c.env, "HOLDFAST_DATABASE_URL="+database), args...)
			if code == 0 || !oneLine(said) || !strings.Contains(said, c.says) || strings.Contains(said, "hush") {
				t.Errorf("it ended with %d and said: %s", code, said)
			}
			if names := relations(t, database); names != "" {
				t.Errorf("it left these tables behind: %s", names)
			}
		})
	}
}

// The hub of another master key is refused, and goes on with its own.
func TestAnotherMasterKeyIsRefusedAndChangesNothing(t *testing.T) {
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	hub := hubproc.Start(t, hubproc.On(database, key))
	_, said, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + database, "HOLDFAST_MASTER_KEY=" + hubproc.MasterKey(t)}, "serve", "--listen", "127.0.0.1:0")
	if code == 0 || !oneLine(said) || !strings.Contains(said, "sealed with the master key") {
		t.Errorf("it ended with %d and said: %s", code, said)
	}
	hub.Agent("goes-on")
}

// Whoever has the database may make a new admin token, while replicas run.
func TestAdminTokenOfADatabase(t *testing.T) {
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	env := []string{"HOLDFAST_DATABASE_URL=" + database}
	if _, said, code := run(t, env, "admin-token"); code != 3 || !oneLine(said) || !strings.Contains(said, "no hub has used") || relations(t, database) != "" {
		t.Errorf("on an empty database it ended with %d and said: %s", code, said)
	}
	hub := hubproc.Start(t, hubproc.On(database, key))
	secret, said, code := run(t, env, "admin-token")
	if code != 0 {
		t.Fatalf("it ended with %d and said: %s", code, said)
	}
	if _, err := hub.Client(strings.TrimSpace(secret)).Do(t.Context(), "GET", "/v1/agents", nil); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, hub.Client(strings.TrimSpace(secret)), 200)
	awaitStatus(t, hub.Admin(), 401)
}

// awaitStatus waits until a list of the agents is answered so.
func awaitStatus(t *testing.T, c *hubproc.Client, status int) {
	t.Helper()
	ctx := within(t, soon)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		got, err := c.Do(ctx, "GET", "/v1/agents", nil)
		if err != nil {
			t.Fatalf("want the status %d: %v", status, err)
		}
		if got.Status == status {
			return
		}
		<-again.C
	}
}

// Whoever has no rights on the hub's tables is told so.
func TestAUserWithoutRightsOnTheHubsTables(t *testing.T) {
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	hubproc.Start(t, hubproc.On(database, key))
	guest := as(t, database, func(u *url.URL) { u.User = url.UserPassword(pgtest.Guest, pgtest.Password) })
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"admin-token"}} {
		_, said, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + guest, "HOLDFAST_MASTER_KEY=" + key}, args...)
		if code != 1 || !oneLine(said) || !strings.Contains(said, "OWNER") {
			t.Errorf("%v ended with %d and said: %s", args, code, said)
		}
	}
}

// Keys are replaced while no replica runs, and only then.
func TestKeysOfADatabase(t *testing.T) {
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	hub := hubproc.Start(t, hubproc.On(database, key))
	env := []string{"HOLDFAST_DATABASE_URL=" + database, "HOLDFAST_MASTER_KEY=" + key}
	if _, said, code := run(t, env, "keys", "rotate"); code != 5 || !oneLine(said) || !strings.Contains(said, "stop them all") {
		t.Errorf("while a replica runs, it ended with %d and said: %s", code, said)
	}
	if _, err := hub.Terminate(soon); err != nil {
		t.Fatal(err)
	}
	fresh, said, code := run(t, env, "keys", "rotate")
	if fresh = strings.TrimSpace(fresh); code != 0 || fresh == "" || fresh == key {
		t.Fatalf("it ended with %d and said: %s", code, said)
	}
	again := hubproc.Start(t, hubproc.On(database, fresh))
	if _, err := again.Terminate(soon); err != nil {
		t.Fatal(err)
	}
	if _, said, code := run(t, env, "serve", "--listen", "127.0.0.1:0"); code == 0 || !strings.Contains(said, "sealed with the master key") {
		t.Errorf("with the old key it ended with %d and said: %s", code, said)
	}
	if _, said, code := run(t, env, "keys", "reset", "--yes"); code != 0 || !strings.Contains(said, "dropped") {
		t.Errorf("to give up what the lost key sealed ended with %d and said: %s", code, said)
	}
	hubproc.Start(t, hubproc.On(database, key))
}

// A database that was restored from a dump is set apart before its replicas start: what
// workers were given since is refused, and nothing is lost or done under two claims.
func TestARestoredDatabaseIsFenced(t *testing.T) {
	dump, restore := pgTool(t, "pg_dump"), pgTool(t, "psql")
	database, key, other := hubproc.Database(t), hubproc.MasterKey(t), hubproc.Database(t)
	on := hubproc.On(database, key)
	hub := hubproc.Start(t, on)
	caller, coder := hub.Agent("caller"), hub.Agent("coder")
	held := sendOne(t, caller, "held")
	before := claimOne(t, coder)
	waits := sendOne(t, caller, "waits")
	file := filepath.Join(t.TempDir(), "dump.sql")
	must(t, exec.CommandContext(t.Context(), dump, "--no-owner", "-f", file, database).Run())
	since := claimOne(t, coder)
	if before.ID != held.ID || since.ID != waits.ID {
		t.Fatalf("claimed %s and %s", before.ID, since.ID)
	}
	if _, said, code := run(t, on.Env, "restore"); code != 5 || !oneLine(said) {
		t.Errorf("while a replica runs, it ended with %d and said: %s", code, said)
	}
	hub.Kill()
	must(t, exec.CommandContext(t.Context(), restore, "-q", "-v", "ON_ERROR_STOP=1", "-f", file, other).Run())
	// The row of the replica that was killed is in the dump, too.
	must(t, pgtest.ExecAt(t.Context(), other, "UPDATE replica SET seen_at = seen_at - interval '1 minute'"))
	on = hubproc.On(other, key)
	if _, said, code := run(t, on.Env, "restore"); code != 0 || !strings.Contains(said, "1 tasks were held") {
		t.Fatalf("it ended with %d and said: %s", code, said)
	}
	hub = hubproc.Start(t, on)
	coder = at(hub, coder)
	for _, stale := range []task{before, since} {
		if got, err := report(t, coder, stale); err != nil || got.Status != 409 {
			t.Errorf("a report under a claim from before the restore got %d %s, %v", got.Status, got.Body, err)
		}
	}
	for range 2 {
		fresh := claimOne(t, coder)
		if fresh.ClaimID == before.ClaimID || fresh.ClaimID == since.ClaimID || fresh.Failures != 0 {
			t.Errorf("the claim %s is one from before, or counts a failure: %+v", fresh.ClaimID, fresh)
		}
		if got, err := report(t, coder, fresh); err != nil || !got.OK() {
			t.Errorf("a report got %d %s, %v", got.Status, got.Body, err)
		}
	}
}

// pgTool finds one of PostgreSQL's programs, or skips the test.
func pgTool(t *testing.T, name string) string {
	t.Helper()
	bin, err := pgtest.Find()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		t.Skip("there is no", name, "here:", err)
	}
	return path
}

func sendOne(t *testing.T, c *hubproc.Client, text string) (out task) {
	t.Helper()
	must(t, c.Call(within(t, soon), "POST", "/v1/agents/coder/tasks", send(text), &out))
	return out
}

func claimOne(t *testing.T, c *hubproc.Client) (out task) {
	t.Helper()
	must(t, c.Call(within(t, soon), "GET", "/v1/agents/me/tasks/next?wait=10", nil, &out))
	if out.ID == "" {
		t.Fatal("there was no task")
	}
	return out
}

func report(t *testing.T, c *hubproc.Client, k task) (hubproc.Answer, error) {
	t.Helper()
	return c.Do(within(t, soon), "POST", "/v1/agents/me/tasks/"+k.ID+"/result", object{"state": "completed"}, "X-Claim", k.ClaimID)
}

// The doctor looks at the database, too, and changes nothing.
func TestDoctorLooksAtTheDatabase(t *testing.T) {
	database := hubproc.Database(t)
	look := func(url string) (string, int) {
		said, _, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + url}, "doctor", "-o", "json")
		return said, code
	}
	if said, _ := look(database); !strings.Contains(said, "empty database") || relations(t, database) != "" {
		t.Errorf("of an empty database it said: %s", said)
	}
	hubproc.Start(t, hubproc.On(database, hubproc.MasterKey(t)))
	if said, _ := look(database); !strings.Contains(said, "this program can use it") {
		t.Errorf("of a hub's database it said: %s", said)
	}
	if said, code := look(prepared(t, "CREATE TABLE invoices (id integer)")); code != 1 || !strings.Contains(said, "another program's") {
		t.Errorf("of another program's database it ended with %d and said: %s", code, said)
	}
}

// A hub in PostgreSQL is not backed up as if it were in a directory.
func TestBackupOfADatabaseSaysWhatToUse(t *testing.T) {
	_, said, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + hubproc.Database(t)}, "backup", "--to", "x")
	if code != 2 || !oneLine(said) || !strings.Contains(said, "pg_dump") {
		t.Errorf("it ended with %d and said: %s", code, said)
	}
}

// A server that is too old is refused by its version. There is none on most machines; name
// its programs in the environment variable to run this.
func TestAServerThatIsTooOldIsRefused(t *testing.T) {
	const variable = "HOLDFAST_TEST_POSTGRES_TOO_OLD"
	bin := os.Getenv(variable)
	if bin == "" {
		t.Skip("no PostgreSQL 13 or older in " + variable)
	}
	server, err := pgtest.Start(t.Context(), pgtest.Options{Bin: bin})
	must(t, err)
	defer func() { must(t, server.Stop()) }()
	must(t, server.Create(t.Context(), "hub", ""))
	_, said, code := run(t, []string{"HOLDFAST_DATABASE_URL=" + server.URL("hub"), "HOLDFAST_MASTER_KEY=" + hubproc.MasterKey(t)}, "serve", "--listen", "127.0.0.1:0")
	if code != 1 || !oneLine(said) || !strings.Contains(said, "PostgreSQL 13") || !strings.Contains(said, "14 or later") {
		t.Errorf("it ended with %d and said: %s", code, said)
	}
	if names := relations(t, server.URL("hub")); names != "" {
		t.Errorf("it left these tables behind: %s", names)
	}
}
