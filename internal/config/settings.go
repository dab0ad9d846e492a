package config

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Value reads and writes one setting. It is what flag and pflag packages take.
type Value interface {
	// String is the value as one would write it.
	String() string
	// Set reads a value.
	Set(text string) error
	// Type names what the value is, such as "duration"; "bool" for switches.
	Type() string
}

// Setting is one setting of a Config.
type Setting struct {
	// Name is that of the flag, without dashes.
	Name string
	// Doc says in a sentence what it means.
	Doc string
	// Value is bound to the field of the Config that the setting came from.
	Value Value
	// EnvOnly marks what is no flag because it is a secret.
	EnvOnly bool
}

// Env is the name of the setting in the environment.
func (s Setting) Env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Settings lists all settings of c in the order of the documentation.
func (c *Config) Settings() []Setting {
	return []Setting{
		{Name: "listen", Value: text(&c.Listen), Doc: "address and port to listen on"},
		{Name: "data", Value: text(&c.Data), Doc: "directory that holds everything the hub keeps; created if missing"},
		{Name: "database-url", Value: text(&c.DatabaseURL), Doc: "PostgreSQL database that holds everything in place of the data directory, for any number of replicas, such as postgres://user:password@host:5432/holdfast; better set in the environment, where no list of processes shows the password"},
		{Name: "database-direct-url", Value: text(&c.DatabaseDirectURL), Doc: "the same database past PgBouncer, if --database-url leads through one; replicas tell each other through it what has changed"},
		{Name: "public-url", Value: text(&c.PublicURL), Doc: "how callers reach the hub, the base of every URL it gives out; taken from --listen if empty"},
		{Name: "anonymous", Value: flag(&c.Anonymous), Doc: "let in callers without a token, for trying out; with a loopback listener only"},
		{Name: "tls-cert", Value: text(&c.TLSCert), Doc: "PEM file with the certificate chain; together with --tls-key the hub speaks HTTPS"},
		{Name: "tls-key", Value: text(&c.TLSKey), Doc: "PEM file with the certificate's private key"},
		{Name: "blocking-limit", Value: duration(&c.BlockingLimit), Doc: "how long a blocking A2A send waits for the end of its task before it gives the task as it is"},
		{Name: "retain", Value: duration(&c.Retain), Doc: "how long ended tasks and their history are kept; at least 24h"},
		{Name: "delete-grace", Value: duration(&c.DeleteGrace), Doc: "how long the queued tasks of a deleted address wait before they are canceled"},
		{Name: "cors-origin", Value: list(&c.CORSOrigins), Doc: "origins whose web pages may call the hub, separated by commas, or *"},
		{Name: "max-body", Value: size(&c.MaxBody), Doc: "largest body of a request"},
		{Name: "private-cards", Value: flag(&c.PrivateCards), Doc: "show an agent's card only to those who may call it"},
		{Name: "lease", Value: duration(&c.Lease), Doc: "how long a claim lasts without a sign of life, unless the address or its worker says otherwise"},
		{Name: "redeliveries", Value: number(&c.Redeliveries), Doc: "how often a lost delivery is repeated before the task fails, unless the address says otherwise"},
		{Name: "lease-max", Value: duration(&c.LeaseMax), Doc: "the longest lease that a worker may ask for"},
		{Name: "backoff-min", Value: duration(&c.BackoffMin), Doc: "the wait before the first redelivery of a task; it doubles with each"},
		{Name: "backoff-max", Value: duration(&c.BackoffMax), Doc: "the longest wait before a redelivery"},
		{Name: "task-events", Value: number(&c.TaskEvents), Doc: "events that one task may have; its end is always accepted"},
		{Name: "task-bytes", Value: size(&c.TaskBytes), Doc: "bytes of messages and events that one task may have"},
		{Name: "task-messages", Value: number(&c.TaskMessages), Doc: "messages that one task may have"},
		{Name: "task-pushes", Value: number(&c.TaskPushes), Doc: "push-notification configurations that one task may have"},
		{Name: "open-tasks", Value: number(&c.OpenTasks), Doc: "unfinished tasks that one caller may have at one address"},
		{Name: "rate", Value: decimal(&c.Rate), Doc: "sends per second of one caller to one address"},
		{Name: "burst", Value: number(&c.Burst), Doc: "sends at once of one caller to one address"},
		{Name: "no-push", Value: flag(&c.NoPush), Doc: "send no push notifications, and say so on cards"},
		{Name: "push-give-up", Value: duration(&c.PushGiveUp), Doc: "how long a push notification is tried before it is given up"},
		{Name: "push-backoff-min", Value: duration(&c.PushBackoffMin), Doc: "the longest wait before the second try of a push notification; it doubles with each"},
		{Name: "push-backoff-max", Value: duration(&c.PushBackoffMax), Doc: "the longest wait before another try of a push notification"},
		{Name: "no-webhook", Value: flag(&c.NoWebhook), Doc: "deliver to no webhooks: agents pull their tasks"},
		{Name: "webhook-slots", Value: number(&c.WebhookSlots), Doc: "tasks of one address that are delivered to its webhook at once"},
		{Name: "webhook-timeout", Value: duration(&c.WebhookTimeout), Doc: "how long a webhook may take to answer; one that takes longer answers at once that it works, and reports later"},
		{Name: "tunnels", Value: number(&c.Tunnels), Doc: "tunnels of agents that may be open at once; 0 takes none"},
		{Name: "advertise-url", Value: text(&c.AdvertiseURL), Doc: "where the other replicas reach this one, such as http://10.0.0.7:7420, so that any of them relays to an agent whose tunnel is open here"},
		{Name: "egress-allow-local", Value: text(&c.EgressAllowLocal), Doc: "ports and ranges of ports on this machine's loopback that the hub may call, such as 8080,9000-9010, for local use; anybody who may send a task can have them called"},
		{Name: "egress-allow-private", Value: text(&c.EgressAllowPrivate), Doc: "hosts, addresses and networks in private networks that the hub may call, such as hooks.internal,10.9.0.0/16; anybody who may send a task can have them called"},
		{Name: "shutdown-timeout", Value: duration(&c.ShutdownTimeout), Doc: "how long open requests may take to end when the hub stops"},
		{Name: "log-format", Value: text(&c.LogFormat), Doc: "form of log lines: text or json"},
		{Name: "log-level", Value: level(&c.LogLevel), Doc: "least level to log: debug, info, warn or error; debug shows every request"},
		{Name: "master-key-file", Value: text(&c.MasterKeyFile), Doc: "file with the master key that secrets are sealed with, for its owner alone; master.key in the data directory, made at the first start, if empty"},
		{Name: "master-key", Value: text(&c.MasterKey), EnvOnly: true, Doc: "the master key itself, in place of a file; holdfast keys new makes one"},
		{Name: "admin-token", Value: text(&c.AdminToken), EnvOnly: true, Doc: "the admin token, at least 24 characters, in place of one made at first start; another value replaces it"},
	}
}

