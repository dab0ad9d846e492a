package a2a_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-hub/holdfast/internal/config"
)

// h2c is a client that speaks HTTP/2 without TLS, and nothing else.
func h2c(t testing.TB) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &p}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// framed is a message behind its prefix.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// marshal is a message in bytes.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// rawGRPC posts a body as a gRPC call and gives the answer's body and status.
func (b *bed) rawGRPC(client *http.Client, method string, body io.Reader, headers ...string) ([]byte, *status.Status) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/lf.a2a.v1.A2AService/"+method, body)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Authorization": {"Bearer " + b.caller}}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/grpc" {
		b.t.Fatalf("no gRPC but %d %s %s", res.StatusCode, res.Header, answer)
	}
	details, err := base64.RawStdEncoding.DecodeString(res.Trailer.Get("Grpc-Status-Details-Bin"))
	if err != nil {
		b.t.Fatal(err)
	}
	var s spb.Status
	if err := proto.Unmarshal(details, &s); err != nil {
		b.t.Fatal(err)
	}
	if got := res.Trailer.Get("Grpc-Status"); got != fmt.Sprint(s.GetCode()) {
		b.t.Fatalf("grpc-status %q, and %d in the details", got, s.GetCode())
	}
	return answer, status.FromProto(&s)
}

// TestGRPCWire: what is wrong with the bytes of a call is said in gRPC's own way.
func TestGRPCWire(t *testing.T) {
	b := newBed(t)
	client := h2c(t)
	list := framed(marshal(t, &pbv1.ListTasksRequest{Tenant: "coder"}))
	send := func(v *structpb.Value) []byte {
		return framed(marshal(t, &pbv1.SendMessageRequest{Tenant: "coder", Message: &pbv1.Message{
			MessageId: "m", Role: pbv1.Role_ROLE_USER, Parts: []*pbv1.Part{{Content: &pbv1.Part_Data{Data: v}}},
		}}))
	}
	deep := structpb.NewNullValue()
	for range 70 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	huge := binary.BigEndian.AppendUint32([]byte{0}, math.MaxUint32)
	for name, c := range map[string]struct {
		method, body string
		headers      []string
		want         codes.Code
		reason       string
	}{
		"all is well":       {"ListTasks", string(list), nil, codes.OK, ""},
		"with +proto":       {"ListTasks", string(list), []string{"Content-Type", "application/grpc+proto"}, codes.OK, ""},
		"no message":        {"ListTasks", "", nil, codes.InvalidArgument, "PARSE_ERROR"},
		"half a prefix":     {"ListTasks", "\x00\x00", nil, codes.InvalidArgument, "PARSE_ERROR"},
		"half a message":    {"ListTasks", string(list[:len(list)-1]), nil, codes.InvalidArgument, "PARSE_ERROR"},
		"two messages":      {"ListTasks", string(list) + string(list), nil, codes.InvalidArgument, "PARSE_ERROR"},
		"no protobuf":       {"ListTasks", string(framed([]byte{0xff})), nil, codes.InvalidArgument, "PARSE_ERROR"},
		"not UTF-8":         {"ListTasks", string(framed(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"))), nil, codes.InvalidArgument, "PARSE_ERROR"},
		"compressed":        {"ListTasks", "\x01" + string(list[1:]), []string{"Grpc-Encoding", "gzip"}, codes.Unimplemented, "METHOD_NOT_FOUND"},
		"huge":              {"ListTasks", string(huge), nil, codes.ResourceExhausted, "TOO_LARGE"},
		"no such method":    {"Nothing", string(list), nil, codes.Unimplemented, "METHOD_NOT_FOUND"},
		"no such deadline":  {"ListTasks", string(list), []string{"Grpc-Timeout", "1"}, codes.InvalidArgument, "INVALID_PARAMS"},
		"another version":   {"ListTasks", string(list), []string{"A2A-Version", "2.0"}, codes.FailedPrecondition, "VERSION_NOT_SUPPORTED"},
		"0.3 is no version": {"ListTasks", string(list), []string{"A2A-Version", "0.3"}, codes.FailedPrecondition, "VERSION_NOT_SUPPORTED"},
		"not a number":      {"SendMessage", string(send(structpb.NewNumberValue(math.NaN()))), nil, codes.InvalidArgument, "INVALID_PARAMS"},
		"no value":          {"SendMessage", string(send(&structpb.Value{})), nil, codes.InvalidArgument, "INVALID_PARAMS"},
		"too deep":          {"SendMessage", string(send(deep)), nil, codes.InvalidArgument, "INVALID_PARAMS"},
		"large as JSON":     {"SendMessage", string(send(structpb.NewStringValue(strings.Repeat("\x01", 2<<20)))), nil, codes.ResourceExhausted, "TOO_LARGE"},
		"large":             {"SendMessage", string(send(structpb.NewStringValue(strings.Repeat("x", 9<<20)))), nil, codes.ResourceExhausted, "TOO_LARGE"},
		"no credential":     {"ListTasks", string(list), []string{"Authorization", ""}, codes.Unauthenticated, "UNAUTHENTICATED"},
	} {
		body, s := b.rawGRPC(client, c.method, strings.NewReader(c.body), c.headers...)
		if s.Code() != c.want {
			t.Errorf("%s: %s, want %s", name, s, c.want)
			continue
		}
		if c.want == codes.OK {
			var got pbv1.ListTasksResponse
			if len(body) < 5 || proto.Unmarshal(body[5:], &got) != nil || got.PageSize != 50 {
				t.Errorf("%s: %q", name, body)
			}
			continue
		}
		if len(body) > 0 || !strings.Contains(s.String()+fmt.Sprint(s.Details()...), c.reason) {
			t.Errorf("%s: %q, %v", name, body, s.Details())
		}
	}
}

// TestGRPCNeedsGRPC: what is no gRPC call is told so in plain HTTP.
func TestGRPCNeedsGRPC(t *testing.T) {
	b := newBed(t)
	for client, media := range map[*http.Client]string{b.client: "application/grpc", h2c(t): "application/grpc+json"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.URL+"/lf.a2a.v1.A2AService/ListTasks", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", media)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s over %s: %d", media, res.Proto, res.StatusCode)
		}
	}
}

// TestGRPCStrangerSendsNothing: who may not call is told before the message is there.
func TestGRPCStrangerSendsNothing(t *testing.T) {
	b := newBed(t)
	body, hold := io.Pipe()
	defer hold.Close()
	if _, s := b.rawGRPC(h2c(t), "SendMessage", body, "Authorization", "Bearer wrong"); s.Code() != codes.Unauthenticated {
		t.Errorf("got %s", s)
	}
}

// TestGRPCDeadline: a blocking send that its caller does not wait for is given up, and
// the task is not.
func TestGRPCDeadline(t *testing.T) {
	b := newBed(t)
	send := framed(marshal(t, &pbv1.SendMessageRequest{Tenant: "coder", Message: &pbv1.Message{
		MessageId: "m", Role: pbv1.Role_ROLE_USER, Parts: []*pbv1.Part{{Content: &pbv1.Part_Text{Text: "x"}}},
	}}))
	if _, s := b.rawGRPC(h2c(t), "SendMessage", bytes.NewReader(send), "Grpc-Timeout", "300m"); s.Code() != codes.DeadlineExceeded {
		t.Errorf("got %s", s)
	}
	if got := b.next(); got.ID == "" {
		t.Error("the task is gone")
	}
}

// TestGRPCReaderThatNeverReads: one that does not read its stream holds up neither the
// callee nor another subscriber.
func TestGRPCReaderThatNeverReads(t *testing.T) {
	b := newBed(t)
	b.speak = grpcV1
	id := b.send(b.caller, "x").ID
	b.next()
	stuck, err := grpc.NewClient(strings.TrimPrefix(b.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+b.caller)
	if _, err := pbv1.NewA2AServiceClient(stuck).SubscribeToTask(ctx, &pbv1.SubscribeToTaskRequest{Tenant: "coder", Id: id}); err != nil {
		t.Fatal(err)
	}
	s := b.stream(b.caller, "SubscribeToTask", subscribe(id))
	const chunks = 300
	text := strings.Repeat("x", 16<<10)
	var feed sync.WaitGroup
	feed.Go(func() {
		for i := range chunks {
			b.chunk(id, text, i > 0)
		}
		b.finish(id, "completed", "")
	})
	all := s.states()
	feed.Wait()
	if len(all) != chunks+2 {
		t.Fatalf("%d events, want the task, %d chunks and the end", len(all), chunks)
	}
}

// TestGRPCWithoutTenant: the metadata a2a-tenant names the address where a request does
// not, and nothing has to where the caller may call one address only.
func TestGRPCWithoutTenant(t *testing.T) {
	b := newBed(t)
	for _, speak := range []binding{grpcV1, grpcV03} {
		b.speak = speak
		hub := b.at("hub")
		const get = `{"id":"none"}`
		wantReason(t, hub.call(b.caller, "GetTask", get), "INVALID_PARAMS")
		wantReason(t, hub.call(b.caller, "GetTask", get, "A2A-Tenant", "coder"), "TASK_NOT_FOUND")
		wantReason(t, hub.call(b.caller, "GetTask", get, "A2A-Tenant", "nobody"), "UNAUTHORIZED")
	}
	if err := b.Identity().DeleteAgent(t.Context(), b.Admin(), "other"); err != nil {
		t.Fatal(err)
	}
	for _, speak := range []binding{grpcV1, grpcV03, jsonRPC} {
		b.speak = speak
		wantReason(t, b.at("hub").call(b.caller, "GetTask", `{"id":"none"}`), "TASK_NOT_FOUND")
	}
	id := decode[struct{ Task task }](t, b.at("hub").call(b.caller, "SendMessage", message("x", "", immediately))).Task.ID
	if got := b.next().ID; got != id {
		t.Errorf("sent to somebody else: %s", got)
	}
}

// TestGRPCOverTLS: gRPC, HTTP/2 and HTTP/1.1 are on one port, with TLS too.
func TestGRPCOverTLS(t *testing.T) {
	roots, cert, key := selfSigned(t)
	b := newBed(t, func(c *config.Config) { c.TLSCert, c.TLSKey = cert, key })
	secure := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient(strings.TrimPrefix(b.URL, "https://"), grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+b.caller)
	if _, err := pbv1.NewA2AServiceClient(conn).GetTask(ctx, &pbv1.GetTaskRequest{Tenant: "coder", Id: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
	for _, second := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: secure.Clone(), ForceAttemptHTTP2: second}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get(b.URL + "/a/coder/.well-known/agent-card.json")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK || res.ProtoAtLeast(2, 0) != second {
			t.Errorf("%s %s", res.Proto, res.Status)
		}
	}
}

// selfSigned makes a certificate for this machine, in files.
func selfSigned(t *testing.T) (roots *x509.CertPool, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return roots, certFile, keyFile
}

// FuzzGRPC: whatever the bytes of a call are, it is answered by gRPC and never by the
// hub's own failure.
func FuzzGRPC(f *testing.F) {
	methods := []string{
		"lf.a2a.v1.A2AService/SendMessage", "lf.a2a.v1.A2AService/SendStreamingMessage", "lf.a2a.v1.A2AService/GetTask", "lf.a2a.v1.A2AService/ListTasks",
		"lf.a2a.v1.A2AService/CancelTask", "lf.a2a.v1.A2AService/SubscribeToTask", "lf.a2a.v1.A2AService/GetExtendedAgentCard",
		"lf.a2a.v1.A2AService/CreateTaskPushNotificationConfig", "lf.a2a.v1.A2AService/ListTaskPushNotificationConfigs",
		"a2a.v1.A2AService/SendMessage", "a2a.v1.A2AService/GetTask", "a2a.v1.A2AService/TaskSubscription", "a2a.v1.A2AService/GetAgentCard",
		"a2a.v1.A2AService/CreateTaskPushNotificationConfig", "a2a.v1.A2AService/ListTasks",
	}
	text := &pbv1.SendMessageRequest{Message: &pbv1.Message{MessageId: "m", Role: pbv1.Role_ROLE_USER, Parts: []*pbv1.Part{{Content: &pbv1.Part_Text{Text: "x"}}}}}
	for i := range methods {
		f.Add(byte(i), framed(marshal(f, text)), "")
		f.Add(byte(i), framed(marshal(f, &pbv1.GetTaskRequest{Tenant: "coder", Id: "tasks/x"})), "1S")
		f.Add(byte(i), []byte(nil), "0n")
	}
	b := newBed(f)
	b.work(f)
	left := audit{b: b}
	client := h2c(f)
	f.Fuzz(func(t *testing.T, which byte, body []byte, header string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/"+methods[int(which)%len(methods)], bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/grpc"}, "Authorization": {"Bearer " + b.caller}, "A2a-Tenant": {"coder"},
			"Grpc-Timeout": {header}, "Last-Event-Id": {header}, "Idempotency-Key": {header},
		}
		res, err := client.Do(r)
		if err != nil {
			if strings.Contains(err.Error(), "invalid header field value") || strings.Contains(err.Error(), "invalid HTTP header value") {
				t.Skip("no HTTP client can send this")
			}
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		if res.Header.Get("X-Request-Id") == "" && res.StatusCode == http.StatusBadRequest {
			return // no HTTP
		}
		switch code := res.Trailer.Get("Grpc-Status"); code {
		case "", fmt.Sprint(int(codes.Internal)), fmt.Sprint(int(codes.Unknown)):
			t.Fatalf("%d %v, status %q %s", res.StatusCode, res.Header, code, res.Trailer.Get("Grpc-Message"))
		case fmt.Sprint(int(codes.DeadlineExceeded)): // when the hub may have done it already
			left.after(t, false)
		default:
			withoutInternals(t, res.Trailer.Get("Grpc-Message"), string(body))
			left.after(t, code != "0")
		}
	})
}
