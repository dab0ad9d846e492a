package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"testing"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// exampleHub runs a hub with the address coder, which h works for, and gives a
// client that may call it.
func exampleHub(h client.Handler) (caller *client.Client, stop func()) {
	tb := &exampleTB{}
	hub := testhub.Start(tb)
	coder := client.New(hub.URL, hub.Agent("coder"))
	caller = client.New(hub.URL, hub.Agent("boss"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := coder.Serve(ctx, h); err != nil {
			log.Print(err)
		}
	}()
	return caller, func() {
		cancel()
		<-done
		coder.Close()
		caller.Close()
		tb.end()
	}
}

func ExampleClient_SendAndWait() {
	c, stop := exampleHub(func(_ context.Context, t *client.Task) (any, error) {
		return "you said: " + t.Text(), nil
	})
	defer stop()

	task, err := c.SendAndWait(context.Background(), "coder", "hello")
	if err != nil {
		log.Fatal(err)
	}
	if err := task.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.State, task.ResultText())
	// Output: completed you said: hello
}

func ExampleClient_Stream() {
	c, stop := exampleHub(func(ctx context.Context, t *client.Task) (any, error) {
		if err := t.Progress(ctx, "reading the tests"); err != nil {
			return nil, err
		}
		return "all green", nil
	})
	defer stop()

	for ev, err := range c.Stream(context.Background(), "coder", "fix the tests") {
		if err != nil {
			log.Fatal(err)
		}
		if text := ev.Text(); text != "" {
			fmt.Println(text)
		}
	}
	// Output:
	// reading the tests
	// all green
}

func ExampleClient_Answer() {
	c, stop := exampleHub(func(ctx context.Context, t *client.Task) (any, error) {
		if colour := t.AnswerText(); colour != "" {
			return t.Text() + ", " + colour, nil
		}
		return nil, t.Ask(ctx, "which colour?")
	})
	defer stop()

	ctx := context.Background()
	task, err := c.SendAndWait(ctx, "coder", "a fence")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.State, task.StatusText())
	if task, err = c.Answer(ctx, task, "green"); err != nil {
		log.Fatal(err)
	}
	if task, err = c.Wait(ctx, "coder", task.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.State, task.ResultText())
	// Output:
	// input_required which colour?
	// completed a fence, green
}

func ExampleClient_Serve() {
	type sum struct{ A, B int }
	c, stop := exampleHub(func(_ context.Context, t *client.Task) (any, error) {
		var in sum
		if err := t.Decode(&in); err != nil {
			return nil, err // fails the task, not the worker
		}
		return map[string]int{"sum": in.A + in.B}, nil
	})
	defer stop()

	for _, input := range []any{sum{2, 3}, "two and three"} {
		task, err := c.SendAndWait(context.Background(), "coder", input)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(task.State, task.ResultData()["sum"])
	}
	// Output:
	// completed 5
	// failed <nil>
}

// exampleTB lets examples use what is made for tests.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                      {}
func (*exampleTB) Context() context.Context     { return context.Background() }
func (*exampleTB) Output() io.Writer            { return io.Discard }
func (*exampleTB) Errorf(f string, args ...any) { log.Printf(f, args...) }
func (*exampleTB) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }
func (tb *exampleTB) Cleanup(f func())          { tb.cleanups = append(tb.cleanups, f) }

func (tb *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (tb *exampleTB) end() {
	for len(tb.cleanups) > 0 {
		last := len(tb.cleanups) - 1
		f := tb.cleanups[last]
		tb.cleanups = tb.cleanups[:last]
		f()
	}
}
