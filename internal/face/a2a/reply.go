package a2a

import (
	"bytes"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/wire"
)

// bareReply is the message that a send is answered with in place of its task (spec
// section 3.1.1), or nil. The callee asks for that (wire.BareReply), and it holds for
// a new task that has completed with a message alone: anything else is more than a
// message can say.
func bareReply(r sendMessage, t *hub.Task) []byte {
	if t == nil || r.message.TaskID != "" || t.State != hub.Completed || len(t.Artifacts) > 0 ||
		!bytes.Contains(t.StatusMessage, []byte(wire.BareReply)) {
		return nil
	}
	asked := false
	_ = rawjson.Members(t.StatusMessage, func(name string, value []byte) error {
		if name != "extensions" {
			return nil
		}
		return rawjson.Elements(value, func(_ int, uri []byte) error {
			s, err := rawjson.Text(uri)
			asked = asked || s == wire.BareReply
			return err
		})
	})
	if !asked {
		return nil
	}
	return t.StatusMessage
}
