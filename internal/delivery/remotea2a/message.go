package remotea2a

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// sendParams are those of a send: the message, and that nobody waits for the end of the
// task, which is followed.
func (f *following) sendParams(message []byte, task, context string) []byte {
	shown := canon.AppendMessage(nil, message, task, context)
	if f.agent.v03 {
		return append(append([]byte(`{"message":`), downgrade(shown)...), `,"configuration":{"acceptedOutputModes":["text/plain","application/json"],"blocking":false}}`...)
	}
	return append(append([]byte(`{"message":`), shown...), `,"configuration":{"returnImmediately":true}}`...)
}

// first is the message that a new task of the agent begins with: the caller's newest, with
// whatever came before in front of it, as text, if there is any.
func first(t *hub.Task) []byte {
	history := t.History
	if len(history) == 1 {
		return history[0].Body
	}
	newest := len(history) - 1
	for newest > 0 && history[newest].FromCallee {
		newest--
	}
	var before strings.Builder
	before.WriteString("What was said before in this task:\n")
	for i := range newest {
		who := "user"
		if history[i].FromCallee {
			who = "agent"
		}
		before.WriteString(who + ": " + textOf(history[i].Body) + "\n")
	}
	return withText(history[newest].Body, before.String())
}

// answer is what the caller has said since the agent asked.
func answer(t *hub.Task) []byte {
	history := t.History
	begin := len(history)
	for begin > 0 && !history[begin-1].FromCallee {
		begin--
	}
	if begin == len(history) {
		return nil
	}
	newest := history[len(history)-1].Body
	if begin == len(history)-1 {
		return newest
	}
	var before strings.Builder
	for i := begin; i < len(history)-1; i++ {
		before.WriteString(textOf(history[i].Body) + "\n")
	}
	return withText(newest, before.String())
}

// textOf is the text of a message, with a word for each part that is none.
func textOf(message []byte) string {
	var m struct {
		Parts []struct {
			Text     *string
			Data     json.RawMessage
			Filename string
		}
	}
	_ = json.Unmarshal(message, &m) // it is canonical
	var words []string
	for _, p := range m.Parts {
		switch {
		case p.Text != nil:
			words = append(words, *p.Text)
		case p.Data != nil:
			words = append(words, string(p.Data))
		default:
			words = append(words, strings.TrimSpace("(a file "+p.Filename)+")")
		}
	}
	return strings.Join(words, " ")
}

// withText puts a text part in front of those of a message.
func withText(message []byte, text string) []byte {
	return members(message, func(name string, value []byte) (string, []byte) {
		if name != "parts" {
			return name, value
		}
		out := append(rawjson.AppendText([]byte(`[{"text":`), text), `},`...)
		return name, append(out, value[1:]...)
	})
}
