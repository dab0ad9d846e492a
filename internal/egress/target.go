package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const (
	maxURL   = 2048 // bytes of a URL
	maxHost  = 253  // bytes of a host name (RFC 1035)
	maxLabel = 63   // bytes between two dots of it
)

// target is where a URL leads.
type target struct {
	host string // a name in lower case, or an address without brackets
	port uint16
}

// String gives the target as host:port.
func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// parseTarget reads where an absolute URL leads. It refuses what is not plain; the
// errors say why and what to write instead, and do not repeat the URL, which may have
// secrets in it.
func parseTarget(raw string) (target, error) {
	if err := checkText(raw); err != nil {
		return target{}, err
	}
	u, err := url.Parse(raw)
	if err != nil { // whose text repeats the URL
		return target{}, errors.New("this is no URL; give one such as https://example.com/hook, with a host name in ASCII or an address in its usual form")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, errors.New("the hub calls http and https only; give a URL such as https://example.com/hook")
	case u.Opaque != "" || u.Host == "":
		return target{}, errors.New("the URL has no host; give one such as https://example.com/hook")
	case u.User != nil:
		return target{}, errors.New("the URL has a user name or password in it; take it out and give credentials separately")
	case strings.Contains(raw, "#"):
		return target{}, errors.New("the URL has a fragment, which is never sent; take out the # and what follows")
	}
	return parseHostPort(u)
}

// checkText refuses what has no place anywhere in a URL.
func checkText(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("the URL has more than %d bytes; give a shorter one", maxURL)
	}
	for _, c := range []byte(raw) {
		switch {
		case c < ' ' || c == 0x7f:
			return errors.New("the URL has a control character, such as a line break, in it; take it out")
		case c == ' ':
			return errors.New("the URL has a space in it; take it out, or write %20")
		case c == '\\':
			return errors.New("the URL has a backslash in it; write / or %5C")
		}
	}
	return nil
}

// parseHostPort reads the authority of a URL.
func parseHostPort(u *url.URL) (target, error) {
	t := target{host: strings.ToLower(u.Hostname())}
	bracketed := strings.HasPrefix(u.Host, "[")
	if err := checkHost(t.host, bracketed); err != nil {
		return target{}, err
	}
	rest := u.Host[len(t.host):]
	if bracketed {
		rest = u.Host[len(t.host)+2:]
	}
	switch {
	case rest != "":
		port, _ := strings.CutPrefix(rest, ":")
		var ok bool
		if t.port, ok = parsePort(port); !ok {
			return target{}, errors.New("the port is not a number from 1 to 65535; correct it, or take it out together with the colon")
		}
	case u.Scheme == "http":
		t.port = 80
	default:
		t.port = 443
	}
	return t, nil
}

// checkHost refuses hosts that are neither an address in its usual form nor an ordinary
// name. What Go and the system's resolver might take for different things is none of
// both.
func checkHost(host string, bracketed bool) error {
	if a, err := netip.ParseAddr(host); err == nil {
		switch {
		case a.Zone() != "":
			return errors.New("the address has a zone; the hub calls no addresses of a single network interface")
		case a.Is4() == bracketed:
			return errors.New("write IPv6 addresses in brackets and IPv4 addresses without")
		}
		return nil
	}
	switch {
	case bracketed:
		return errors.New("there is no IPv6 address in the brackets; correct it")
	case host == "":
		return errors.New("the URL has no host; give one such as https://example.com/hook")
	case strings.HasSuffix(host, "."):
		return errors.New("the host ends with a dot; take it out")
	case len(host) > maxHost:
		return fmt.Errorf("the host has more than %d bytes; no name is that long", maxHost)
	}
	labels := strings.Split(host, ".")
	for _, l := range labels {
		if err := checkLabel(l); err != nil {
			return err
		}
	}
	if looksNumeric(labels[len(labels)-1]) {
		return errors.New("the host looks like a number; write an IPv4 address as four decimal numbers without leading zeros, such as 192.0.2.7")
	}
	if isMetadataName(host) {
		return errors.New("the host is a cloud metadata service, which the hub never calls; give a public one")
	}
	return nil
}

// checkLabel refuses what is no part of a host name: letters, digits, hyphens within,
// and underscores, which container networks use.
func checkLabel(l string) error {
	switch {
	case l == "":
		return errors.New("the host has an empty part between its dots; correct it")
	case len(l) > maxLabel:
		return fmt.Errorf("a part of the host has more than %d bytes; no name has that", maxLabel)
	case l[0] == '-' || l[len(l)-1] == '-':
		return errors.New("a part of the host starts or ends with a hyphen; correct it")
	}
	for _, c := range []byte(l) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c >= 0x80:
			return errors.New("the host has other characters than ASCII in it; write an international name in its xn-- form, and digits as 0 to 9")
		default:
			return fmt.Errorf("the host has the character %q in it; use letters, digits, hyphens and dots", c)
		}
	}
	return nil
}

// looksNumeric tells whether a host whose last label is l may be an IPv4 address for
// some resolver: decimal, octal or hexadecimal.
func looksNumeric(l string) bool {
	if hex, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}

// isMetadataName knows the metadata services that have names. They are refused by
// their addresses as well; outside of their clouds the names lead nowhere.
func isMetadataName(host string) bool {
	return host == "metadata.google.internal" || host == "metadata.goog"
}

// isLocalhost tells whether a name means this machine, whatever DNS says (RFC 6761).
func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
