package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// The hub's own deliveries, to webhooks, A2A servers and through tunnels, end each task in
// one state, whichever of hub, tunnel and agent is killed; and what agents have seen is what
// the hub says that it has sent.
func TestCrashOfDeliveries(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	seed := setting(t, "SEED", uint64(time.Now().UnixNano()))
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, seed, hubproc.Options{})
		f.run()
		f.report("at the end", checkCopy(t, f.hubs[0].Dir, f.ledger.snapshot(), true))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		on := hubproc.On(s.server.URL("hub"), hubproc.MasterKey(t))
		f := newFleet(t, seed, on, on)
		f.run()
		s.world = f.world
		f.report("at the end", s.checkDatabase(f.ledger.snapshot(), true))
	})
}

// fleet is a hub, or replicas of one, with agents that it delivers to.
type fleet struct {
	*world
	agents  []*fleetAgent
	senders sync.WaitGroup
	r       *rand.Rand
	done    map[string]int // faults, by kind
	// era is odd while a fault is under way, and counts them.
	era       atomic.Int64
	mu        sync.Mutex
	untouched map[string]bool // tasks that began and ended in one era without a fault
}

// fleetAgent is an address and the processes behind it.
type fleetAgent struct {
	handle  string
	kind    string // webhook, a2a, tunnel or exec
	memory  bool   // it knows its tasks still when it was killed
	streams bool
	log     string   // the file in which it notes what it was sent
	agent   *process // nil for a command
	tunnel  *process // nil where the hub calls the agent by itself
}

// newFleet starts a hub for each of the options, agents of all kinds, and connects them.
func newFleet(t *testing.T, seed uint64, replicas ...hubproc.Options) *fleet {
	agents := []*fleetAgent{
		{handle: "hook", kind: "webhook"},
		{handle: "remembers", kind: "a2a", memory: true, streams: true},
		{handle: "forgets", kind: "a2a"},
		{handle: "behind", kind: "tunnel", memory: true},
		{handle: "dreamer", kind: "tunnel", streams: true},
		{handle: "command", kind: "exec"},
	}
	f := &fleet{agents: agents, done: map[string]int{}, untouched: map[string]bool{}}
	addrs, ports := map[string]string{}, []string{}
	for _, a := range agents {
		addrs[a.handle] = hubproc.FreeAddr(t)
		_, port, _ := net.SplitHostPort(addrs[a.handle])
		ports = append(ports, port)
	}
	for i := range replicas {
		replicas[i].Args = []string{"--egress-allow-local", strings.Join(ports, ","), "--backoff-min", "100ms"}
	}
	f.world = newHubs(t, seed, replicas...)
	f.r = f.random(0)
	var urls []string
	for _, h := range f.hubs {
		urls = append(urls, "http://"+h.Addr)
	}
	for i, a := range agents {
		f.connect(a, addrs[a.handle], urls, urls[i%len(urls)])
	}
	return f
}

// connect makes the address of an agent, and starts what is behind it.
func (f *fleet) connect(a *fleetAgent, addr string, hubs []string, hub string) {
	f.t.Helper()
	api := f.hubs[0].Agent(a.handle, map[string]any{"lease_s": 5})
	f.callees[a.handle] = f.balanced(api)
	a.log = filepath.Join(f.t.TempDir(), "sends")
	target := "--to=http://" + addr
	if a.kind == "exec" {
		target = `--exec=echo "{\"task\":\"$HOLDFAST_TASK_ID\"}" >> ` + a.log + `; sleep 0.1; echo "did $(cat)"`
	} else {
		kind := a.kind
		if kind == "tunnel" {
			kind = "a2a"
		}
		a.agent = &process{t: f.t, name: "agent @" + a.handle, args: []string{os.Args[0]}, ready: listens(addr), env: []string{
			agentKind + "=" + kind, agentListen + "=" + addr, agentLog + "=" + a.log, agentMemory + "=" + flag(a.memory),
			agentStreams + "=" + flag(a.streams), agentHubs + "=" + strings.Join(hubs, ","), agentToken + "=" + api.Token,
		}}
		a.agent.start()
		a.agent.await()
	}
	if a.kind == "webhook" || a.kind == "a2a" {
		if err := api.Call(f.ctx, "PUT", "/v1/agents/me/endpoint", object{"url": "http://" + addr, "kind": a.kind}, nil); err != nil {
			f.t.Fatal(err)
		}
		return
	}
	a.tunnel = &process{
		t: f.t, name: "tunnel of @" + a.handle, env: []string{"HOLDFAST_URL=" + hub, "HOLDFAST_TOKEN=" + api.Token},
		args:  []string{os.Getenv("HOLDFAST_E2E_BINARY"), "tunnel", "@" + a.handle, target, "--slots", "4"},
		ready: func(p *process) bool { return p.says("Connected") },
	}
	a.tunnel.start()
	a.tunnel.await()
}

