// Package pgtest starts real PostgreSQL servers for tests: as an ordinary user, in a
// temporary directory, on a free port. A server ends with the process that started it,
// however that ends.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrMissing says that this machine has no PostgreSQL.
var ErrMissing = errors.New("PostgreSQL is not installed; on Debian: apt-get install postgresql")

// Options configure a Server.
type Options struct {
	// Bin is the directory with initdb and postgres; what Find finds if empty.
	Bin string
	// Dir is where its temporary directory is made; the system's own if empty.
	Dir string
	// Durable has the server sync to the disk, which tests of anything else do without.
	Durable bool
	// Settings are lines for postgresql.conf.
	Settings []string
}

// Server is a PostgreSQL server of one test process.
type Server struct {
	opt  Options
	dir  string // all of it is below
	port int
	cred *syscall.Credential // nil for our own

	cmd   *exec.Cmd
	alive io.Closer // the server ends when this is closed
	log   string
}

// User may do everything, without a password; Guest has the password Password and may do
// nothing of its own.
const (
	User     = "holdfast"
	Guest    = "guest"
	Password = "let me in"
)

// BinVariable names the environment variable with the directory of initdb and postgres, for
// tests on another version than the newest that is installed.
const BinVariable = "HOLDFAST_TEST_POSTGRES"

// Find gives the directory with the programs of PostgreSQL: that in BinVariable, else that
// of the newest of this machine, or ErrMissing.
func Find() (string, error) {
	if dir := os.Getenv(BinVariable); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			return "", fmt.Errorf("%s names no directory with PostgreSQL's programs: %w", BinVariable, err)
		}
		return filepath.Abs(dir)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		if path, err := exec.LookPath("initdb"); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				return filepath.Dir(path), nil
			}
		}
		return "", ErrMissing
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	sort.Slice(found, func(i, j int) bool { return version(found[i]) > version(found[j]) })
	return filepath.Dir(found[0]), nil
}

// Start makes a new server and starts it. Stop ends it and removes all of it.
func Start(ctx context.Context, opt Options) (_ *Server, err error) {
	if opt.Bin == "" {
		if opt.Bin, err = Find(); err != nil {
			return nil, err
		}
	}
	s := &Server{opt: opt}
	if s.dir, err = os.MkdirTemp(opt.Dir, "pgtest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := s.becomeOrdinary(); err != nil {
		return nil, err
	}
	if err := s.initdb(ctx); err != nil {
		return nil, err
	}
	if s.port, err = freePort(ctx); err != nil {
		return nil, err
	}
	if err := s.configure(); err != nil {
		return nil, err
	}
	if err := s.Up(ctx); err != nil {
		return nil, err
	}
	return s, s.Exec(ctx, "postgres", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", Guest, Password))
}

// becomeOrdinary finds a user to run as, since PostgreSQL refuses to run as root.
func (s *Server) becomeOrdinary() error {
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return os.Mkdir(s.data(), 0o700)
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return fmt.Errorf("find a user to run PostgreSQL as: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if err := os.Mkdir(s.data(), 0o700); err != nil {
		return err
	}
	return errors.Join(os.Chown(s.dir, int(uid), int(gid)), os.Chown(s.data(), int(uid), int(gid)))
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command is one of PostgreSQL's programs, to run as an ordinary user.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC", "HOME=" + s.dir}
	if lib := filepath.Join(filepath.Dir(s.opt.Bin), "lib"); hasFiles(lib) {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+lib)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true}
	return cmd
}

func hasFiles(dir string) bool {
	list, err := os.ReadDir(dir)
	return err == nil && len(list) > 0
}

