package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func presenceTests(run runner) {
	at := func(address, name string, since time.Time) hub.Instance {
		return hub.Instance{Address: address, Name: name, Slots: 4, Since: since, URL: "https://a.example", Relay: []string{"/hooks/", "/ci"}}
	}
	names := func(list []hub.Instance) (s []string) {
		for _, i := range list {
			s = append(s, i.Name)
		}
		return s
	}
	instances := func(b *bed, address string) []hub.Instance {
		b.Helper()
		list, err := b.s.Instances(b.ctx, address)
		b.ok(err)
		return list
	}
	run("an instance is there from its connection until it is gone", func(b *bed) {
		in := at(b.dev, "a \x00 name", b.clock.Now())
		b.ok(b.s.Connect(b.ctx, in))
		list := instances(b, b.dev)
		if d := cmp.Diff([]hub.Instance{in}, list, cmpopts.IgnoreFields(hub.Instance{}, "Replica")); d != "" {
			b.Errorf("instances (-want +got):\n%s", d)
		}
		b.is("of another address", instances(b, b.ops), nil)
		b.is("of no address", instances(b, newID()), nil)
		b.ok(b.s.Disconnect(b.ctx, b.dev, in.Name))
		b.is("instances", instances(b, b.dev), nil)
		b.ok(b.s.Disconnect(b.ctx, b.dev, in.Name))
		b.ok(b.s.Disconnect(b.ctx, newID(), in.Name))
	})
	run("one of the same name takes its place", func(b *bed) {
		b.ok(b.s.Connect(b.ctx, at(b.dev, "a", b.clock.Now())))
		again := hub.Instance{Address: b.dev, Name: "a", Slots: 9, Since: b.clock.Now().Add(time.Second)}
		b.ok(b.s.Connect(b.ctx, again))
		if d := cmp.Diff([]hub.Instance{again}, instances(b, ""), cmpopts.IgnoreFields(hub.Instance{}, "Replica")); d != "" {
			b.Errorf("instances (-want +got):\n%s", d)
		}
	})
	run("the oldest come first, of one address or of all", func(b *bed) {
		for i, x := range []hub.Instance{at(b.dev, "c", b.clock.Now()), at(b.ops, "b", b.clock.Now()), at(b.dev, "a", b.clock.Now()), at(b.dev, "0", b.clock.Now().Add(-time.Hour))} {
			x.Slots = i + 1
			b.ok(b.s.Connect(b.ctx, x))
		}
		b.is("of all", names(instances(b, "")), []string{"0", "a", "b", "c"})
		b.is("of one", names(instances(b, b.dev)), []string{"0", "a", "c"})
	})
	run("no address, no instance", func(b *bed) {
		b.kind("connect", b.s.Connect(b.ctx, at(newID(), "a", b.clock.Now())), hub.NotFound)
		b.is("instances", instances(b, ""), nil)
	})
	run("what nobody else has is one's own, and stays it", func(b *bed) {
		for _, want := range [][]string{{b.dev, b.ops}, {b.dev, b.ops}, {b.ops}, {}, {b.ops, b.dev}} {
			got, err := b.s.Own(b.ctx, want)
			b.ok(err)
			b.is("owned", got, want)
		}
	})
	run("instances end with the hub", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store cannot be opened again")
		}
		b.ok(b.s.Connect(b.ctx, at(b.dev, "a", b.clock.Now())))
		b.s = b.h.Reopen(b.TB)
		b.is("instances", instances(b, ""), nil)
	})
	run("a closed store owns nothing and shows nobody", func(b *bed) {
		s := b.s
		b.ok(s.Close())
		_, err := s.Own(b.ctx, []string{b.dev})
		b.kind("own", err, hub.Unavailable)
		_, err = s.Instances(b.ctx, "")
		b.kind("instances", err, hub.Unavailable)
		b.kind("connect", s.Connect(b.ctx, at(b.dev, "a", b.clock.Now())), hub.Unavailable)
	})
}
