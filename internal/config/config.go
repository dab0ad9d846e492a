// Package config is every setting of the hub, each described once: its name, its
// default, what it means and how it is written. The command line, the environment
// and the documentation are made from that.
//
// A setting is taken from the command line, else from the environment
// (HOLDFAST_ and the name in capitals), else it has its default. Client commands
// also know profiles: see LoadProfile.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Config is the settings of `holdfast serve`. Start from Default.
type Config struct {
	// Listen is the address and port to listen on.
	Listen string
	// Data is the directory that holds everything the hub keeps.
	Data string
	// DatabaseURL, if not empty, is that of the PostgreSQL database that the hub keeps
	// everything in, in place of Data; DatabaseDirectURL leads to the same past any pooler.
	DatabaseURL, DatabaseDirectURL string
	// PublicURL is the base of every URL that the hub gives out; from Listen if empty.
	PublicURL string
	// Anonymous lets in requests without a token. Loopback only.
	Anonymous bool
	// TLSCert and TLSKey are PEM files; both or neither.
	TLSCert, TLSKey string
	// BlockingLimit is how long a blocking A2A send may wait.
	BlockingLimit time.Duration
	// Retain is how long ended tasks are kept.
	Retain time.Duration
	// DeleteGrace is how long the queued tasks of a deleted address wait.
	DeleteGrace time.Duration
	// CORSOrigins are the origins whose pages may call the hub.
	CORSOrigins []string
	// LogFormat is "text" or "json".
	LogFormat string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// MaxBody bounds the body of a request, in bytes.
	MaxBody int64
	// PrivateCards hides agent cards from whoever may not call the agent.
	PrivateCards bool
	// Lease is how long a claim lasts when nobody says otherwise.
	Lease time.Duration
	// Redeliveries is how often a lost delivery is repeated when the address does not
	// say otherwise.
	Redeliveries int
	// LeaseMax is the longest lease that a callee may ask for.
	LeaseMax time.Duration
	// BackoffMin and BackoffMax bound the wait before a redelivery.
	BackoffMin, BackoffMax time.Duration
	// TaskEvents, TaskBytes and TaskMessages bound one task.
	TaskEvents   int
	TaskBytes    int64
	TaskMessages int
	// TaskPushes bounds the push-notification configurations of one task.
	TaskPushes int
	// OpenTasks bounds the unfinished tasks of one caller at one address.
	OpenTasks int
	// Rate and Burst bound the sends of one caller to one address, per second.
	Rate  float64
	Burst int
	// NoPush turns push notifications off.
	NoPush bool
	// PushGiveUp is how long a push notification is tried.
	PushGiveUp time.Duration
	// PushBackoffMin and PushBackoffMax bound the wait before another try.
	PushBackoffMin, PushBackoffMax time.Duration
	// NoWebhook turns deliveries to endpoints off.
	NoWebhook bool
	// WebhookSlots is how many tasks of one address are delivered to its webhook at once.
	WebhookSlots int
	// WebhookTimeout is how long a webhook may take to answer.
	WebhookTimeout time.Duration
	// AdvertiseURL is where the other replicas reach this one; empty if they do not.
	AdvertiseURL string
	// Tunnels is how many tunnels of agents may be open at once; 0 for none.
	Tunnels int
	// EgressAllowLocal are the ports and ranges of ports on loopback that the hub may
	// call, such as "8080,9000-9010".
	EgressAllowLocal string
	// EgressAllowPrivate are the hosts, addresses and networks in private networks that
	// the hub may call, with commas between.
	EgressAllowPrivate string
	// ShutdownTimeout is how long open requests may take to end.
	ShutdownTimeout time.Duration
	// MasterKey, if not empty, is the key that secrets are sealed with. From the
	// environment only.
	MasterKey string
	// MasterKeyFile is the file with that key; one in Data, made when it is needed, if
	// both are empty.
	MasterKeyFile string
	// AdminToken, if not empty, is the admin token. From the environment only, so
	// that it appears in no list of processes.
	AdminToken string

	// Version is the build's, for whoever asks; no setting.
	Version string
	// Synchronous weakens how the store syncs, for the test of the test that it does;
	// no setting.
	Synchronous string
}

