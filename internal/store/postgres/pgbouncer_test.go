package postgres

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// bouncer starts PgBouncer in transaction mode in front of the server of all tests, with
// fewer connections to it than its clients have, and gives its address.
func bouncer(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	dir, err := os.MkdirTemp("", "pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("[databases]\n* = user="+pgtest.User+" host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n", server(t).Port(), addr.Port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: ordinary(t)}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	await(t, "PgBouncer listens", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr.String())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr.String()
}

// ordinary is whom to run as what refuses to run as root; nil if this is not root.
func ordinary(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		t.Fatal(uidErr, gidErr)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Behind PgBouncer, where the statements of a connection meet another server process in
// each transaction, replicas do all they do without it. Only those from 1.21 on know of
// prepared statements; the setting for older ones works for all.
func TestReplicasBehindPgBouncer(t *testing.T) {
	direct := emptyDatabase(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = bouncer(t), "sslmode=disable&default_query_exec_mode=cache_describe"
	told := make(chan hub.Change, 10_000)
	var list []*Store
	for range 2 {
		list = append(list, open(t, Options{URL: u.String(), DirectURL: direct, Conns: 6, Changed: func(c hub.Change) {
			select {
			case told <- c:
			default:
			}
		}}))
	}
	ann, dev := address(t, list[0], "ann"), address(t, list[1], "dev")
	const each = 25
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range each {
				if _, err := list[(i+n)%2].Send(t.Context(), newSend(ann, dev)); err != nil {
					t.Error(err)
					return
				}
				k, err := list[(i+n+1)%2].Claim(t.Context(), dev, hub.ClaimSpec{Lease: time.Minute})
				if err != nil || k.Task == nil {
					continue // what another has locked is passed over
				}
				if _, err := list[(i+n)%2].Report(t.Context(), completed(k.Task)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for {
		k, err := list[0].Claim(t.Context(), dev, hub.ClaimSpec{Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if k.Task == nil {
			break
		}
		if _, err := list[1].Report(t.Context(), completed(k.Task)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := list[0].Tasks(t.Context(), hub.TaskFilter{By: hub.Viewer{All: true}, State: hub.Completed, Total: true, Limit: 1})
	if err != nil || page.Total != 8*each {
		t.Errorf("%d tasks are completed, want %d; error %v", page.Total, 8*each, err)
	}
	if len(told) == 0 {
		t.Error("no replica was told of what another has changed")
	}
	roll(t, list[0])
	if !has(t, list[0], weekOf(time.Now())) {
		t.Error("the week has no partitions")
	}
	c, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	var conns int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'").Scan(&conns); err != nil {
		t.Fatal(err)
	}
	if conns > 3+2+1 {
		t.Errorf("the server has %d connections of two replicas, want those of the pooler and one past it for each", conns)
	}
}
