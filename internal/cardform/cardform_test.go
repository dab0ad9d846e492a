package cardform_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/cardform"
)

// FuzzForms: whatever an agent's card says, its forms are JSON, and the canonical one is
// its own canonical form, or there are none.
func FuzzForms(f *testing.F) {
	f.Add([]byte(`{"name":"Example Agent","description":"","capabilities":{"streaming":false},"skills":[]}`))
	f.Add([]byte(`{"protocolVersion":"0.3.0","securitySchemes":{"b":{"type":"http","scheme":"bearer"}},"name":"é𐀀"}`))
	f.Add([]byte(`{"n":[1.0,1e21,9007199254740993,1e999,-0],"s":"\u007f\ud800"}`))
	f.Add([]byte(`[null,{}]`))
	f.Fuzz(func(t *testing.T, card []byte) {
		if !json.Valid(card) {
			return
		}
		for _, of := range []func([]byte) ([][]byte, error){cardform.Forms, cardform.FormsV03} {
			forms, err := of(card)
			if err != nil {
				continue
			}
			for _, form := range forms {
				if !json.Valid(form) {
					t.Errorf("%q has the form %q", card, form)
				}
			}
			again, err := of(forms[0])
			if err != nil || !bytes.Equal(again[0], forms[0]) {
				t.Errorf("%q has the canonical form %q, and that has %q, error %v", card, forms[0], again, err)
			}
		}
	})
}
