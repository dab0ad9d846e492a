package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/relaypath"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// stationPause is how long a hub that cannot be reached is left alone.
const stationPause = 3 * time.Second

const tunnelHelp = `Connect an agent that the hub cannot reach: on a laptop, or behind a firewall. This
opens one WebSocket to the hub, and the hub brings the agent its tasks through that. The
agent is an A2A server at --to, or a command that is run for each task with --exec (see
"holdfast work --help" for what it finds and what its exit code means).

--slots is how many tasks the agent works on at once. Several tunnels of one address,
here or elsewhere, share its work. Each is an instance with a name of its own; one that
connects again under its name takes its own place, and has its tasks still if it was away
for less than 45 seconds.

With --relay PREFIX outside services, which have no token, reach the paths of the local
server that begin with PREFIX, at HUB/t/{handle}PREFIX…, to call the agent back, if the
address opens them, too ("holdfast agents set --relay-paths"). Nothing is open otherwise.

The tunnel is kept open until Ctrl-C, which lets the tasks that are under way finish: when
it is lost, it is opened again. With the
agent's own token @handle may be left out; with the admin token, a token of the address is
made for as long as this runs.`

type tunnelFlags struct {
	to, exec, instance string
	json, once         bool
	slots              int
	drain              time.Duration
	relay              []string
}

func (p *program) tunnelCommand() *cobra.Command {
	var f tunnelFlags
	cmd := &cobra.Command{
		Use: "tunnel [@handle]", Short: "Connect an agent that the hub cannot reach", Long: tunnelHelp,
		Example: `  holdfast tunnel @coder --to http://localhost:9000 --slots 4
  holdfast tunnel @upper --exec "tr a-z A-Z"
  holdfast tunnel @coder --to http://localhost:9000 --relay /hooks/`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			target, err := f.check()
			if err != nil {
				return err
			}
			return p.tunnel(cmd.Context(), f, target, args)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "", "URL of the agent's A2A server, such as http://localhost:9000")
	fl.StringVar(&f.exec, "exec", "", "shell command to run for each task, in place of a server")
	fl.BoolVar(&f.json, "json", false, "with --exec: stdout is JSON and becomes a data part")
	fl.IntVar(&f.slots, "slots", 1, "how many tasks the agent works on at once")
	fl.StringVar(&f.instance, "instance", "", "name of this copy of the agent (the host's name, and a few characters made from --to or --exec)")
	fl.StringArrayVar(&f.relay, "relay", nil, "beginning of the paths that outside services may reach; may be given more than once")
	fl.DurationVar(&f.drain, "drain", time.Minute, "how long tasks that are under way may take to finish after Ctrl-C")
	fl.BoolVar(&f.once, "once", false, "end when the hub cannot be reached or the tunnel is lost, in place of trying again")
	return cmd
}

// check checks the flags, and gives the URL of the local server, nil for a command.
func (f *tunnelFlags) check() (*url.URL, error) {
	if (f.to == "") == (f.exec == "") {
		return nil, usagef("give either --to, the URL of the agent's server, or --exec, the command to run for each task")
	}
	if f.slots < 1 || f.slots > tunnelconn.MaxSlots {
		return nil, usagef("--slots has to be 1 to %d", tunnelconn.MaxSlots)
	}
	if f.exec != "" && len(f.relay) > 0 {
		return nil, usagef("--relay goes with --to: a command has no server that requests could go to")
	}
	if f.json && f.exec == "" {
		return nil, usagef("--json goes with --exec")
	}
	if err := relaypath.CheckPrefixes(f.relay); err != nil {
		return nil, usagef("--relay: %v", err)
	}
	if f.exec != "" {
		return nil, nil //nolint:nilnil // there is no server
	}
	u, err := url.Parse(f.to)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, usagef("--to has to be the URL of the agent's server, such as http://localhost:9000, without user, query or fragment")
	}
	return u, nil
}

func (p *program) tunnel(ctx context.Context, f tunnelFlags, target *url.URL, args []string) error {
	s, err := p.patientStation(ctx, f.once, args)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer s.leave()
	opt := tunnelclient.Options{
		URL: s.c.URL(), Token: s.token, Instance: first(f.instance, instanceName(s.handle, f)), Slots: f.slots,
		Target: target, Relay: f.relay, Once: f.once, Drain: f.drain, Note: p.say,
	}
	if target != nil {
		opt.Handler = tunnelclient.Proxy(target, f.relay)
	} else {
		opt.Handler = p.commandAgent(s, f)
	}
	p.say(fmt.Sprintf("Opening a tunnel of @%s to %s; Ctrl-C to stop.", s.handle, opt.URL))
	return tunnelEnd(tunnelclient.Run(ctx, opt), opt.Instance)
}

// say tells the user how things stand.
func (p *program) say(line string) {
	if p.words() {
		p.note("%s", line)
	}
}

// patientStation is station that waits for a hub that cannot be reached, unless once.
func (p *program) patientStation(ctx context.Context, once bool, args []string) (station, error) {
	for {
		s, err := p.station(ctx, args)
		if once || !errors.Is(err, client.ErrUnreachable) || ctx.Err() != nil {
			return s, err
		}
		p.say(fmt.Sprintf("%s cannot be reached; trying again in %s.", p.hub.used, stationPause))
		t := time.NewTimer(stationPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return station{}, nil
		}
	}
}

// instanceName is a name that stays the same for the same agent on this machine.
func instanceName(handle string, f tunnelFlags) string {
	host, _ := os.Hostname() // only a name
	host = strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '-'
	}, first(host, "machine"))
	sum := sha256.Sum256([]byte(handle + "\x00" + f.to + "\x00" + f.exec))
	return host[:min(len(host), 60)] + "-" + hex.EncodeToString(sum[:3])
}

// tunnelEnd says what the end of a tunnel means for the user.
func tunnelEnd(err error, instance string) error {
	switch {
	case errors.Is(err, tunnelclient.ErrRefused):
		return &failure{exit: exitNotAllowed, code: "not_permitted", message: err.Error(), hint: "Use a token of the agent's address: holdfast tokens add @handle"}
	case errors.Is(err, tunnelclient.ErrReplaced):
		return &failure{exit: exitConflict, code: "conflict", message: fmt.Sprintf("another tunnel was opened as %s, and has taken the place of this one", instance), hint: "Give each copy of the agent a name of its own with --instance."}
	case errors.Is(err, tunnelclient.ErrInvalid):
		return &failure{exit: exitUsage, code: "invalid", message: err.Error()}
	case errors.Is(err, tunnelclient.ErrLost):
		return &failure{exit: exitUnreachable, code: "unreachable", message: err.Error(), hint: "Without --once it is tried again."}
	}
	return err
}
