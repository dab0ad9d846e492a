package wire

// PushRequest is the body of POST /v1/agents/{callee}/tasks/{id}/push: where the
// events of a task are to be sent.
type PushRequest struct {
	// ID is the caller's choice, unique within the task; left out, the hub makes one. A
	// configuration with the same id is replaced.
	ID  string `json:"id,omitempty"`
	URL string `json:"url"`
	// Token is sent along in a header of its own, for the receiver to check.
	Token          string    `json:"token,omitempty"`
	Authentication *PushAuth `json:"authentication,omitempty"`
}

// PushAuth is the credential that the hub presents at a URL, as the header
// Authorization: {scheme} {credentials}. Answers never have the credentials.
type PushAuth struct {
	Scheme      string `json:"scheme"` // such as "Bearer"
	Credentials string `json:"credentials,omitempty"`
}

// Push is where the events of a task are sent, and how far that has come. It never
// has the token or credentials.
type Push struct {
	ID             string    `json:"id"`
	TaskID         string    `json:"task_id"`
	URL            string    `json:"url"`
	Authentication *PushAuth `json:"authentication,omitempty"`
	Version        string    `json:"version"` // of A2A, whose form the notifications have
	CreatedAt      Time      `json:"created_at" format:"date-time"`
	// DoneSeq is the number of the last event that is done with: delivered or given up.
	DoneSeq int64 `json:"done_seq"`
	// Tries is how often the event after it was tried in vain, since FailingSince and
	// last for LastError. It is tried again at NextTry.
	Tries        int     `json:"tries"`
	FailingSince *Time   `json:"failing_since" format:"date-time"`
	NextTry      *Time   `json:"next_try" format:"date-time"`
	LastError    *string `json:"last_error"`
	// Failed counts the events that were given up; GET /v1/push/failures lists them.
	Failed int `json:"failed"`
}

// PushFailure is a notification that was given up.
type PushFailure struct {
	ID       string `json:"id"`
	TaskID   string `json:"task_id"`
	ConfigID string `json:"config_id"`
	URL      string `json:"url"`
	Seq      int64  `json:"seq"` // of the event
	At       Time   `json:"at" format:"date-time"`
	Tries    int    `json:"tries"`
	Reason   string `json:"reason"`
}
