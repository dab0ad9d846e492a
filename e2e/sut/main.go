// Command sut runs the system under test for the A2A conformance kit: a hub for
// anonymous callers and a callee that plays the kit's scenarios, until it is
// interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/kit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sut:", err)
		os.Exit(1)
	}
}

// run runs the hub until ctx ends.
func run(ctx context.Context, args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("sut", flag.ContinueOnError)
	flags.SetOutput(errs)
	listen := flags.String("listen", "127.0.0.1:9999", "the `address` to listen on, on this machine")
	streaming := flags.Duration("streaming-timeout", 2*time.Second, "the kit's TCK_STREAMING_TIMEOUT")
	if err := flags.Parse(args); err != nil {
		return err
	}
	h, err := kit.Start(ctx, kit.Options{
		Listen: *listen, Streaming: *streaming,
		Log: slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, banner, h.Card(kit.Full), h.Host(kit.Full), h.Host(kit.Minimal), h.Old)
	<-ctx.Done()
	return h.Close()
}

const banner = `The address to be tested is %s,
and has hosts of its own, for kits that know of nothing but hosts.

The conformance kit can be run from its checkout, with everything on:

    ./run_tck.py --sut-host %s

and what an agent without streaming and the like must refuse, with:

    ./run_tck.py --sut-host %s -- -k "TestCapability"

The kit for 0.3 can be run with:

    ./run_tck.py --category mandatory --sut-url %s

To run all of it and write down the results, use make conformance instead. Ctrl-C ends
this.
`