// ApplyEnv takes from the environment what the command line did not set. lookup is
// os.LookupEnv; changed reports whether a flag was given, nil for none. An empty
// variable counts as unset.
func (c *Config) ApplyEnv(lookup func(string) (string, bool), changed func(name string) bool) error {
	var errs []error
	for _, s := range c.Settings() {
		v, _ := lookup(s.Env())
		if v == "" || changed != nil && changed(s.Name) {
			continue
		}
		if err := s.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Env(), err))
		}
	}
	return errors.Join(errs...)
}

// value is a Value made of functions.
type value struct {
	kind string
	get  func() string
	set  func(string) error
}

func (v value) String() string {
	if v.get == nil { // flag packages ask the zero value for the zero default
		return ""
	}
	return v.get()
}
func (v value) Set(s string) error { return v.set(s) }
func (v value) Type() string       { return v.kind }

func text(p *string) Value {
	return value{"string", func() string { return *p }, func(s string) error { *p = s; return nil }}
}

func flag(p *bool) Value {
	return value{"bool", func() string { return strconv.FormatBool(*p) }, func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*p = v
		return nil
	}}
}

func duration(p *time.Duration) Value {
	return value{"duration", func() string { return shortDuration(*p) }, func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is no duration: give a number with a unit, such as 90s, 10m or 720h", s)
		}
		*p = v
		return nil
	}}
}

// shortDuration writes 10m for Go's 10m0s, and 720h for 720h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func number(p *int) Value {
	return value{"int", func() string { return strconv.Itoa(*p) }, func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil {
			return fmt.Errorf("%q is no whole number", s)
		}
		*p = v
		return nil
	}}
}

func decimal(p *float64) Value {
	return value{"float", func() string { return strconv.FormatFloat(*p, 'g', -1, 64) }, func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", s)
		}
		*p = v
		return nil
	}}
}

func size(p *int64) Value {
	return value{"size", func() string { return ByteSize(*p).String() }, func(s string) error {
		v, err := ParseByteSize(s)
		if err != nil {
			return err
		}
		*p = int64(v)
		return nil
	}}
}

func list(p *[]string) Value {
	return value{"list", func() string { return strings.Join(*p, ",") }, func(s string) error {
		*p = nil
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*p = append(*p, item)
			}
		}
		return nil
	}}
}

func level(p *slog.Level) Value {
	return value{"level", func() string { return strings.ToLower(p.String()) }, func(s string) error {
		var v slog.Level
		if err := v.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("%q is no level: give debug, info, warn or error", s)
		}
		*p = v
		return nil
	}}
}

// ByteSize is a number of bytes.
type ByteSize int64

var units = [...]struct {
	name string
	size ByteSize
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String writes whole units where it can, such as 8MiB.
func (b ByteSize) String() string {
	for _, u := range units {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseByteSize reads a number of bytes, or of KiB, MiB or GiB.
func ParseByteSize(s string) (ByteSize, error) {
	digits, unit := strings.TrimSpace(s), ByteSize(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || ByteSize(n) > (1<<62)/unit {
		return 0, fmt.Errorf("%q is no size: give a number of bytes, or one with KiB, MiB or GiB, such as 8MiB", s)
	}
	return ByteSize(n) * unit, nil
}
