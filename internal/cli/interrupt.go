package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible gives a context that ends with the first Ctrl-C or SIGTERM. The second
// ends the program at once, however soon it comes.
func Interruptible(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx
}
