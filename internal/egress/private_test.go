package egress

import "testing"

func TestParseTargets(t *testing.T) {
	const all = "hooks.internal,10.1.2.3,10.9.0.0/16,fd12:3456::/32"
	list, err := ParseTargets(" Hooks.Internal, 10.1.2.3 ,10.9.0.0/16,fd12:3456::/32")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for i, target := range list {
		if i > 0 {
			got += ","
		}
		got += target.String()
	}
	if got != all {
		t.Errorf("got %s, want %s", got, all)
	}
	for _, bad := range []string{
		",", "10.0.0.0/7", "0.0.0.0/0", "::/0", "8.8.8.8", "127.0.0.1", "127.0.0.0/8", "169.254.169.254", "100.64.0.0/10",
		"10.1.2.3/8", "localhost", "http://hooks.internal", "hooks.internal:80", "a b", "fe80::1", "[fd00::1]", "fd00:ec2::254",
	} {
		if list, err := ParseTargets(bad); err == nil {
			t.Errorf("%q was read as %v", bad, list)
		}
	}
}

// What the operator names is open to all, and nothing else is with it.
func TestPrivateTargetsOfTheOperator(t *testing.T) {
	targets, err := ParseTargets("hooks.test,10.1.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	resolver := names{
		"hooks.test": {"192.168.7.7"}, "other.test": {"192.168.7.7"}, "x.hooks.test": {"192.168.7.7"}, "evil.test": {"127.0.0.1"},
		"in.test": {"10.1.9.9", "::ffff:10.1.9.8"}, "partly.test": {"10.1.9.9", "10.2.0.1"},
	}
	g := New(Options{AllowPrivate: targets, Resolver: resolver})
	defer g.Close()
	for url, want := range map[string]bool{
		"http://hooks.test/": true, "http://HOOKS.test/x": true, "http://in.test/": true, "http://10.1.2.3/": true,
		"http://other.test/": false, "http://partly.test/": false, "http://10.2.0.1/": false, "http://192.168.7.7/": false,
		"http://evil.test/": false, "http://x.hooks.test/": false,
	} {
		if err := g.Check(t.Context(), url, Permit{}); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
}