// flag is a setting that is set or not.
func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// run hurts everything under load, lets it come to its end, and compares.
func (f *fleet) run() {
	faults := setting(f.t, "FAULTS", 10)
	f.t.Logf("FAULTS=%d SEED=%d", faults, f.seed)
	names := slices.Sorted(maps.Keys(f.callers))
	for n := range 24 {
		name := names[n%len(names)]
		s := &fleetCaller{fleet: f, caller: caller{
			w: f.world, name: name, api: f.callers[name], r: f.random(uint64(n + 1)), prefix: fmt.Sprintf("%s-%d", name, n),
		}}
		f.senders.Go(s.run)
	}
	for range faults {
		f.pause(200*time.Millisecond + f.upTo(600*time.Millisecond))
		f.fault()
		if f.ctx.Err() != nil || f.t.Failed() {
			break
		}
	}
	close(f.quiet)
	f.senders.Wait()
	f.settle()
	f.checkAPI()
	f.compare()
	for _, h := range f.hubs {
		if _, err := h.Terminate(15 * time.Second); err != nil {
			f.t.Errorf("the hub did not end well: %v", err)
		}
	}
}

// settle waits until all tasks have ended.
func (f *fleet) settle() {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		left, err := f.unfinished()
		if err == nil && left == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Errorf("stuck: %d tasks have not ended three minutes after the last fault (%v)", left, err)
			return
		}
		f.pause(100 * time.Millisecond)
	}
}

// upTo is a random time.
func (f *fleet) upTo(d time.Duration) time.Duration { return time.Duration(f.r.Int64N(int64(d))) }

// victim is something that is killed, and can be started again.
type victim struct {
	kind  string
	kill  func()
	start func()
	await func()
}

// victims are all there are.
func (f *fleet) victims() (list []victim) {
	for _, h := range f.hubs {
		list = append(list, victim{"hub", h.Kill, h.Launch, h.Await})
	}
	for _, a := range f.agents {
		if a.agent != nil {
			list = append(list, victim{"agent", a.agent.kill, a.agent.start, a.agent.await})
		}
		if a.tunnel != nil {
			// It is not waited for: its hub may be away.
			list = append(list, victim{"tunnel", a.tunnel.kill, a.tunnel.start, func() {}})
		}
	}
	return list
}

// fault kills something, or two things of different kinds, and starts it again.
func (f *fleet) fault() {
	f.era.Add(1)
	defer f.era.Add(1)
	list := f.victims()
	kinds := []string{"hub", "tunnel", "agent"}
	f.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	f.r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var hit []victim
	for _, kind := range kinds[:1+f.r.IntN(4)/3] {
		hit = append(hit, list[slices.IndexFunc(list, func(v victim) bool { return v.kind == kind })])
	}
	for _, v := range hit {
		f.done[v.kind]++
		v.kill()
	}
	f.pause(f.upTo(800 * time.Millisecond))
	for _, v := range hit {
		v.start()
	}
	for _, v := range hit {
		v.await()
	}
	f.pause(300 * time.Millisecond) // until everybody has noticed
}

// fleetCaller sends tasks to all agents, waits for their ends, and cancels some.
type fleetCaller struct {
	*fleet
	caller
}

func (c *fleetCaller) run() {
	for !c.isQuiet() {
		era := c.era.Load()
		a := c.agents[c.caller.r.IntN(len(c.agents))]
		text := c.text()
		begun := c.history.now()
		t, ok := c.post("/v1/agents/"+a.handle+"/tasks", object{"message": textMessage("user", text)}, text)
		if !ok {
			return
		}
		c.history.add(begun, happened{task: t.ID, what: sending, callee: a.handle})
		if !c.ledger.sent(t.ID, c.name, a.handle, text) {
			c.problem("two sends got the same task %s", t.ID)
		}
		if c.caller.r.IntN(10) == 0 {
			c.cancelAfter(t.ID, a.handle)
		}
		c.follow(t.ID, a.handle, text, era)
	}
}

