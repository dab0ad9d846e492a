package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

// endpointFlags say where an agent is.
type endpointFlags struct {
	to, kind, bearer, basic, header string
	pull, clear, private            bool
}

func (p *program) agentsEndpoint() *cobra.Command {
	var f endpointFlags
	cmd := &cobra.Command{
		Use: "endpoint @handle", Short: "Say where the hub delivers the tasks of an agent: to a webhook or an A2A server, or nowhere",
		Long: `Say where the hub delivers the tasks of an agent: to the webhook at --to, with
--kind a2a to the A2A server there, or with --pull nowhere, as its workers ask for
them. What is known of the credential is kept
unless another is given, or --clear-auth.

The secret that verifies the hub's signatures is shown when the endpoint is made, and
never again. Credentials are read from files, or from stdin with -, so that no other
user of this machine sees them; the hub seals them and never shows them.`,
		Example: `  holdfast agents endpoint @writer --to https://writer.example.com/tasks
  holdfast agents endpoint @writer --to https://writer.example.com/tasks --bearer-file key
  holdfast agents endpoint @writer --to https://writer.example.com/tasks --header X-Api-Key=key
  holdfast agents endpoint @writer --to https://agents.example.com/writer --kind a2a
  holdfast agents endpoint @writer --pull`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			r, err := p.endpointRequest(cmd, f)
			if err != nil {
				return err
			}
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			a, err := c.SetEndpoint(cmd.Context(), handle, r)
			if err != nil {
				return err
			}
			if p.words() && a.Endpoint != nil && a.Endpoint.SigningSecret != "" {
				p.note("Keep the signing secret: it is shown only this once.")
			}
			return p.showAgent(a)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "", "the URL that gets each task as a POST request, or that of the A2A server")
	fl.StringVar(&f.kind, "kind", "webhook", "what is at the URL: webhook or a2a")
	fl.BoolVar(&f.pull, "pull", false, "deliver nowhere: the agent's workers ask for their tasks")
	fl.StringVar(&f.bearer, "bearer-file", "", "file with a token for the header Authorization: Bearer")
	fl.StringVar(&f.basic, "basic-file", "", "file with user:password for the header Authorization: Basic")
	fl.StringVar(&f.header, "header", "", "NAME=FILE: another header, and the file with its value")
	fl.BoolVar(&f.clear, "clear-auth", false, "present no credential any more")
	fl.BoolVar(&f.private, "allow-private-network", false, "let the URL lead into a private network; for the administrator")
	return cmd
}

// endpointRequest reads what the flags name.
func (p *program) endpointRequest(cmd *cobra.Command, f endpointFlags) (client.EndpointRequest, error) {
	r := client.EndpointRequest{ClearAuth: f.clear}
	given := cmd.Flags().Changed
	switch {
	case (f.to == "") == !f.pull:
		return r, misused(cmd, "give either --to with the URL of the agent (--url is that of the hub), or --pull")
	case f.pull && cmd.Flags().NFlag() > 1 && (given("bearer-file") || given("basic-file") || given("header") || given("kind") || given("allow-private-network")):
		return r, misused(cmd, "--pull goes without the flags of an endpoint")
	case f.pull:
		return r, nil
	}
	r.URL, r.Kind = &f.to, f.kind
	if given("allow-private-network") {
		r.AllowPrivateNetwork = &f.private
	}
	var err error
	r.Auth, err = p.endpointAuth(cmd, f)
	return r, err
}

// endpointAuth reads the credential, nil if none is given.
func (p *program) endpointAuth(cmd *cobra.Command, f endpointFlags) (*client.EndpointAuth, error) {
	var auth *client.EndpointAuth
	name := ""
	for _, x := range []struct{ kind, file string }{{"bearer", f.bearer}, {"basic", f.basic}, {"header", f.header}} {
		if x.file == "" {
			continue
		}
		if auth != nil {
			return nil, misused(cmd, "an endpoint has one credential: give one of --bearer-file, --basic-file and --header")
		}
		auth, name = &client.EndpointAuth{Type: x.kind}, x.file
	}
	if auth == nil {
		return nil, nil //nolint:nilnil // no credential, which is no error
	}
	if auth.Type == "header" {
		if auth.Header, name, _ = strings.Cut(f.header, "="); auth.Header == "" || name == "" {
			return nil, misused(cmd, "--header is NAME=FILE, such as X-Api-Key=key.txt")
		}
	}
	var err error
	auth.Secret, err = p.readSecret(name)
	return auth, err
}

// endpointFields describe the endpoint of an address, if it has one that may be seen.
func endpointFields(a *client.Agent) []field {
	e := a.Endpoint
	if e == nil {
		return nil
	}
	fields := []field{
		{"Delivers to", e.URL}, {"Credential", strings.TrimSpace(e.AuthType + " " + e.AuthHeader)}, {"Signing secret", e.SigningSecret},
		{"At once", fmt.Sprintf("%d of %d", e.InFlight, e.Slots)},
	}
	fields = append(fields, troubleFields(e.Trouble)...)
	if l := e.LastDelivery; l != nil {
		what := fmt.Sprintf("%s of %s in %v", l.Outcome, l.TaskID, time.Duration(l.LatencyMS)*time.Millisecond)
		if l.Detail != "" {
			what += ": " + l.Detail
		}
		fields = append(fields, field{"Last delivery", what})
	}
	return fields
}
