package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net._C2func_getaddrinfo")) // which cannot be interrupted
}

// names is a resolver over a table.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	list, ok := n[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addresses(list...), nil
}

func addresses(list ...string) (addrs []netip.Addr) {
	for _, s := range list {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

// resolverFunc is a resolver that is a function of the name.
type resolverFunc func(host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return f(host)
}

// canary counts the connections to one port of both loopback addresses.
type canary struct {
	port      uint16
	addr      string // the IPv4 one, with the port
	listeners []net.Listener
	wg        sync.WaitGroup
	mu        sync.Mutex
	count     int
	came      chan struct{} // a token per connection
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	c := &canary{came: make(chan struct{}, 10_000)}
	four, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.addr = four.Addr().String()
	c.port = netip.MustParseAddrPort(c.addr).Port()
	c.listen(four)
	if six, err := net.Listen("tcp6", netip.AddrPortFrom(netip.IPv6Loopback(), c.port).String()); err == nil {
		c.listen(six)
	} else {
		t.Logf("no canary on ::1: %v", err)
	}
	t.Cleanup(c.stop)
	return c
}

func (c *canary) listen(l net.Listener) {
	c.listeners = append(c.listeners, l)
	c.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			c.mu.Lock()
			c.count++
			c.mu.Unlock()
			c.came <- struct{}{}
		}
	})
}

func (c *canary) stop() {
	for _, l := range c.listeners {
		l.Close()
	}
	c.wg.Wait()
}

// mustBeUntouched knocks at each listener itself, so that all who knocked before have
// been counted, and looks whether there were others.
func (c *canary) mustBeUntouched(t *testing.T) {
	t.Helper()
	for _, l := range c.listeners {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatalf("the canary is dead: %v", err)
		}
		conn.Read(make([]byte, 1)) // until it was accepted and closed
		conn.Close()
	}
	for range c.listeners {
		<-c.came
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if others := c.count - len(c.listeners); others != 0 {
		t.Errorf("the canary got %d connections", others)
	}
}

// again runs one test of this binary in a process with more environment.
func again(t *testing.T, name string, env ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(env, childEnv+"=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// childEnv is set in the processes that again starts.
const childEnv = "EGRESS_TEST_CHILD"

func isChild() bool { return os.Getenv(childEnv) != "" }

// mustFail fails unless err is an *Error for a reason.
func mustFail(t *testing.T, err error, want Reason) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Reason != want {
		t.Fatalf("got reason %s (%s), want %s", e.Reason, e.Message, want)
	}
	return e
}
