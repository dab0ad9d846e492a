package config_test

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/config"
)

func TestDefaultsAreValid(t *testing.T) {
	c := config.Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// Every field is one setting, and no two settings share a field: set each to
// something else and see that exactly one field changes.
func TestEverySettingIsListedOnce(t *testing.T) {
	other := map[string]string{"bool": "true", "duration": "77s", "int": "77", "float": "7.5", "size": "77KiB", "list": "https://x.example", "level": "debug", "string": "x"}
	fields := map[string]string{}
	for i, s := range new(config.Config).Settings() {
		c := config.Default()
		if err := c.Settings()[i].Value.Set(other[s.Value.Type()]); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		changed := changedFields(config.Default(), c)
		if len(changed) != 1 {
			t.Errorf("%s changes %v", s.Name, changed)
			continue
		}
		if before := fields[changed[0]]; before != "" {
			t.Errorf("%s and %s are the same field", s.Name, before)
		}
		fields[changed[0]] = s.Name
		if s.Doc == "" {
			t.Errorf("%s says nothing", s.Name)
		}
	}
	typ := reflect.TypeFor[config.Config]()
	for i := range typ.NumField() {
		if name := typ.Field(i).Name; fields[name] == "" && name != "Version" && name != "Synchronous" {
			t.Errorf("the field %s has no setting", name)
		}
	}
}

func changedFields(a, b config.Config) (names []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			names = append(names, va.Type().Field(i).Name)
		}
	}
	return names
}

