package remotea2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// lookLimit is how long somebody who wants to see a card waits for the agent's own,
	// and lookAgain how long it is left alone when it could not be read.
	lookLimit = 2 * time.Second
	lookAgain = 30 * time.Second

	// What is kept of a card at most: bytes of a name, of a text, and of all skills
	// together; elements of a list, and skills.
	nameMax, textMax, factsMax = 200, 2_000, 64 << 10
	listMax, skillsMax         = 20, 100
)

// known is what the agents of addresses say of themselves, by the addresses' ids.
type known struct {
	mu sync.Mutex
	m  map[string]knownFacts
}

// knownFacts is what the agent of one endpoint says. Another endpoint, one with another
// credential included, may say something else.
type knownFacts struct {
	url    string
	sealed []byte
	facts  *hub.AgentFacts
	until  time.Time // it is not asked again
}

// of gives what is known of an endpoint of an address.
func (k *known) of(address string, e *hub.Endpoint) (knownFacts, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.m[address]
	return f, ok && f.url == e.URL && bytes.Equal(f.sealed, e.Sealed)
}

func (k *known) keep(address string, e *hub.Endpoint, facts *hub.AgentFacts, life time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil || len(k.m) >= agentsMax {
		k.m = make(map[string]knownFacts)
	}
	k.m[address] = knownFacts{e.URL, e.Sealed, facts, time.Now().Add(life)}
}

// Look implements hub.Agents.
func (d *Deliverer) Look(ctx context.Context, a *hub.Address) {
	e := a.Endpoint
	if e == nil || e.Kind != hub.RemoteDelivery {
		return
	}
	before, ok := d.known.of(a.ID, e)
	if ok && time.Now().Before(before.until) {
		return
	}
	if !ok {
		before.facts = nil
	}
	d.known.keep(a.ID, e, before.facts, lookAgain) // meanwhile nobody else asks, either
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	p, err := d.open(ctx, *e, a.ID)
	if err == nil {
		_, err = d.agents.read(ctx, p)
	}
	if err == nil {
		return
	}
	if errors.Is(err, errSignature) {
		d.known.keep(a.ID, e, nil, lookAgain)
	}
	d.opt.Log.InfoContext(ctx, "the card of an agent could not be read, to be shown", "address", a.ID, "reason", outcomeOf(err, true).Reason)
}

// Facts implements hub.Agents.
func (d *Deliverer) Facts(a *hub.Address) *hub.AgentFacts {
	if a.Endpoint == nil || a.Endpoint.Kind != hub.RemoteDelivery {
		return nil
	}
	if f, ok := d.known.of(a.ID, a.Endpoint); ok {
		return f.facts
	}
	return nil
}

// factsOf is what a card says that the hub repeats: what the agent does, and nothing of
// where it is, how it is called, and who signs that.
func factsOf(base *url.URL, card []byte) *hub.AgentFacts {
	var c struct {
		Description, Version                  string
		Provider                              struct{ Organization, URL string }
		DefaultInputModes, DefaultOutputModes []string
		Skills                                []hub.AgentSkill
	}
	_ = json.Unmarshal(card, &c) // what has another form than it should is left out
	f := &hub.AgentFacts{
		Description: clip(c.Description, textMax), Version: clip(c.Version, nameMax),
		Organization: clip(c.Provider.Organization, nameMax),
		InputModes:   clipAll(c.DefaultInputModes, nameMax), OutputModes: clipAll(c.DefaultOutputModes, nameMax),
	}
	if u, err := url.Parse(c.Provider.URL); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil &&
		!strings.EqualFold(u.Hostname(), base.Hostname()) && len(c.Provider.URL) <= textMax {
		f.OrganizationURL = c.Provider.URL
	}
	size := 0
	for _, s := range c.Skills {
		s = clipSkill(s)
		if size += sizeOf(s); len(f.Skills) == skillsMax || size > factsMax {
			break
		}
		if s.ID != "" || s.Name != "" {
			f.Skills = append(f.Skills, s)
		}
	}
	return f
}

func clipSkill(s hub.AgentSkill) hub.AgentSkill {
	return hub.AgentSkill{
		ID: clip(s.ID, nameMax), Name: clip(s.Name, nameMax), Description: clip(s.Description, textMax),
		Tags: clipAll(s.Tags, nameMax), Examples: clipAll(s.Examples, textMax),
		InputModes: clipAll(s.InputModes, nameMax), OutputModes: clipAll(s.OutputModes, nameMax),
	}
}

// sizeOf is how many bytes the texts of a skill have.
func sizeOf(s hub.AgentSkill) int {
	n := len(s.ID) + len(s.Name) + len(s.Description)
	for _, list := range [][]string{s.Tags, s.Examples, s.InputModes, s.OutputModes} {
		n += len(strings.Join(list, ""))
	}
	return n
}

// clip shortens a text to at most n bytes and an ellipsis.
func clip(s string, n int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// clipAll clips each text of a list, and the list itself.
func clipAll(list []string, n int) (out []string) {
	for _, s := range list {
		if s = clip(s, n); s != "" && len(out) < listMax {
			out = append(out, s)
		}
	}
	return out
}
