package v1

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS string

// registerDocs adds the description of the API, for programs and for people. Both
// are made once, at the first request, when everything has been registered.
func (f *face) registerDocs() {
	const tag = "Description"
	add := func(path, id, summary, kind string, render func() ([]byte, error)) {
		f.HandleFunc("GET "+path, f.static(kind, render))
		f.api.OpenAPI().AddOperation(&huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Tags: []string{tag},
			Responses: map[string]*huma.Response{"200": {Description: "The description.", Content: map[string]*huma.MediaType{kind: {}}}},
		})
	}
	add("/openapi.json", "openapi", "Describe the API for programs (OpenAPI 3.1). Needs no token.", "application/json", func() ([]byte, error) {
		return json.Marshal(f.api.OpenAPI())
	})
	add("/docs", "docs", "Describe the API for people. Needs no token.", "text/html", f.renderDocs)
}

// static serves a document that is made once. Its policy lets a browser load
// nothing but the document's own style sheet.
func (f *face) static(kind string, render func() ([]byte, error)) http.HandlerFunc {
	once := sync.OnceValues(render)
	sum := sha256.Sum256([]byte(docsCSS))
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if strings.HasPrefix(kind, "text/") {
		kind += "; charset=utf-8"
	}
	return func(w http.ResponseWriter, r *http.Request) {
		doc, err := once()
		if err != nil {
			f.fail(w, r, hub.Wrap(hub.Internal, err, "the description could not be made"))
			return
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(doc) // nothing is to be done about a client that has gone away
	}
}

// The page of /docs.
type (
	docsPage struct {
		Title, Version, Description string
		CSS                         template.CSS
		Groups                      []docsGroup
		Schemas                     []docsSchema
	}
	docsGroup struct {
		Name string
		Ops  []docsOp
	}
	docsOp struct {
		*huma.Operation
		Body    *docsType
		Answers []docsAnswer
		Open    bool // needs no token
	}
	docsAnswer struct {
		Status, Text string
		Types        []docsType
	}
	docsSchema struct {
		Name   string
		Fields []docsField
	}
	docsField struct {
		Name     string
		Type     docsType
		Required bool
	}
	// docsType is a type in words; Ref is the schema that it is about.
	docsType struct{ Before, Ref, After string }
)

// renderDocs makes the page from the OpenAPI document.
func (f *face) renderDocs() ([]byte, error) {
	doc := f.api.OpenAPI()
	// The style sheet is a file of this package, so it is safe to trust.
	page := docsPage{Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description, CSS: template.CSS(docsCSS)}
	page.Groups = docsGroups(doc)
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas.Map())) {
		page.Schemas = append(page.Schemas, newDocsSchema(name, doc.Components.Schemas.Map()[name]))
	}
	t, err := template.New("docs").Parse(docsHTML)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, page)
	return b.Bytes(), err
}

// docsGroups sorts the operations by their tag, and within it by path.
func docsGroups(doc *huma.OpenAPI) []docsGroup {
	var groups []docsGroup
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, op := range operations(doc.Paths[path]) {
			i := slices.IndexFunc(groups, func(g docsGroup) bool { return g.Name == op.Tags[0] })
			if i < 0 {
				i = len(groups)
				groups = append(groups, docsGroup{Name: op.Tags[0]})
			}
			groups[i].Ops = append(groups[i].Ops, newDocsOp(op))
		}
	}
	slices.SortStableFunc(groups, func(a, b docsGroup) int { return strings.Compare(a.Name, b.Name) })
	return groups
}

// operations are those of a path.
func operations(item *huma.PathItem) []*huma.Operation {
	all := []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete}
	return slices.DeleteFunc(all, func(op *huma.Operation) bool { return op == nil })
}

func newDocsOp(op *huma.Operation) docsOp {
	d := docsOp{Operation: op, Open: len(op.Security) == 0}
	if op.RequestBody != nil {
		if m := op.RequestBody.Content["application/json"]; m != nil {
			t := newDocsType(m.Schema)
			d.Body = &t
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status == "default" {
			continue // the same everywhere; the page says it once
		}
		a := docsAnswer{Status: status, Text: op.Responses[status].Description}
		if m := op.Responses[status].Content["application/json"]; m != nil && m.Schema != nil {
			for _, s := range append(slices.Clone(m.Schema.AnyOf), m.Schema) {
				if len(s.AnyOf) == 0 {
					a.Types = append(a.Types, newDocsType(s))
				}
			}
		}
		d.Answers = append(d.Answers, a)
	}
	return d
}

func newDocsSchema(name string, s *huma.Schema) docsSchema {
	d := docsSchema{Name: name}
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		d.Fields = append(d.Fields, docsField{
			Name: field, Type: newDocsType(s.Properties[field]), Required: slices.Contains(s.Required, field),
		})
	}
	return d
}

// newDocsType puts a schema in words.
func newDocsType(s *huma.Schema) docsType {
	const prefix = "#/components/schemas/"
	var t docsType
	switch {
	case s == nil:
		return docsType{Before: "anything"}
	case len(s.AnyOf) == 2 && s.AnyOf[1].Type == "null":
		t = newDocsType(s.AnyOf[0])
		t.After += " or null"
		return t
	case s.Ref != "":
		return docsType{Ref: strings.TrimPrefix(s.Ref, prefix)}
	case s.Type == huma.TypeArray:
		t = newDocsType(s.Items)
		t.Before = "array of " + t.Before
	case s.Type == "":
		t.Before = "any JSON"
	case s.Format == "date-time":
		t.Before = "time"
	case s.Type == huma.TypeObject:
		t.Before = "object"
		if of, ok := s.AdditionalProperties.(*huma.Schema); ok {
			t.Before = "object of " + newDocsType(of).Before + "s"
		}
	default:
		t.Before = s.Type
	}
	if s.Nullable {
		t.After += " or null"
	}
	return t
}
