package crash

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// The check of a database finds each kind of damage that a crash could leave, and
// none where there is none.
func TestCheckFindsDamage(t *testing.T) {
	dir, acked := someHistory(t)
	if problems := checkCopy(t, dir, acked, true); len(problems) > 0 {
		t.Fatalf("the check finds fault with a sound database: %q", problems)
	}
	for what, statement := range map[string]string{
		"a lost task":               "DELETE FROM task WHERE n = 1",
		"a task whose end is lost":  "UPDATE task SET state = 2, ended_at = NULL WHERE n = 1",
		"another end":               "UPDATE task SET state = 4 WHERE n = 1",
		"a lost event":              "DELETE FROM event WHERE k >> 20 = 1 AND k & 0xfffff = 2",
		"an event after the end":    "INSERT INTO event SELECT k + 1, kind, at, state, artifact, flags, body, metadata FROM event WHERE k >> 20 = 1 ORDER BY k DESC LIMIT 1",
		"a lost artifact":           "UPDATE event SET body = NULL WHERE artifact IS NOT NULL",
		"a lost message":            "DELETE FROM message WHERE k >> 20 = 1",
		"another message":           `UPDATE message SET body = CAST('{"parts":[{"text":"other"}]}' AS BLOB) WHERE k >> 20 = 1`,
		"a message done twice":      "UPDATE message SET body = (SELECT body FROM message WHERE k >> 20 = 1) WHERE k >> 20 = 2",
		"a lost key":                "DELETE FROM idempotency WHERE k >> 20 = 1",
		"a key that is not found":   "UPDATE meta SET value = '9000000000000000000' WHERE key = 'keys_indexed'",
		"a lost attempt":            "DELETE FROM attempt WHERE k >> 20 = 1",
		"overlapping attempts":      "UPDATE attempt SET ended_at = ended_at + 60000 WHERE k >> 20 = 3 AND k & 0xfffff = 1",
		"a lost line of activity":   "DELETE FROM activity WHERE task = 1 AND kind = 'sent'",
		"an end told twice":         "INSERT INTO activity (at, kind, task, seq, actor, attempt) SELECT at, kind, task, seq, actor, attempt FROM activity WHERE task = 1 AND kind = 'completed'",
		"an ended task still there": "INSERT INTO queue (task, callee, caller, phase, lease_ms, attempt, failures, open, provisional, lapsed, seen) VALUES (1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0)",
		"a count that is off":       "UPDATE lane SET open = open + 1",
		"a cancel undone":           "UPDATE task SET state = 3 WHERE n = 2",
	} {
		t.Run(what, func(t *testing.T) {
			damaged := t.TempDir()
			path := filepath.Join(damaged, sqlite.FileName)
			if err := copyFile(path, filepath.Join(dir, sqlite.FileName)); err != nil {
				t.Fatal(err)
			}
			damage(t, path, statement)
			if problems := checkCopy(t, damaged, acked, true); len(problems) == 0 {
				t.Error("the check does not find it")
			}
		})
	}
}

func damage(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	res, err := db.Exec(statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); n == 0 || err != nil {
		t.Fatalf("the damage did nothing: %d rows, %v", n, err)
	}
}

// someHistory gives the directory of a hub that has ended, with three tasks:
// completed with an artifact, canceled, and completed at the second attempt.
func someHistory(t *testing.T) (dir string, acked map[string]record) {
	t.Helper()
	h := hubproc.Start(t, hubproc.Options{})
	caller, coder := h.Agent("caller"), h.Agent("coder")
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	acked = map[string]record{}
	const path = "/v1/agents/coder/tasks"
	for n := range 3 {
		var sent, claimed task
		text := "task-" + strconv.Itoa(n)
		must(caller.Call(ctx, "POST", path, object{"message": textMessage("user", text)}, &sent, "Idempotency-Key", text))
		r := record{id: sent.ID, payload: text}
		must(coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &claimed))
		switch n {
		case 1:
			must(caller.Call(ctx, "POST", path+"/"+sent.ID+"/cancel", nil, nil))
			r.canceled = true
		case 2:
			must(h.Admin().Call(ctx, "POST", "/v1/tasks/"+sent.ID+"/requeue", nil, nil))
			must(coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &claimed))
			fallthrough
		default:
			done := object{"state": "completed", "artifacts": []object{{"artifact_id": "a", "parts": []object{{"text": "done " + text}}}}}
			must(coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+sent.ID+"/result", done, nil, "X-Claim", claimed.ClaimID))
			r.end, r.artifacts = "completed", []string{"done " + text}
		}
		acked[r.id] = r
	}
	_, err := h.Terminate(15 * time.Second)
	must(err)
	if _, err := os.Stat(filepath.Join(h.Dir, sqlite.FileName+"-wal")); err == nil {
		t.Log("the hub left a write-ahead log behind")
	}
	return h.Dir, acked
}
