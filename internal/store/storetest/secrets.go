package storetest

import (
	"errors"
	"fmt"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// kept is the sealed secret with a name, empty if there is none.
func (b *bed) kept(name string) string {
	b.Helper()
	sealed, err := b.s.Secret(b.ctx, name)
	if hub.KindOf(err) == hub.NotFound {
		return ""
	}
	b.ok(err)
	return string(sealed)
}

func (b *bed) keep(name, sealed string) {
	b.Helper()
	_, err := b.s.AddSecret(b.ctx, name, []byte(sealed))
	b.ok(err)
}

// again says what was sealed about what, so that a test sees that the two belong
// together.
func again(sealed []byte, about string) ([]byte, error) {
	return fmt.Appendf(nil, "%s again about %s", sealed, about), nil
}

func secretTests(run runner) {
	run("a secret is found by its name, as it was sealed", func(b *bed) {
		b.keep("a/b", "\x00\xff sealed")
		b.is("secret", b.kept("a/b"), "\x00\xff sealed")
		for _, name := range []string{"a", "a/b/c", "A/B", ""} {
			_, err := b.s.Secret(b.ctx, name)
			b.kind("secret "+name, err, hub.NotFound)
		}
	})
	run("of two secrets with a name the first is kept and given", func(b *bed) {
		b.keep("key", "first")
		got, err := b.s.AddSecret(b.ctx, "key", []byte("second"))
		b.ok(err)
		b.is("given", string(got), "first")
		b.is("kept", b.kept("key"), "first")
	})
	run("20 parallel additions all give the same secret", func(b *bed) {
		got := make([]string, 20)
		crowd(20, 20, func(i int) {
			sealed, err := b.s.AddSecret(b.ctx, "key", fmt.Appendf(nil, "sealed by %d", i))
			b.ok(err)
			got[i] = string(sealed)
		})
		for _, sealed := range got {
			b.is("given", sealed, b.kept("key"))
		}
	})
	run("resealing replaces every secret, and writes the named one as given", func(b *bed) {
		const many = 1_200 // more than a store may take into memory at once
		for i := range many {
			b.keep(fmt.Sprint("key/", i), fmt.Sprint("sealed ", i))
		}
		b.keep("check", "old")
		b.ok(b.s.Reseal(b.ctx, again, "check", []byte("new")))
		b.is("the named one", b.kept("check"), "new")
		for i := range many {
			b.is("secret", b.kept(fmt.Sprint("key/", i)), fmt.Sprintf("sealed %d again about key/%d", i, i))
		}
	})
	run("resealing may write a name that is new, and leave the rest alone", func(b *bed) {
		b.keep("key", "sealed")
		b.ok(b.s.Reseal(b.ctx, nil, "check", []byte("new")))
		b.is("the named one", b.kept("check"), "new")
		b.is("the other", b.kept("key"), "sealed")
	})
	run("resealing drops what is given up", func(b *bed) {
		b.keep("gone", "sealed")
		b.keep("stays", "sealed")
		b.ok(b.s.Reseal(b.ctx, func(sealed []byte, about string) ([]byte, error) {
			if about == "gone" {
				return nil, nil
			}
			return sealed, nil
		}, "check", []byte("new")))
		b.is("dropped", b.kept("gone"), "")
		b.is("kept", b.kept("stays"), "sealed")
		b.keep("gone", "made anew")
		b.is("made anew", b.kept("gone"), "made anew")
	})
	run("resealing that fails changes nothing", func(b *bed) {
		for i := range 10 {
			b.keep(fmt.Sprint("key/", i), "sealed")
		}
		b.keep("check", "old")
		wrong, calls := errors.New("wrong key"), 0
		err := b.s.Reseal(b.ctx, func(sealed []byte, about string) ([]byte, error) {
			if calls++; calls > 5 {
				return nil, wrong
			}
			return again(sealed, about)
		}, "check", []byte("new"))
		if !errors.Is(err, wrong) {
			b.Errorf("got %v, want the error that resealing gave", err)
		}
		b.is("the named one", b.kept("check"), "old")
		for i := range 10 {
			b.is("secret", b.kept(fmt.Sprint("key/", i)), "sealed")
		}
	})
	run("secrets outlive the store", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store keeps nothing")
		}
		b.keep("key", "sealed")
		b.ok(b.s.Reseal(b.ctx, again, "check", []byte("new")))
		b.s = b.h.Reopen(b.TB)
		b.is("secret", b.kept("key"), "sealed again about key")
		b.is("the named one", b.kept("check"), "new")
	})
}
