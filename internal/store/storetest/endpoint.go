package storetest

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func endpointTests(run runner) {
	hook := hub.Endpoint{
		Kind: hub.WebhookDelivery, URL: "https://dev.example/hook?x=1", Auth: "header", Header: "X-Key",
		Private: true, Sealed: []byte("\x00\xff sealed"),
	}
	of := func(b *bed, ref string) *hub.Endpoint {
		b.Helper()
		a, err := b.s.Address(b.ctx, ref)
		b.ok(err)
		return a.Endpoint
	}
	run("an endpoint is read with its address, as it was set", func(b *bed) {
		b.is("at first", of(b, b.dev), (*hub.Endpoint)(nil))
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		b.is("by id", of(b, b.dev), &hook)
		b.is("by handle", of(b, "dev"), &hook)
		b.ask(b.ann, b.dev)
		former, err := b.s.FormerAddress(b.ctx, "dev", only(b.ann))
		b.ok(err)
		b.is("to who sent to it", former.Endpoint, &hook)
		all, err := b.s.Addresses(b.ctx)
		b.ok(err)
		for _, a := range all {
			b.is("listed "+a.Handle, a.Endpoint != nil, a.ID == b.dev)
		}
	})
	run("a later endpoint replaces all of an earlier one, and nil takes it away", func(b *bed) {
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		plain := hub.Endpoint{Kind: hub.WebhookDelivery, URL: "http://other.example/", Sealed: []byte("s")}
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &plain))
		b.is("replaced", of(b, b.dev), &plain)
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, nil))
		b.is("taken away", of(b, b.dev), (*hub.Endpoint)(nil))
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, nil))
	})
	run("an update of the address leaves its endpoint alone", func(b *bed) {
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		b.ok(b.s.UpdateAddress(b.ctx, hub.Address{ID: b.dev, Access: hub.Open, OnUnknown: "fail", Lease: time.Minute}))
		b.is("endpoint", of(b, b.dev), &hook)
	})
	run("an endpoint needs a living address, named by its id, and goes with it", func(b *bed) {
		b.kind("of nobody", b.s.SetEndpoint(b.ctx, newID(), &hook), hub.NotFound)
		b.kind("by handle", b.s.SetEndpoint(b.ctx, "dev", &hook), hub.NotFound)
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		b.ask(b.ann, b.dev)
		b.ok(b.s.DeleteAddress(b.ctx, b.dev))
		b.kind("of one that is deleted", b.s.SetEndpoint(b.ctx, b.dev, &hook), hub.NotFound)
		former, err := b.s.FormerAddress(b.ctx, "dev", only(b.ann))
		b.ok(err)
		b.is("of a former address", former.Endpoint, (*hub.Endpoint)(nil))
	})
	run("endpoints are sealed anew with all else, and go with what is dropped", func(b *bed) {
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		b.ok(b.s.SetEndpoint(b.ctx, b.ops, &hook))
		b.ok(b.s.Reseal(b.ctx, func(sealed []byte, about string) ([]byte, error) {
			if about == hub.EndpointAbout(b.ops) {
				return nil, nil
			}
			return again(sealed, about)
		}, "check", []byte("new")))
		b.is("dropped", of(b, b.ops), (*hub.Endpoint)(nil))
		want := hook
		want.Sealed = []byte(string(hook.Sealed) + " again about " + hub.EndpointAbout(b.dev))
		b.is("sealed anew", of(b, b.dev), &want)
	})
	run("endpoints outlive the store", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store keeps nothing")
		}
		b.ok(b.s.SetEndpoint(b.ctx, b.dev, &hook))
		b.s = b.h.Reopen(b.TB)
		b.is("endpoint", of(b, b.dev), &hook)
	})
}
