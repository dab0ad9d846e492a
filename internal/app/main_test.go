package app

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a hub leaves goroutines behind. Those of the tests' own idle
// client connections do not count.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}
