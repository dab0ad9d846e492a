package push

// What the tests of the sender's arithmetic need.
var (
	RetryAfter = retryAfter
	MessageID  = messageID
	TokenKey   = tokenKey
)

// Backoff is the wait after so many tries in vain.
var Backoff = (*Sender).backoff