// What a setting shows can be read again, and gives the same.
func TestSettingsReadWhatTheyWrite(t *testing.T) {
	want := config.Default()
	want.CORSOrigins, want.Rate, want.MaxBody = []string{"https://a.example", "https://b.example"}, 0.5, 1234567
	got := config.Config{}
	settings := got.Settings()
	for i, s := range want.Settings() {
		if err := settings[i].Value.Set(s.Value.String()); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFlagBeatsEnvironmentBeatsDefault(t *testing.T) {
	c := config.Default()
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	for _, s := range c.Settings() {
		if !s.EnvOnly {
			fs.Var(s.Value, s.Name, s.Doc)
		}
	}
	if err := fs.Parse([]string{"--listen", ":1", "--rate=2"}); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	err := c.ApplyEnv(lookup(map[string]string{
		"HOLDFAST_LISTEN": ":2", "HOLDFAST_DATA": "/env", "HOLDFAST_RETAIN": "48h", "HOLDFAST_ADMIN_TOKEN": "t", "HOLDFAST_PUBLIC_URL": "",
		"HOLDFAST_LOG_LEVEL": "warn", "HOLDFAST_CORS_ORIGIN": "https://a.example, https://b.example", "HOLDFAST_MAX_BODY": "1MiB",
	}), func(name string) bool { return given[name] })
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Listen, want.Rate = ":1", 2
	want.Data, want.Retain, want.AdminToken, want.LogLevel = "/env", 48*time.Hour, "t", slog.LevelWarn
	want.CORSOrigins, want.MaxBody = []string{"https://a.example", "https://b.example"}, 1<<20
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func TestEnvironmentErrorsNameTheVariable(t *testing.T) {
	for name, value := range map[string]string{
		"HOLDFAST_RETAIN": "30 days", "HOLDFAST_ANONYMOUS": "perhaps", "HOLDFAST_BURST": "many", "HOLDFAST_RATE": "fast",
		"HOLDFAST_MAX_BODY": "8 megs", "HOLDFAST_LOG_LEVEL": "loud",
	} {
		c := config.Default()
		if err := c.ApplyEnv(lookup(map[string]string{name: value}), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		says   string // empty if it is fine
	}{
		"port only":                 {func(c *config.Config) { c.Listen = ":7420" }, ""},
		"no port":                   {func(c *config.Config) { c.Listen = "127.0.0.1" }, "--listen"},
		"named port":                {func(c *config.Config) { c.Listen = "127.0.0.1:http" }, "--listen"},
		"anonymous on loopback":     {func(c *config.Config) { c.Anonymous = true; c.Listen = "[::1]:0" }, ""},
		"anonymous on localhost":    {func(c *config.Config) { c.Anonymous = true; c.Listen = "localhost:0" }, ""},
		"anonymous for all":         {func(c *config.Config) { c.Anonymous = true; c.Listen = ":7420" }, "--anonymous"},
		"anonymous on 0.0.0.0":      {func(c *config.Config) { c.Anonymous = true; c.Listen = "0.0.0.0:7420" }, "--anonymous"},
		"anonymous on a name":       {func(c *config.Config) { c.Anonymous = true; c.Listen = "hub.example:7420" }, "--anonymous"},
		"anonymous for every page":  {func(c *config.Config) { c.Anonymous = true; c.CORSOrigins = []string{"*"} }, "--anonymous"},
		"public URL with a path":    {func(c *config.Config) { c.PublicURL = "https://example.com/hub/" }, ""},
		"public URL without scheme": {func(c *config.Config) { c.PublicURL = "example.com" }, "--public-url"},
		"public URL with a query":   {func(c *config.Config) { c.PublicURL = "https://example.com?x" }, "--public-url"},
		"public URL with a user":    {func(c *config.Config) { c.PublicURL = "https://a:b@example.com" }, "--public-url"},
		"half of TLS":               {func(c *config.Config) { c.TLSCert = "cert.pem" }, "--tls-key"},
		"two master keys":           {func(c *config.Config) { c.MasterKey = "hush"; c.MasterKeyFile = "x" }, "--master-key-file"},
		"a database":                {func(c *config.Config) { c.DatabaseURL = "postgres://hub@db/holdfast"; c.MasterKey = "hush" }, ""},
		"a database and no key":     {func(c *config.Config) { c.DatabaseURL = "postgres://hub@db/holdfast" }, "HOLDFAST_MASTER_KEY"},
		"another kind of database":  {func(c *config.Config) { c.DatabaseURL = "mysql://hub@db/holdfast"; c.MasterKey = "hush" }, "postgres://"},
		"an advertised URL alone":   {func(c *config.Config) { c.AdvertiseURL = "http://10.0.0.7:7420" }, "--database-url"},
		"an advertised URL that is none": {func(c *config.Config) {
			c.DatabaseURL, c.MasterKey, c.AdvertiseURL = "postgres://hub@db/holdfast", "k", "10.0.0.7:7420"
		}, "--advertise-url"},
		"a direct URL alone":       {func(c *config.Config) { c.DatabaseDirectURL = "postgres://hub@db/holdfast" }, "--database-url"},
		"no push configurations":   {func(c *config.Config) { c.TaskPushes = 0 }, "--task-pushes"},
		"giving up too soon":       {func(c *config.Config) { c.PushGiveUp = time.Second }, "--push-give-up"},
		"push backoff upside down": {func(c *config.Config) { c.PushBackoffMin, c.PushBackoffMax = time.Minute, time.Second }, "--push-backoff-max"},
		"short retention":          {func(c *config.Config) { c.Retain = 23 * time.Hour }, "--retain"},
		"origin with a path":       {func(c *config.Config) { c.CORSOrigins = []string{"https://a.example/"} }, "--cors-origin"},
		"any origin":               {func(c *config.Config) { c.CORSOrigins = []string{"*"} }, ""},
		"log format":               {func(c *config.Config) { c.LogFormat = "xml" }, "--log-format"},
		"no data":                  {func(c *config.Config) { c.Data = "" }, "--data"},
		"no lease":                 {func(c *config.Config) { c.Lease = 0 }, "--lease"},
		"no redeliveries":          {func(c *config.Config) { c.Redeliveries = 0 }, ""},
		"negative redeliveries":    {func(c *config.Config) { c.Redeliveries = -1 }, "--redeliveries"},
		"no rate":                  {func(c *config.Config) { c.Rate = 0 }, "--rate"},
		"tiny body":                {func(c *config.Config) { c.MaxBody = 1 }, "--max-body 1 is out of range: give 1KiB to 1GiB"},
		"two faults":               {func(c *config.Config) { c.MaxBody = 1; c.Burst = 0 }, "--burst"},
	} {
		cfg := config.Default()
		c.change(&cfg)
		err := cfg.Validate()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzByteSize(f *testing.F) {
	for _, seed := range []string{"0", "8MiB", "1 GiB", "1023", "-1", "9223372036854775807GiB", "KiB", "1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := config.ParseByteSize(s)
		if err != nil {
			return
		}
		if again, err := config.ParseByteSize(n.String()); n < 0 || again != n || err != nil {
			t.Errorf("%q is %d, written %s, read again %d, %v", s, n, n, again, err)
		}
	})
}

func writeProfiles(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProfiles(t *testing.T) {
	path := writeProfiles(t, "[profiles.work]\nurl = \"https://hub.example.com\"\ntoken = \"hf_x\"\n[profiles.default]\nurl = \"http://127.0.0.1:7420\"\n")
	for name, want := range map[string]config.Profile{
		"work": {URL: "https://hub.example.com", Token: "hf_x"}, "": {URL: "http://127.0.0.1:7420"},
	} {
		if got, err := config.LoadProfile(path, name); got != want || err != nil {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	if _, err := config.LoadProfile(path, "home"); err == nil || !strings.Contains(err.Error(), "default, work") {
		t.Errorf("a missing profile: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "none.toml")
	if got, err := config.LoadProfile(missing, ""); got != (config.Profile{}) || err != nil {
		t.Errorf("no file: %+v, %v", got, err)
	}
	if _, err := config.LoadProfile(missing, "work"); err == nil {
		t.Error("no file, but a named profile: no error")
	}
}

func TestProfileErrorsShowNoToken(t *testing.T) {
	for _, text := range []string{
		"[profiles.work]\nurl = \"x\"\ntokne = \"hush\"\n", "[profiles.work]\ntoken = hush\n", "[profiles.work]\ntoken = [\"hush\"]\n", "token = \"hush\"\n",
	} {
		_, err := config.LoadProfile(writeProfiles(t, text), "work")
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestProfilePathFollowsXDG(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/somewhere")
	if got, err := config.ProfilePath(); err != nil || got != filepath.Join("/somewhere", "holdfast", "config.toml") {
		t.Errorf("%s, %v", got, err)
	}
}

// A limit that nobody sets would be no limit.
func TestNoLimitIsLeftOut(t *testing.T) {
	c := config.Default()
	limits := reflect.ValueOf(c.Limits())
	for i := range limits.NumField() {
		if limits.Field(i).IsZero() {
			t.Errorf("%s is zero", limits.Type().Field(i).Name)
		}
	}
}