// cancelAfter cancels a task after a moment.
func (c *fleetCaller) cancelAfter(id, handle string) {
	c.pause(time.Duration(c.caller.r.Int64N(int64(300 * time.Millisecond))))
	a, ok := c.insist(c.ctx, c.api, "POST", "/v1/agents/"+handle+"/tasks/"+id+"/cancel", nil)
	switch {
	case !ok:
	case a.OK():
		c.ledger.change(id, "cancels", func(r *record) { r.canceled = true })
	case a.Status != 409:
		c.problem("cancel task %s: %d %s", id, a.Status, a.Body)
	}
}

// follow waits for the end of a task for a while, and notes it.
func (c *fleetCaller) follow(id, handle, text string, era int64) {
	for range 3 {
		a, ok := c.insist(c.ctx, c.api, "GET", "/v1/agents/"+handle+"/tasks/"+id+"?wait=1", nil)
		if !ok {
			return
		}
		var t task
		if !a.OK() || json.Unmarshal(a.Body, &t) != nil || t.ID != id {
			c.problem("an acknowledged task %s: %d %s", id, a.Status, a.Body)
			return
		}
		if !terminal(t.State) {
			continue
		}
		c.ledger.change(id, "ends seen", func(r *record) {
			r.end = t.State
			if t.State == "completed" {
				r.artifacts = append(r.artifacts, done(text))
			}
		})
		if era%2 == 0 && c.era.Load() == era {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.untouched[id] = true
		}
		return
	}
}

// compare compares what the agents have seen with what the hub says of it, and sums up.
func (f *fleet) compare() {
	acked := f.ledger.snapshot()
	states, sends, sent, bad := map[string]int{}, 0, 0, 0
	for _, a := range f.agents {
		saw := f.seenBy(a)
		tried := f.attemptsOf(a)
		for id, r := range acked {
			if r.callee != a.handle {
				continue
			}
			var t task
			if err := f.callers[r.caller].Call(f.ctx, "GET", "/v1/agents/"+a.handle+"/tasks/"+id, nil, &t); err != nil {
				f.problem("an acknowledged task is missing: %v", err)
				continue
			}
			d := &delivered{
				state: t.State, canceled: r.canceled, untouched: f.untouched[id], memory: a.memory, dated: a.kind != "exec", told: a.kind == "webhook",
				sends: saw[id], attempts: tried[id],
			}
			states[t.State]++
			sends += len(d.sends)
			for _, x := range d.attempts {
				if x.Sent {
					sent++
				}
			}
			if list := d.problems(); len(list) > 0 && bad < 10 {
				bad++
				f.problem("task %s to @%s: %s\nsends %+v\nattempts %s", id, a.handle, strings.Join(list, "; "), d.sends, tries(d.attempts))
			}
			delete(saw, id)
		}
		for id := range saw {
			f.problem("@%s was sent task %s, which nobody was told of", a.handle, id)
		}
	}
	f.t.Logf("%d kills (%s), seed %d: %d tasks (%s), %d of them untouched, %d sends seen of %d noted; %s",
		total(f.done), counted(f.done), f.seed, len(acked), counted(states), len(f.untouched), sends, sent, f.ledger.summary())
}

// tries is a list of attempts to be read.
func tries(list []attempt) string {
	b, err := json.Marshal(list)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

func counted(m map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[what], what))
	}
	return strings.Join(parts, ", ")
}

// seenBy is what an agent has seen, by task.
func (f *fleet) seenBy(a *fleetAgent) map[string][]noted {
	f.t.Helper()
	list, err := readLog(a.log)
	if err != nil {
		f.t.Fatal(err)
	}
	by := map[string][]noted{}
	for _, n := range list {
		if n.Cancel == "" {
			by[n.Task] = append(by[n.Task], n)
		}
	}
	return by
}

// attemptsOf is all attempts of the hub to bring tasks to an agent, by task.
func (f *fleet) attemptsOf(a *fleetAgent) map[string][]attempt {
	f.t.Helper()
	by := map[string][]attempt{}
	for cursor := ""; ; {
		var page struct {
			Data []attempt
			Next string `json:"next_cursor"`
		}
		if err := f.callees[a.handle].Call(f.ctx, "GET", "/v1/agents/me/attempts?limit=100&cursor="+cursor, nil, &page); err != nil {
			f.t.Fatal(err)
		}
		for _, x := range page.Data {
			by[x.TaskID] = append([]attempt{x}, by[x.TaskID]...)
		}
		if cursor = page.Next; cursor == "" {
			return by
		}
	}
}
