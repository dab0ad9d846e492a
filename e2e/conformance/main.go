// Command conformance runs the A2A conformance kits (a2aproject/a2a-tck) against a hub,
// from checkouts that the user has, and writes what came out to a file of the
// documentation. It fails when a test fails or is skipped that is not on the list of
// what may (exceptions.go), and when one that passed according to the file no longer
// does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-hub/holdfast/e2e/kit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// run runs the kits that are named, and compares and writes the results.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(errs)
	kit10 := flags.String("tck", "", "the `directory` of a checkout of the kit, branch 1.0-dev")
	kit03 := flags.String("tck03", "", "the `directory` of a checkout of the kit, tag 0.3.0.beta4")
	file := flags.String("results", "docs/conformance-results.md", "the `file` to compare with and to write")
	accept := flags.Bool("accept", false, "write the results although some are worse than before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kit10 == "" && *kit03 == "" {
		return errors.New("name a checkout of the kit: make conformance TCK=dir [TCK03=dir]; one comes from git clone --branch 1.0-dev https://github.com/a2aproject/a2a-tck")
	}
	before, err := readResults(*file)
	if err != nil {
		return err
	}
	now, err := measure(ctx, *kit10, *kit03, out)
	if err != nil {
		return err
	}
	now.keep(before)
	err = errors.Join(now.problems(), now.worseThan(before))
	fmt.Fprint(out, now.summary())
	if err != nil && !*accept {
		return fmt.Errorf("%s is left as it is:\n%w", *file, err)
	}
	return errors.Join(now.write(*file), err)
}

// measure runs the kits against a new hub.
func measure(ctx context.Context, kit10, kit03 string, out io.Writer) (_ *results, err error) {
	h, err := kit.Start(ctx, kit.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	tmp, err := os.MkdirTemp("", "holdfast-conformance-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for reports: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	r := &results{tables: map[string]*table{}}
	if kit10 != "" {
		if err := measure10(ctx, r, checkout{dir: kit10, tmp: tmp, out: out}, h); err != nil {
			return nil, err
		}
	}
	if kit03 != "" {
		if err := measure03(ctx, r, checkout{dir: kit03, tmp: tmp, out: out}, h); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// measure10 runs the kit for 1.0: all of it at the address that can do everything, and
// what was skipped there, for want of something to refuse, at the one that cannot.
func measure10(ctx context.Context, r *results, c checkout, h *kit.Hub) error {
	report := filepath.Join(c.tmp, "full")
	full, err := c.pytest(ctx, report, "tests/compatibility/", "--sut-host="+h.Host(kit.Full), "--compatibility-report="+report)
	if err != nil {
		return err
	}
	requirements, err := readRequirements(report + ".json")
	if err != nil {
		return err
	}
	minimal, again := []testCase(nil), map[string]requirement{}
	if skipped := nodesOf(full, skip); len(skipped) > 0 {
		report = filepath.Join(c.tmp, "minimal")
		args := append([]string{"--sut-host=" + h.Host(kit.Minimal), "--compatibility-report=" + report}, skipped...)
		if minimal, err = c.pytest(ctx, report, args...); err != nil {
			return err
		}
		if again, err = readRequirements(report + ".json"); err != nil {
			return err
		}
	}
	r.add10(c.about(ctx), requirements, again, merge(full, minimal))
	return nil
}

// transports03 are the transports that the kit for 0.3 knows, and its names for them.
var transports03 = []struct{ name, key, card string }{
	{"JSON-RPC", "jsonrpc", "JSONRPC"}, {"HTTP+JSON", "rest", "HTTP+JSON"}, {"gRPC", "grpc", "GRPC"},
}

// measure03 runs two categories of the kit for 0.3 over each transport.
func measure03(ctx context.Context, r *results, c checkout, h *kit.Hub) error {
	card, err := cardOf(ctx, h.Old)
	if err != nil {
		return err
	}
	cases := map[string][]testCase{}
	for _, t := range transports03 {
		if !strings.Contains(card, `"`+t.card+`"`) { // the kit would take another one without a word
			return fmt.Errorf("the card of 0.3 does not offer %s: %s", t.name, card)
		}
		for category, args := range map[string][]string{
			"mandatory":    {"tests/mandatory/", "-m", "mandatory_jsonrpc or mandatory_protocol"},
			"capabilities": {"tests/optional/capabilities/"},
		} {
			more := []string{"--test-scope=all", "--transport-strategy=prefer_" + t.key}
			args = append(append(args, "--sut-url="+h.Old), more...)
			got, err := c.pytest(ctx, filepath.Join(c.tmp, "old-"+category+t.key), args...)
			if err != nil {
				return err
			}
			if got, err = c.guarded(ctx, "guarded-"+category+t.key, got, more); err != nil {
				return err
			}
			for i := range got {
				got[i].level, got[i].over = category, t.name
			}
			cases[t.name] = append(cases[t.name], got...)
		}
	}
	r.add03(c.about(ctx), cases)
	return nil
}

// guarded runs the tests that found no credentials and no TLS once more, against a hub that
// has both. That hub takes nothing of a client without a token, as the kit is, so it does
// for these alone.
func (c checkout) guarded(ctx context.Context, name string, first []testCase, args []string) (_ []testCase, err error) {
	var again []string
	for _, t := range first {
		if unguarded(t) {
			again = append(again, t.node)
		}
	}
	if len(again) == 0 {
		return first, nil
	}
	h, err := kit.Start(ctx, kit.Options{Listen: "127.0.0.1:0", Guarded: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	c.env = []string{"REQUESTS_CA_BUNDLE=" + h.Roots, "SSL_CERT_FILE=" + h.Roots, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" + h.Roots}
	second, err := c.pytest(ctx, filepath.Join(c.tmp, name), append(append(args, "--sut-url="+h.Old), again...)...)
	if err != nil {
		return nil, err
	}
	return mergeAll(first, second), nil
}

// cardOf reads the card at the root of a host.
func cardOf(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+".well-known/agent-card.json", nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("read the card: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return string(body), err
}

// shorten makes a test's name fit into a table.
func shorten(node string) string {
	parts := strings.Split(node, "::")
	return parts[len(parts)-1]
}
