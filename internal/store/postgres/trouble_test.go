package postgres

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// A database that cannot be used is refused in one line that says what to do, and is left
// as it is.
func TestADatabaseThatCannotBeUsedIsRefusedInOneLine(t *testing.T) {
	srv := server(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	// prepared is an empty database in which statements were run.
	prepared := func(statements ...string) string {
		url := emptyDatabase(t)
		name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
		for _, sql := range statements {
			if err := srv.Exec(t.Context(), name, sql); err != nil {
				t.Fatal(err)
			}
		}
		return url
	}
	as := func(user, password, url string) string {
		return strings.Replace(url, pgtest.User+"@", user+":"+strings.ReplaceAll(password, " ", "%20")+"@", 1)
	}
	for name, c := range map[string]struct {
		url  string
		kind hub.Kind
		says []string
	}{
		"no URL":            {"host=localhost", hub.Invalid, []string{"postgres://"}},
		"half a URL":        {"postgres://u:secret@host:port/x", hub.Invalid, []string{"postgres://user:password@host"}},
		"another server":    {"postgres://u:secret@" + closed + "/x?sslmode=disable", hub.Unavailable, []string{closed, "cannot be reached"}},
		"an unknown host":   {"postgres://u:secret@nowhere.invalid/x", hub.Unavailable, []string{"nowhere.invalid", "cannot be reached"}},
		"a wrong password":  {as(pgtest.Guest, "secret", srv.URL("postgres")), hub.Invalid, []string{"refuses the user", pgtest.Guest}},
		"no such database":  {srv.URL("nothing"), hub.Invalid, []string{"does not exist", "CREATE DATABASE"}},
		"no rights":         {as(pgtest.Guest, pgtest.Password, prepared("REVOKE CREATE ON SCHEMA public FROM PUBLIC")), hub.Invalid, []string{"may not create", "OWNER"}},
		"another program's": {prepared("CREATE TABLE invoices (id integer)"), hub.Invalid, []string{"another program's"}},
		"another program's, which also has goose": {
			prepared("CREATE TABLE goose_db_version (version_id bigint, is_applied boolean)", "CREATE TABLE meta (key text, value text)"),
			hub.Invalid, []string{"another program's"},
		},
		"a newer Holdfast's": {prepared("CREATE TABLE goose_db_version (version_id bigint, is_applied boolean)", "CREATE TABLE meta (key text, value text)",
			"INSERT INTO meta VALUES ('application', 'holdfast'), ('oldest_binary', '99')"), hub.Invalid, []string{"newer Holdfast", "99"}},
		"another encoding":    {latin(t, srv), hub.Invalid, []string{"LATIN1", "UTF8"}},
		"the simple protocol": {srv.URL("postgres") + "&default_query_exec_mode=simple_protocol", hub.Invalid, []string{"default_query_exec_mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := relations(t, c.url, c.kind)
			s, err := Open(t.Context(), Options{URL: c.url})
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			e := refusedBy(err)
			if e == nil || e.Kind != c.kind {
				t.Fatalf("it was refused with %v", err)
			}
			for _, word := range c.says {
				if !strings.Contains(e.Message, word) {
					t.Errorf("the refusal %q does not say %q", e.Message, word)
				}
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(e.Message, "\n") {
				t.Errorf("the refusal shows the password, or is no single line: %v", err)
			}
			if after := relations(t, c.url, c.kind); after != before {
				t.Errorf("its tables were %s and are %s", before, after)
			}
		})
	}
}

// latin gives the URL of a database with another encoding.
func latin(t *testing.T, srv *pgtest.Server) string {
	t.Helper()
	if err := srv.Exec(t.Context(), "postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Drop(context.Background(), "latin") })
	return srv.URL("latin")
}

// relations lists the tables of a database, as far as it can be asked.
func relations(t *testing.T, url string, kind hub.Kind) (names string) {
	t.Helper()
	if kind != hub.Invalid {
		return ""
	}
	cfg, err := poolConfig(&Options{URL: url, Conns: 1})
	if err != nil {
		return ""
	}
	c, err := connect(t.Context(), cfg.ConnConfig)
	if err != nil {
		return ""
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), "SELECT coalesce(string_agg(relname, ',' ORDER BY relname), '') FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAnOlderServerIsRefused(t *testing.T) {
	for number, version := range map[int]string{130_011: "13.11", 90_624: "9.6.24"} {
		err := checkVersion(number, version)
		if hub.KindOf(err) != hub.Invalid || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "14") {
			t.Errorf("PostgreSQL %s was answered with %v", version, err)
		}
	}
	if err := checkVersion(140_000, "14.0"); err != nil {
		t.Error(err)
	}
}

// While the database is down everything is refused in time; when it is back, all that was
// acknowledged is there and all goes on by itself.
func TestTheDatabaseCrashesAndComesBack(t *testing.T) {
	server(t) // which skips where there is none
	srv, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true})
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
	s := open(t, Options{URL: srv.URL("hub"), Patience: time.Second})
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	var acknowledged []string
	var count atomic.Int64
	sending, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { // somebody sends all the time
		defer close(stopped)
		for sending.Err() == nil {
			sent, err := s.Send(context.Background(), newSend(ann, dev))
			if err == nil {
				acknowledged = append(acknowledged, sent.Task.ID)
				count.Add(1)
			} else if hub.KindOf(err) != hub.Unavailable || refusedBy(err).RetryAfter == 0 {
				t.Errorf("a send got %v, want unavailable and when to come back", err)
			}
		}
	}()
	defer func() { stop(); <-stopped }()
	await(t, "sends are taken", func() bool { return count.Load() > 50 })
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "it says that it is not well", func() bool { return hub.KindOf(s.Ping(t.Context())) == hub.Unavailable })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = s.Claim(ctx, dev, hub.ClaimSpec{Lease: time.Minute})
	if hub.KindOf(err) != hub.Unavailable || time.Since(began) > 2*time.Second {
		t.Errorf("after %s a claim got %v", time.Since(began), err)
	}
	_, err = s.Address(ctx, "ann")
	if hub.KindOf(err) != hub.Unavailable {
		t.Errorf("a read got %v", err)
	}
	if err := srv.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "it is well again", func() bool { return s.Ping(t.Context()) == nil })
	await(t, "a send is taken", func() bool {
		_, err := s.Send(t.Context(), newSend(ann, dev))
		return err == nil
	})
	stop()
	<-stopped
	t.Logf("%d sends were acknowledged", len(acknowledged))
	for _, id := range acknowledged {
		if _, err := s.Task(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, hub.Load{History: -1}); err != nil {
			t.Errorf("the task %s, which was acknowledged: %v", id, err)
		}
	}
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for until := time.Now().Add(30 * time.Second); !is(); <-every.C {
		if time.Now().After(until) {
			t.Fatalf("it does not come to this: %s", what)
		}
	}
}

