package a2a

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// resource is what a path of HTTP+JSON stands for: the operation for each HTTP
// method, empty where there is none, and the parameters that the path has.
type resource struct {
	get, post, remove string
	path              []pathParam
}

// pathParam is a parameter in a path.
type pathParam struct{ name, value string }

// on is the operation for an HTTP method, empty if there is none.
func (r resource) on(method string) string {
	switch method {
	case http.MethodGet:
		return r.get
	case http.MethodPost:
		return r.post
	case http.MethodDelete:
		return r.remove
	}
	return ""
}

// allow lists the HTTP methods, as the header Allow has them.
func (r resource) allow() string {
	var list []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if r.on(method) != "" {
			list = append(list, method)
		}
	}
	return strings.Join(list, ", ")
}

// belowHandle gives what follows /a/{handle}/ in a path, which stays escaped.
func belowHandle(path string) string {
	_, below, _ := strings.Cut(strings.TrimPrefix(path, "/a/"), "/")
	return below
}

// findResource finds what an escaped path below an endpoint stands for (spec sections
// 5.3 and 11.3). In front there may be a tenant, which cannot be mistaken for
// anything else: there is nothing below another first segment than tasks, and no
// address is called that.
func findResource(escaped string) (resource, error) {
	path := strings.Split(escaped, "/")
	var r resource
	if len(path) > 1 && path[0] != "tasks" {
		r.path = append(r.path, pathParam{"tenant", unescape(path[0])})
		path = path[1:]
	}
	switch {
	case len(path) == 1:
		return r.collection(unescape(path[0]))
	case path[0] != "tasks":
		return resource{}, errNoPath()
	case len(path) == 2:
		return r.task(path[1]), nil
	case path[2] != "pushNotificationConfigs" || len(path) > 4:
		return resource{}, errNoPath()
	}
	r.path = append(r.path, pathParam{"taskId", unescape(path[1])})
	if len(path) == 3 {
		r.get, r.post = "ListTaskPushNotificationConfigs", "CreateTaskPushNotificationConfig"
		return r, nil
	}
	r.path = append(r.path, pathParam{"id", unescape(path[3])})
	r.get, r.remove = "GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"
	return r, nil
}

// errNoPath answers a path that A2A has not got.
func errNoPath() error {
	return &fault{reason: methodNotFound, message: "A2A's HTTP+JSON binding has no such path; there are message:send, message:stream, extendedAgentCard, tasks, tasks/{id}, tasks/{id}:cancel, tasks/{id}:subscribe and tasks/{id}/pushNotificationConfigs"}
}

// collection is what a path of one segment stands for.
func (r resource) collection(name string) (resource, error) {
	switch name {
	case "message:send":
		r.post = "SendMessage"
	case "message:stream":
		r.post = "SendStreamingMessage"
	case "tasks":
		r.get = "ListTasks"
	case "extendedAgentCard":
		r.get = "GetExtendedAgentCard"
	default:
		return resource{}, errNoPath()
	}
	return r, nil
}

// task is what tasks/{id} stands for, with or without a verb. Only a colon that is
// written as such begins a verb; one that is escaped is part of the id, which may be
// anything.
func (r resource) task(segment string) resource {
	if id, ok := strings.CutSuffix(segment, ":cancel"); ok {
		segment, r.post = id, "CancelTask"
	} else if id, ok := strings.CutSuffix(segment, ":subscribe"); ok {
		// The specification's text has POST, and its .proto GET.
		segment, r.get, r.post = id, "SubscribeToTask", "SubscribeToTask"
	} else {
		r.get = "GetTask"
	}
	r.path = append(r.path, pathParam{"id", unescape(segment)})
	return r
}

// unescape undoes percent-encoding, which net/http has found to be right.
func unescape(segment string) string {
	s, err := url.PathUnescape(segment)
	if err != nil {
		return segment
	}
	return s
}

// queryParams turns a query into ProtoJSON, so that it is read by the same rules as
// the parameters of any other binding. A parameter without a value is absent, as are
// those that no operation has.
func queryParams(query string) ([]byte, error) {
	if query == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, hub.InvalidField("", "the query of the URL cannot be read; percent-encode what is not a letter or a digit")
	}
	seen := make(map[string]bool, len(values))
	out := []byte{'{'}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := camelCase(key)
		if name == "lastUpdatedAfter" { // as clients have it that are older than 1.0
			name = "statusTimestampAfter"
		}
		for _, value := range values[key] {
			if value == "" || !isQueryParam(name) {
				continue
			}
			if seen[name] {
				return nil, hub.InvalidField(name, "is given twice; send it once")
			}
			if !utf8.ValidString(value) {
				return nil, hub.InvalidField(name, "is not UTF-8")
			}
			if seen[name] = true; len(out) > 1 {
				out = append(out, ',')
			}
			out = append(rawjson.AppendText(out, name), ':')
			out = appendQueryValue(out, name, value)
		}
	}
	return append(out, '}'), nil
}

// isQueryParam reports whether some operation has a parameter of the name that is
// not in the path.
func isQueryParam(name string) bool {
	switch name {
	case "tenant", "contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter", "includeArtifacts":
		return true
	}
	return false
}

// appendQueryValue appends a value as ProtoJSON. Text stands for numbers too, as
// there; what is not of its type stays text, and is refused where it is decoded.
func appendQueryValue(dst []byte, name, value string) []byte {
	switch name {
	case "includeArtifacts":
		if low := strings.ToLower(value); low == "true" || low == "false" {
			return append(dst, low...)
		}
	case "status":
		if n, err := strconv.ParseUint(value, 10, 31); err == nil {
			return strconv.AppendUint(dst, n, 10)
		}
	}
	return rawjson.AppendText(dst, value)
}