// Default is the settings of a hub that was told nothing.
func Default() Config {
	l := hub.DefaultLimits()
	return Config{
		Listen: "127.0.0.1:7420", Data: "./holdfast-data",
		BlockingLimit: 10 * time.Minute, Retain: 720 * time.Hour, DeleteGrace: time.Hour,
		LogFormat: "text", LogLevel: slog.LevelInfo, MaxBody: 8 << 20,
		Lease: l.Lease, LeaseMax: l.LeaseMax, Redeliveries: l.Redeliveries, BackoffMin: l.BackoffMin, BackoffMax: l.BackoffMax,
		TaskEvents: int(l.Events), TaskBytes: l.Bytes, TaskMessages: l.Messages, OpenTasks: l.OpenTasks,
		Rate: 5_000, Burst: 10_000, TaskPushes: l.Pushes,
		PushGiveUp: 24 * time.Hour, PushBackoffMin: time.Second, PushBackoffMax: 10 * time.Minute,
		WebhookSlots: 4, WebhookTimeout: 10 * time.Minute, Tunnels: 10_000,
		ShutdownTimeout: 10 * time.Second,
	}
}

// Limits are the settings that the engine enforces on each task.
func (c *Config) Limits() hub.Limits {
	return hub.Limits{
		Events: int64(c.TaskEvents), Bytes: c.TaskBytes, Messages: c.TaskMessages, Pushes: c.TaskPushes, OpenTasks: c.OpenTasks,
		Lease: c.Lease, LeaseMax: c.LeaseMax, Redeliveries: c.Redeliveries, BackoffMin: c.BackoffMin, BackoffMax: c.BackoffMax,
		Attempts: hub.DefaultLimits().Attempts,
	}
}

// MinRetain is the shortest Retain: idempotency keys count until 24 h after the end
// of their task.
const MinRetain = 24 * time.Hour

// Validate reports every setting that cannot work, in words that say what to do.
func (c *Config) Validate() error {
	return errors.Join(
		c.checkListen(), c.checkPublicURL(), c.checkTLS(), c.checkCORS(), c.checkAnonymous(), c.checkMasterKey(), c.checkDatabase(), c.checkAdvertiseURL(),
		oneOf("log-format", c.LogFormat, "text", "json"),
		notEmpty("data", c.Data),
		between("blocking-limit", c.BlockingLimit, time.Second, 24*time.Hour),
		between("retain", c.Retain, MinRetain, 100*365*24*time.Hour),
		between("delete-grace", c.DeleteGrace, 0, 30*24*time.Hour),
		between("lease", c.Lease, time.Second, c.LeaseMax),
		between("lease-max", c.LeaseMax, time.Second, 30*24*time.Hour),
		between("backoff-min", c.BackoffMin, 10*time.Millisecond, c.BackoffMax),
		between("backoff-max", c.BackoffMax, 10*time.Millisecond, 24*time.Hour),
		between("task-events", c.TaskEvents, 10, 1_000_000),
		between("task-bytes", ByteSize(c.TaskBytes), 64<<10, 1<<30),
		between("task-messages", c.TaskMessages, 2, 100_000),
		between("open-tasks", c.OpenTasks, 1, 10_000_000),
		between("shutdown-timeout", c.ShutdownTimeout, time.Second, 10*time.Minute),
		between("max-body", ByteSize(c.MaxBody), 1<<10, 1<<30),
		between("redeliveries", c.Redeliveries, 0, 1_000),
		between("task-pushes", c.TaskPushes, 1, 1_000),
		between("push-give-up", c.PushGiveUp, time.Minute, 30*24*time.Hour),
		between("push-backoff-min", c.PushBackoffMin, 10*time.Millisecond, time.Hour),
		between("push-backoff-max", c.PushBackoffMax, c.PushBackoffMin, 24*time.Hour),
		between("webhook-slots", c.WebhookSlots, 1, 1_000),
		between("webhook-timeout", c.WebhookTimeout, time.Second, 24*time.Hour),
		between("tunnels", c.Tunnels, 0, 1_000_000),
		between("rate", c.Rate, 0.01, 1e6),
		between("burst", c.Burst, 1, 1e6),
	)
}

