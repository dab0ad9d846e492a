package v1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"
	jsonv2 "github.com/go-json-experiment/json"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/wire"
)

// newAPI makes the huma API on the face's mux. Its errors get the hub's own body,
// and unknown members are ignored.
func newAPI(f *face) huma.API {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Holdfast", Version: f.opt.Version,
				Description: "Tasks for agents: send them, do them, and watch them.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "A token of the hub."},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format(), "json": format()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{ownErrors},
	}
	if f.opt.PublicURL != "" {
		config.Servers = []*huma.Server{{URL: f.opt.PublicURL}}
	}
	config.AllowAdditionalPropertiesByDefault = true
	return humago.New(f, config)
}

// format reads JSON as strictly as the hot routes do, and writes times with
// milliseconds as they do.
func format() huma.Format {
	times := jsonv2.WithMarshalers(jsonv2.MarshalFunc(func(t time.Time) ([]byte, error) {
		return canon.AppendTime(nil, t), nil
	}))
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			var b bytes.Buffer
			if err := jsonv2.MarshalWrite(&b, v, times); err != nil {
				return err
			}
			b.WriteByte('\n')
			_, _ = w.Write(b.Bytes()) // nothing is to be done about a client that has gone away
			return nil
		},
		Unmarshal: func(data []byte, v any) error {
			if err := rawjson.Check(data, maxDepth); err != nil {
				return badJSON(err)
			}
			// By the exact names of fields, as the hot routes: not in any case of letters.
			return badValue(jsonv2.Unmarshal(data, v))
		},
	}
}

// badValue tells where a value does not fit its field, in words without Go's.
func badValue(err error) error {
	if e, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		field := strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")
		return hub.InvalidField(field, "is of the wrong type or out of range; /docs says what it takes")
	}
	return err
}

// guard is huma middleware that lets a request through to its body only if who
// permits it, and answers validation failures with 400.
func (f *face) guard(who func(hub.Principal) error) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		p, err := identity.Require(ctx.Context())
		if err == nil {
			err = who(p)
		}
		if err != nil {
			r, w := humago.Unwrap(ctx)
			f.fail(w, r, err)
			return
		}
		next(plain{ctx})
	}
}

// plain is a context whose answers say 400 where huma says 422: the hub has one
// status for requests that cannot succeed as they are.
type plain struct{ humaContext }

// humaContext is huma.Context under a name that can be embedded next to its own
// method Context.
type humaContext huma.Context

// Unwrap is for humago.
func (c plain) Unwrap() huma.Context { return c.humaContext }

// SetStatus implements huma.Context.
func (c plain) SetStatus(code int) {
	if code == http.StatusUnprocessableEntity {
		code = http.StatusBadRequest
	}
	c.humaContext.SetStatus(code)
}

// shownError is a *hub.Error that huma answers with.
type shownError struct{ e *hub.Error }

func (s *shownError) Error() string  { return s.e.Message }
func (s *shownError) GetStatus() int { return statusOf(s.e) }

// GetHeaders implements huma.HeadersError.
func (s *shownError) GetHeaders() http.Header {
	h := http.Header{}
	httpx.ErrorHeaders(h, s.e)
	return h
}

// shown makes an error one that the client may see.
func (f *face) shown(ctx context.Context, err error) error {
	return &shownError{httpx.Public(ctx, f.opt.Log, err)}
}

// ownErrors is the transformer that gives errors the hub's own body, also those
// that huma made itself. What the client sent is not repeated in them.
func ownErrors(ctx huma.Context, _ string, v any) (any, error) {
	var e *hub.Error
	switch v := v.(type) {
	case *shownError:
		e = v.e
	case *huma.ErrorModel:
		e = fromHuma(v)
	default:
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	ctx.SetHeader("Cache-Control", "no-store")
	body := wire.ErrorBody{Error: wire.Error{Code: e.Code, Message: e.Message}}
	if e.Field != "" {
		body.Error.Details = map[string]any{"field": e.Field}
	}
	return body, nil
}

// fromHuma is an error of huma's request parsing in the hub's terms.
func fromHuma(m *huma.ErrorModel) *hub.Error {
	switch m.Status {
	case http.StatusUnsupportedMediaType:
		return errMediaType()
	case http.StatusRequestEntityTooLarge:
		return hub.Errorf(hub.TooLarge, "the request's body is too large; send less")
	case http.StatusRequestTimeout:
		return hub.Errorf(hub.Invalid, "the request's body came too slowly; send it again")
	}
	if m.Status >= http.StatusInternalServerError {
		return hub.Errorf(hub.Internal, "internal error; tell the hub's administrator the request id")
	}
	e := hub.Errorf(hub.Invalid, "%s", m.Detail)
	var detail *huma.ErrorDetail
	if len(m.Errors) > 0 && errors.As(m.Errors[0], &detail) {
		_, e.Field, _ = strings.Cut(detail.Location, ".")
		e.Message = detail.Message
		if name, ok := missingProperty(detail.Message); ok { // huma names the object that lacks it
			e.Field, e.Message = strings.TrimPrefix(e.Field+"."+name, "."), "is required"
		}
	}
	return e
}

// missingProperty reads the name of the member that is missing from huma's message.
func missingProperty(message string) (name string, ok bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, ok = strings.CutPrefix(message, before)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, after)
}