// An unanswered commit is looked up, so that what happened is not called a failure.
func TestACommitWhoseAnswerIsLostIsLookedUp(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	for _, finish := range []string{"COMMIT", "ROLLBACK"} {
		var x tx
		x.s, x.era = s, s.era.Load()
		c, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"BEGIN", "INSERT INTO meta VALUES ('x', 'y')"} {
			if _, err := c.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&x.xid); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(t.Context(), finish); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(t.Context(), "DELETE FROM meta WHERE key = 'x'"); err != nil {
			t.Fatal(err)
		}
		c.Release()
		err = s.afterCommit(&x, nil, net.ErrClosed)
		if (err == nil) != (finish == "COMMIT") || err != nil && hub.KindOf(err) != hub.Unavailable {
			t.Errorf("after %s it was said: %v", finish, err)
		}
	}
}

// What was claimed is whole although all that came with the commit's answer was lost.
func TestAClaimWhoseCommitIsNotAnsweredIsWhole(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	in := newSend(ann, dev)
	if _, err := s.Send(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	callee, err := s.parties.n(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := newTx(t.Context(), s, c.Conn())
	var got hub.Claimed
	err = x.all([]*op{{needs: needs{claim: callee}, run: func(x *tx) (err error) {
		got, err = x.claim(callee, hub.ClaimSpec{Lease: time.Minute})
		return err
	}}})
	if err == nil {
		err = x.commit()
	}
	c.Release()
	if err != nil || got.Task == nil {
		t.Fatalf("claimed %+v, error %v", got, err)
	}
	got.Task.History, got.Task.Artifacts = nil, nil
	if err := s.afterCommit(x, nil, net.ErrClosed); err != nil {
		t.Fatal(err)
	}
	if len(got.Task.History) != 1 || string(got.Task.History[0].Body) != string(in.Message) || got.Task.Artifacts == nil {
		t.Errorf("the claimed task has the history %v and the artifacts %v", got.Task.History, got.Task.Artifacts)
	}
}