func (s *Server) initdb(ctx context.Context) error {
	out, err := s.command(ctx, filepath.Join(s.opt.Bin, "initdb"), "-D", s.data(), "-U", User, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// configure writes the server's settings. It listens on the loopback interface alone.
func (s *Server) configure() error {
	lines := []string{
		"listen_addresses = '127.0.0.1'", "port = " + strconv.Itoa(s.port), "unix_socket_directories = ''",
		"max_connections = 200", "shared_buffers = 64MB", "jit = off", "log_checkpoints = off", "timezone = 'UTC'",
		"max_wal_size = 512MB", "log_line_prefix = '%m [%p] %d '",
	}
	if !s.opt.Durable {
		lines = append(lines, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
	}
	lines = append(lines, s.opt.Settings...)
	hba := "host all " + Guest + " 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// startTime is how long a server may take to come up.
const startTime = 60 * time.Second

// Up starts the server, after Down too, and waits until it takes connections.
func (s *Server) Up(ctx context.Context) error {
	s.log = filepath.Join(s.dir, "server.log")
	log, err := os.OpenFile(s.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell waits for the end of its input, which comes when this process ends, and
	// takes the server down then.
	s.cmd = s.command(context.WithoutCancel(ctx), "/bin/sh", "-c",
		`"$0" -D "$1" </dev/null & p=$!; cat >/dev/null; kill -INT $p 2>/dev/null; wait $p`, filepath.Join(s.opt.Bin, "postgres"), s.data())
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.alive, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := s.Exec(limited, "postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limited.Done():
			said, _ := os.ReadFile(s.log)
			return fmt.Errorf("PostgreSQL does not come up: %w\n%s", err, said)
		}
	}
}

// Down stops the server, breaking off what is under way; its data stays.
func (s *Server) Down() error {
	if s.cmd == nil {
		return nil
	}
	err := s.alive.Close()
	_ = s.cmd.Wait() // its exit code tells of the interrupt
	s.cmd = nil
	return err
}

// Kill takes the server down as a crash does, without a checkpoint or a word to anyone.
func (s *Server) Kill() error {
	if s.cmd == nil {
		return nil
	}
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		return err
	}
	_ = s.cmd.Wait()
	s.cmd = nil
	for until := time.Now().Add(startTime); s.running(); time.Sleep(time.Millisecond) { // the others notice by themselves
		if time.Now().After(until) {
			return errors.New("processes of PostgreSQL outlive their server")
		}
	}
	// Where nobody buries the dead, the next server takes this one for alive.
	return os.Remove(filepath.Join(s.data(), "postmaster.pid"))
}

// running reports whether any process works in the data directory.
func (s *Server) running() bool {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return false
	}
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && dir == s.data() {
			return true
		}
	}
	return false
}

// Stop stops the server and removes all of it.
func (s *Server) Stop() error { return errors.Join(s.Down(), os.RemoveAll(s.dir)) }

// Port is the server's port on the loopback interface.
func (s *Server) Port() int { return s.port }

// URL is that of a database, for User.
func (s *Server) URL(database string) string { return s.URLAs(User, "", database) }

// URLAs is that of a database for somebody else.
func (s *Server) URLAs(name, password, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(name), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path: database, RawQuery: "sslmode=disable",
	}
	if password != "" {
		u.User = url.UserPassword(name, password)
	}
	return u.String()
}

// Exec runs a statement in a database, as User.
func (s *Server) Exec(ctx context.Context, database, sql string) error {
	return ExecAt(ctx, s.URL(database), sql)
}

// ExecAt runs a statement in the database at a URL, of a server that another process may
// have started.
func ExecAt(ctx context.Context, url, sql string) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	_, err = c.Exec(ctx, sql)
	return err
}

// Create makes a database, as a copy of another if template is not empty.
func (s *Server) Create(ctx context.Context, name, template string) error {
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		sql += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	}
	return s.Exec(ctx, "postgres", sql)
}

// Drop removes a database with whatever is connected to it.
func (s *Server) Drop(ctx context.Context, name string) error {
	return s.Exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// Log is what the server has written so far.
func (s *Server) Log() string {
	said, _ := os.ReadFile(s.log)
	return string(said)
}
