package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// grpcCalls makes calls of gRPC and keeps what came.
type grpcCalls struct {
	*search
	client pb.A2AServiceClient
}

func (s *search) grpcClient() grpcCalls {
	s.t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(s.hub.URL(), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return grpcCalls{s, pb.NewA2AServiceClient(conn)}
}

// as is the context of a call with a token.
func (c grpcCalls) as(token string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	return ctx, cancel
}

// keep keeps an answer: its messages as they are on the wire, its metadata, and its
// error with the details.
func (c grpcCalls) keep(method string, header, trailer metadata.MD, err error, messages ...proto.Message) {
	c.t.Helper()
	answer := fmt.Appendf(nil, "%v\n%v\n%v\n", header, trailer, err)
	details, mistake := proto.Marshal(status.Convert(err).Proto())
	c.must(mistake)
	answer = append(answer, details...)
	for _, m := range messages {
		wire, mistake := proto.Marshal(m)
		c.must(mistake)
		answer = append(answer, wire...)
	}
	c.said[fmt.Sprintf("gRPC %s (answer %d)", method, len(c.said))] = answer
}

// pushByGRPC makes a configuration over gRPC, and some that are refused.
func (s *search) pushByGRPC(where, token, credentials, inURL string) {
	s.t.Helper()
	c := s.grpcClient()
	auth := &pb.AuthenticationInfo{Scheme: "Bearer", Credentials: credentials}
	for _, config := range []struct {
		code codes.Code
		of   *pb.TaskPushNotificationConfig
	}{
		{codes.OK, &pb.TaskPushNotificationConfig{Id: "four", Url: where, Token: token, Authentication: auth}},
		{codes.InvalidArgument, &pb.TaskPushNotificationConfig{Url: "http://169.254.169.254/", Token: token, Authentication: auth}},
		{codes.InvalidArgument, &pb.TaskPushNotificationConfig{Url: "http://" + inURL + ":" + inURL + "@example.com/", Token: token}},
		{codes.InvalidArgument, &pb.TaskPushNotificationConfig{Url: where, Authentication: &pb.AuthenticationInfo{Scheme: "B\x00", Credentials: credentials}}},
		{codes.InvalidArgument, &pb.TaskPushNotificationConfig{Url: where, Token: token + "\r\n", Authentication: auth}},
	} {
		var header, trailer metadata.MD
		ctx, cancel := c.as(s.ann)
		config.of.Tenant, config.of.TaskId = "bob", s.task
		made, err := c.client.CreateTaskPushNotificationConfig(ctx, config.of, grpc.Header(&header), grpc.Trailer(&trailer))
		cancel()
		c.keep("CreateTaskPushNotificationConfig", header, trailer, err, made)
		if got := status.Code(err); got != config.code {
			s.t.Errorf("a configuration over gRPC: %v, want %s", err, config.code)
		}
	}
}

// askByGRPC asks for all that A2A has, as everybody.
func (s *search) askByGRPC(who []string) {
	s.t.Helper()
	c := s.grpcClient()
	for _, token := range who {
		for method, call := range map[string]func(context.Context, ...grpc.CallOption) (proto.Message, error){
			"GetTask": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.GetTask(ctx, &pb.GetTaskRequest{Tenant: "bob", Id: s.task}, o...)
			},
			"ListTasks": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.ListTasks(ctx, &pb.ListTasksRequest{Tenant: "bob"}, o...)
			},
			"CancelTask": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) { // which has ended
				return c.client.CancelTask(ctx, &pb.CancelTaskRequest{Tenant: "bob", Id: s.task}, o...)
			},
			"ListTaskPushNotificationConfigs": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.ListTaskPushNotificationConfigs(ctx, &pb.ListTaskPushNotificationConfigsRequest{Tenant: "bob", TaskId: s.task}, o...)
			},
			"GetTaskPushNotificationConfig": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.GetTaskPushNotificationConfig(ctx, &pb.GetTaskPushNotificationConfigRequest{Tenant: "bob", TaskId: s.task, Id: "four"}, o...)
			},
			"DeleteTaskPushNotificationConfig": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.DeleteTaskPushNotificationConfig(ctx, &pb.DeleteTaskPushNotificationConfigRequest{Tenant: "bob", TaskId: s.task, Id: "nine"}, o...)
			},
			"GetExtendedAgentCard": func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) {
				return c.client.GetExtendedAgentCard(ctx, &pb.GetExtendedAgentCardRequest{Tenant: "bob"}, o...)
			},
		} {
			var header, trailer metadata.MD
			ctx, cancel := c.as(token)
			got, err := call(ctx, grpc.Header(&header), grpc.Trailer(&trailer))
			cancel()
			c.keep(method, header, trailer, err, got)
			if token == s.ann && err != nil && method != "CancelTask" && method != "DeleteTaskPushNotificationConfig" {
				s.t.Errorf("%s over gRPC: %v", method, err)
			}
		}
		s.followByGRPC(c, token)
	}
}

// followByGRPC asks for streams.
func (s *search) followByGRPC(c grpcCalls, token string) {
	s.t.Helper()
	for _, id := range []string{s.task, "none"} {
		ctx, cancel := c.as(token)
		stream, err := c.client.SubscribeToTask(ctx, &pb.SubscribeToTaskRequest{Tenant: "bob", Id: id})
		s.must(err)
		var all []proto.Message
		for {
			var got *pb.StreamResponse
			if got, err = stream.Recv(); err != nil {
				break
			}
			all = append(all, got)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		header, _ := stream.Header()
		c.keep("SubscribeToTask", header, stream.Trailer(), err, all...)
		cancel()
	}
}
