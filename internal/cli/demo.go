package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

const demoHelp = `Show a hub at work, on a free port of this machine: tasks are sent before anybody is
there to do them, the hub is killed without warning (kill -9), twice, and nothing is
lost. The agents do real, if small work on your TEXT: one delegates to another, one
asks you something, one takes long and tells how far it is, one fails.

Afterwards the hub stays up until Ctrl-C, with commands to try. With --once it ends
with exit code 0 if all went as it should, else 1.`

// demoText is worked on if there is no other.
const demoText = "It was a bright cold day in April, and the clocks were striking thirteen."

// demoTime bounds the story, which takes a few seconds.
const demoTime = 60 * time.Second

func (p *program) demoCommand() *cobra.Command {
	var (
		once bool
		data string
	)
	cmd := &cobra.Command{
		Use: "demo [TEXT]", Short: "See a hub at work, being killed and losing nothing", Long: demoHelp,
		Example: `  holdfast demo
  holdfast demo --once "your own text"`,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if strings.TrimSpace(text) == "" {
				text = demoText
			}
			return p.demo(cmd.Context(), text, data, once)
		}),
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the story, with exit code 0 if nothing was lost")
	cmd.Flags().StringVar(&data, "data", "", "data directory to use and keep; a temporary one by default")
	return cmd
}

// demo is the story and its cast.
type demo struct {
	p     *program
	text  string
	hub   *demoHub
	you   *client.Client
	token map[string]string // by handle
	start time.Time
	crew  sync.WaitGroup
}

func (p *program) demo(ctx context.Context, text, data string, once bool) (err error) {
	d := &demo{p: p, text: text, token: map[string]string{}, start: time.Now()}
	if data == "" {
		if data, err = os.MkdirTemp("", "holdfast-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(data)
		data = filepath.Join(data, "data")
	}
	ctx, dismiss := context.WithCancel(ctx)
	defer d.crew.Wait()
	defer dismiss()
	d.hub, err = p.demoHub(data)
	if err != nil {
		return err
	}
	defer d.hub.stop()
	story, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	if err := d.play(story, ctx); err != nil {
		if ctx.Err() == nil && story.Err() != nil {
			err = fmt.Errorf("the demo did not come to its end within %s: %w", demoTime, err)
		}
		return errors.Join(err, d.hub.lastWords())
	}
	if once {
		return nil
	}
	d.encore()
	return d.hub.stay(ctx)
}

// say prints a line of the story.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.p.out, "%5.1fs  %s\n", time.Since(d.start).Seconds(), clean(fmt.Sprintf(format, args...)))
}

// play tells the story. The workers live as long as crew, which goes on afterwards.
func (d *demo) play(ctx, crew context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	sent, err := d.send(ctx)
	if err != nil {
		return err
	}
	d.say("Nobody is there to do them: no worker is running. So far each is a row on the disk.")
	if err := d.crash(ctx); err != nil {
		return err
	}
	if err := d.recount(ctx, sent); err != nil {
		return err
	}
	d.hire(crew)
	ends, err := d.watch(ctx, sent)
	if err != nil {
		return err
	}
	return d.verdict(ends)
}

// open starts the hub and makes the addresses.
func (d *demo) open(ctx context.Context) error {
	if err := d.hub.start(ctx); err != nil {
		return err
	}
	d.say("A hub is up at %s, as process %d. It keeps its data in %s.", d.hub.url, d.hub.pid(), d.hub.data)
	admin := d.p.clientOf(d.hub.url, d.hub.admin)
	open := "open"
	for _, a := range append([]demoAgent{{handle: demoYou, does: "sends the tasks"}}, demoAgents()...) {
		_, err := admin.CreateAgent(ctx, client.AgentRequest{Handle: a.handle, Description: &a.does, Access: &open})
		if err != nil && !errors.Is(err, client.ErrConflict) { // from an earlier demo on the same data
			return fmt.Errorf("make the address @%s: %w", a.handle, err)
		}
		t, err := admin.CreateToken(ctx, a.handle, client.TokenRequest{Name: "demo"})
		if err != nil {
			return fmt.Errorf("make a token for @%s: %w", a.handle, err)
		}
		d.token[a.handle] = t.Token
	}
	d.you = d.client(demoYou)
	return nil
}

// client makes a client that gets over the hub's deaths, and quietly: that is the
// story.
func (d *demo) client(handle string) *client.Client {
	return client.New(d.hub.url, d.token[handle], client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithRetry(client.Retry{Tries: 300, Min: 20 * time.Millisecond, Max: 200 * time.Millisecond}))
}

// send sends a task to each agent that is called directly.
func (d *demo) send(ctx context.Context) ([]*client.Task, error) {
	var sent []*client.Task
	for _, a := range demoAgents() {
		if a.expect == nil {
			continue
		}
		t, err := d.you.Send(ctx, a.handle, d.text, client.WithTags(map[string]string{"demo": a.handle}))
		if err != nil {
			return nil, fmt.Errorf("send to @%s: %w", a.handle, err)
		}
		d.say("Sent to @%s, which %s: task %s is on the disk.", a.handle, a.does, t.ID)
		sent = append(sent, t)
	}
	return sent, nil
}

// crash kills the hub and starts it again.
func (d *demo) crash(ctx context.Context) error {
	d.say("kill -9 %d: the hub dies without a chance to save anything.", d.hub.pid())
	if err := d.hub.kill(); err != nil {
		return err
	}
	begin := time.Now()
	if err := d.hub.start(ctx); err != nil {
		return err
	}
	d.say("It is up again after %s, as process %d.", time.Since(begin).Round(time.Millisecond), d.hub.pid())
	return nil
}

// recount shows that all tasks are still there.
func (d *demo) recount(ctx context.Context, sent []*client.Task) error {
	pending := map[string]bool{}
	hint := ""
	for t, err := range d.you.Pending(ctx) {
		if err != nil {
			return err
		}
		pending[t.ID], hint = true, t.Hint
	}
	for _, t := range sent {
		if !pending[t.ID] {
			return fmt.Errorf("task %s was lost when the hub was killed", t.ID)
		}
	}
	d.say("All %d tasks are still there. The hub says of the last: %s.", len(sent), hint)
	return nil
}

// newSecret makes an admin token for the demo's hub.
func newSecret() string { return "hfa_demo" + rand.Text() }

// encore tells what to try next.
func (d *demo) encore() {
	name := d.commandName()
	fmt.Fprintf(d.p.out, `
The hub and its agents stay up until Ctrl-C. To try more, in another terminal:

  export HOLDFAST_URL=%s HOLDFAST_TOKEN=%s
%s
  holdfast send @writer "count the words of this" --wait
  holdfast send @slow "one two three" --stream
  holdfast send @clerk "book a table" --wait   # asks; answer as it says
  holdfast send @nobody "wait for me"          # nobody works there
  holdfast pending
  holdfast poll @nobody
  HOLDFAST_TOKEN=%s holdfast next              # be @nobody's worker, then: holdfast reply …
  holdfast list tasks
  holdfast activity --follow
  HOLDFAST_TOKEN=%s holdfast work --exec "tr a-z A-Z"
`, d.hub.url, d.token[demoYou], name, d.token[demoNobody], d.token[demoNobody])
}

// commandName makes "holdfast" work where this program is not on the path.
func (d *demo) commandName() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	if found, err := exec.LookPath("holdfast"); err == nil && sameFile(found, self) {
		return ""
	}
	return fmt.Sprintf("  holdfast() { '%s' \"$@\"; }\n", strings.ReplaceAll(self, "'", `'\''`))
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