// Loopback reports whether nobody but this machine can reach the listener.
func (c *Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *Config) checkListen() error {
	_, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--listen %q is no address: give HOST:PORT, such as 127.0.0.1:7420 or :7420", c.Listen)
	}
	return nil
}

func (c *Config) checkPublicURL() error {
	if c.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--public-url has to be how callers reach the hub, such as https://hub.example.com or https://example.com/hub, without user, query or fragment")
	}
	return nil
}

func (c *Config) checkAdvertiseURL() error {
	if c.AdvertiseURL == "" {
		return nil
	}
	if c.DatabaseURL == "" {
		return errors.New("--advertise-url is where other replicas reach this one, and there are none without --database-url: leave it out")
	}
	u, err := url.Parse(c.AdvertiseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--advertise-url has to be where the other replicas reach this one, such as http://10.0.0.7:7420, without user, query or fragment")
	}
	return nil
}

func (c *Config) checkTLS() error {
	if (c.TLSCert == "") == (c.TLSKey == "") {
		return nil
	}
	return errors.New("--tls-cert and --tls-key belong together: give both, or neither")
}

// ErrDatabaseURL refuses the URL of another kind of database.
var ErrDatabaseURL = errors.New("--database-url and --database-direct-url have to begin with postgres://, as in postgres://user:password@host:5432/holdfast")

func (c *Config) checkDatabase() error {
	switch {
	case c.DatabaseURL == "" && c.DatabaseDirectURL == "":
		return nil
	case c.DatabaseURL == "":
		return errors.New("--database-direct-url is where else the database of --database-url can be reached: give that, too")
	case c.MasterKey == "" && c.MasterKeyFile == "":
		return errors.New("with --database-url all replicas need the same master key: make one with holdfast keys new, and set HOLDFAST_MASTER_KEY or --master-key-file for each of them")
	}
	for _, u := range []string{c.DatabaseURL, c.DatabaseDirectURL} {
		if u != "" && !strings.HasPrefix(u, "postgres://") && !strings.HasPrefix(u, "postgresql://") {
			return ErrDatabaseURL
		}
	}
	return nil
}

func (c *Config) checkMasterKey() error {
	if c.MasterKey == "" || c.MasterKeyFile == "" {
		return nil
	}
	return errors.New("HOLDFAST_MASTER_KEY and --master-key-file are two places for one key: give one of them")
}

func (c *Config) checkCORS() error {
	for _, origin := range c.CORSOrigins {
		if origin == "*" {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return fmt.Errorf("--cors-origin %q is no origin: give SCHEME://HOST[:PORT], such as https://app.example.com, or *", origin)
		}
	}
	return nil
}

func (c *Config) checkAnonymous() error {
	if !c.Anonymous {
		return nil
	}
	if !c.Loopback() {
		return fmt.Errorf("--anonymous lets anybody in who can reach %s: it works with a loopback listener only, such as --listen 127.0.0.1:7420; otherwise give callers tokens", c.Listen)
	}
	for _, origin := range c.CORSOrigins {
		if origin == "*" {
			return errors.New("--anonymous with --cors-origin '*' would let every web page use the hub: name the origins")
		}
	}
	return nil
}

func oneOf(name, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("--%s %q is not known: give %s", name, value, strings.Join(allowed, " or "))
}

func notEmpty(name, value string) error {
	if value == "" {
		return fmt.Errorf("--%s is empty: leave it out for its default, or give a value", name)
	}
	return nil
}

func between[T time.Duration | ByteSize | int | float64](name string, value, low, high T) error {
	if value >= low && value <= high { // written so that NaN fails
		return nil
	}
	return fmt.Errorf("--%s %v is out of range: give %v to %v", name, value, low, high)
}
