// Command holdfast is the hub, and the command line to use it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-hub/holdfast/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
