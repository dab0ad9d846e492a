package client

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Client talks to one hub as one address. It is safe for concurrent use; make one
// and keep it, because it holds the connections.
type Client struct {
	base      string // without a slash at the end
	err       error  // why base or token cannot be used; every call gives it
	authorize func(http.Header)
	http      *http.Client
	agent     string
	retry     Retry
	timeout   time.Duration
	silence   time.Duration
	log       *slog.Logger
}

// Retry bounds the repeating of requests that failed for a passing reason: the hub
// was not reached, 429, or 5xx. Between tries the client waits a random time of up
// to Min, doubled with each try, at most Max; Retry-After is honoured.
//
// Only what is safe to repeat is repeated. Sends are, because each carries an
// idempotency key; so are reports of results, because of their claim.
type Retry struct {
	Tries    int // in all; 1 for no repeating
	Min, Max time.Duration
}

const (
	defaultTimeout = 60 * time.Second
	// defaultSilence is three of the hub's heartbeats.
	defaultSilence = 45 * time.Second
	idleConns      = 1024
)

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient sends requests through h. Its Timeout must be 0, or long polls
// and streams end with it; deadlines are per request.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent puts the name of a program before the SDK's own in User-Agent.
func WithUserAgent(name string) Option {
	return func(c *Client) { c.agent = name + " " + c.agent }
}

// WithRetry replaces the default of 8 tries, waiting 100 ms to 5 s.
func WithRetry(r Retry) Option { return func(c *Client) { c.retry = r } }

// WithTimeout bounds one try of one request, 60 s by default. What a long poll
// waits comes on top; streams are bounded by silence instead.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithSilence is after how long without a byte a stream counts as broken and is
// resumed, 45 s by default; the hub sends something at least every 15 s.
func WithSilence(d time.Duration) Option { return func(c *Client) { c.silence = d } }

// WithLogger is where a worker's panics, lost leases and a hub that is away are
// logged unless Serve is given another Logger; slog.Default by default.
func WithLogger(l *slog.Logger) Option { return func(c *Client) { c.log = l } }

// New makes a client of the hub at url, such as "http://127.0.0.1:7420", that acts
// as the address of token. An empty token is for hubs that let anonymous callers
// in. A url that cannot be used is reported by the first call.
func New(url, token string, opts ...Option) *Client {
	c := &Client{
		agent:   "holdfast-go",
		retry:   Retry{Tries: 8, Min: 100 * time.Millisecond, Max: 5 * time.Second},
		timeout: defaultTimeout,
		silence: defaultSilence,
	}
	c.base, c.err = checkBase(url)
	c.authorize = bearer(token)
	for _, o := range opts {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport()}
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	// A redirect would turn a POST into a GET, or take the token elsewhere.
	h := *c.http
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &h
	return c
}

// FromEnv makes a client from HOLDFAST_URL (http://127.0.0.1:7420 if unset) and
// HOLDFAST_TOKEN.
func FromEnv(opts ...Option) *Client {
	base := os.Getenv("HOLDFAST_URL")
	if base == "" {
		base = "http://127.0.0.1:7420"
	}
	return New(base, os.Getenv("HOLDFAST_TOKEN"), opts...)
}

// URL is the hub's base URL.
func (c *Client) URL() string { return c.base }

// Close closes idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// String names the hub, and never the token.
func (c *Client) String() string { return "holdfast client of " + c.base }

// badURL is an ErrInvalid in its own words.
type badURL string

// Error implements error.
func (e badURL) Error() string { return string(e) }

// Is implements errors.Is.
func (e badURL) Is(target error) bool { return target == ErrInvalid }

// checkBase refuses what is no base URL in words; it never repeats a URL that holds
// a password.
func checkBase(raw string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil:
		return "", badURL("the hub's URL cannot be read; it should look like http://127.0.0.1:7420")
	case u.User != nil:
		return "", badURL("the hub's URL must not hold a user or password; give the token apart from it")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", badURL(fmt.Sprintf("the hub's URL %q should look like http://127.0.0.1:7420", raw))
	case u.RawQuery != "" || u.Fragment != "":
		return "", badURL(fmt.Sprintf("the hub's URL %q must not have a query or fragment", raw))
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// bearer keeps the token in a closure, where printing the client cannot show it.
func bearer(token string) func(http.Header) {
	token = strings.TrimSpace(token)
	return func(h http.Header) {
		if token != "" {
			h.Set("Authorization", "Bearer "+token)
		}
	}
}

// newTransport is made for many requests that wait at the same time: connections
// are kept rather than opened anew, and nothing bounds the wait for an answer.
func newTransport() *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           d.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}
