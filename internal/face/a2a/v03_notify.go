package a2a

import "github.com/holdfast-hub/holdfast/internal/hub"

// AppendTaskV03 appends a task as A2A 0.3 shows it over JSON-RPC, with its kind: the
// body of a push notification (0.3, section 9.5). It shows all that was loaded.
func AppendTaskV03(dst []byte, t *hub.Task) []byte { return kinded.appendTask(dst, t, -1) }
