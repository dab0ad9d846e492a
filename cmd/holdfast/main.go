// Command holdfast is the hub, and the command line to use it.
package main

import (
	"context"
	"os"

	"github.com/holdfast-hub/holdfast/internal/cli"
)

func main() {
	ctx := cli.Interruptible(context.Background())
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
