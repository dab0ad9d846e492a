package kit

import "github.com/holdfast-hub/holdfast/wire"

// fullCard takes everything: the kit for 1.0 wants a media type that nobody has heard
// of to be accepted, and that for 0.3 looks for the names of kinds of parts where
// media types are. It declares an extension so that there is one to look at.
func fullCard() *wire.Card {
	return &wire.Card{
		Name: "Conformance", Version: "1.0.0",
		DefaultInputModes: []string{"*/*", "text", "file", "data"}, DefaultOutputModes: []string{"*/*"},
		Extensions: []byte(`[{"uri":"` + OptionalExtension + `","description":"Changes nothing."}]`),
	}
}

// minimalCard has nothing that can be turned off, and wants an extension.
func minimalCard() *wire.Card {
	c, off := fullCard(), false
	c.Capabilities = &wire.Capabilities{Streaming: &off, PushNotifications: &off, ExtendedAgentCard: &off}
	c.Extensions = []byte(`[{"uri":"` + RequiredExtension + `","description":"Wanted by the conformance kit.","required":true}]`)
	return c
}
