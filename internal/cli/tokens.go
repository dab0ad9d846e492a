package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) tokensCommand() *cobra.Command {
	tokens := &cobra.Command{Use: "tokens", Short: "Tokens: who may act as an address", Args: asUsed, RunE: p.help}
	tokens.AddCommand(p.tokensList(), p.tokensAdd(), p.tokensRevoke())
	return tokens
}

func (p *program) tokensList() *cobra.Command {
	return &cobra.Command{
		Use: "list [@handle]", Short: "List the tokens of an address or of all, without their secrets",
		Example:           "  holdfast tokens list @writer",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, handle, err := p.clientMaybeAt(args)
			if err != nil {
				return err
			}
			all, err := tokensOf(cmd.Context(), c, handle)
			if err != nil {
				return err
			}
			return showList(p, list[client.Token]{
				items: all, empty: "@" + handle + " has no token. Make one with: holdfast tokens add @" + handle,
				id:   func(t client.Token) string { return t.ID },
				head: []string{"ID", "OF", "NAME", "MADE", "EXPIRES"},
				row: func(t client.Token) []string {
					return []string{t.ID, at(t.Handle), t.Name, moment(&t.CreatedAt), first(moment(t.ExpiresAt), "never")}
				},
			})
		}),
	}
}

// tokensOf lists the tokens of an address, of all if it is empty.
func tokensOf(ctx context.Context, c *client.Client, handle string) ([]client.Token, error) {
	if handle == "" {
		return c.AllTokens(ctx)
	}
	return c.Tokens(ctx, handle)
}

func (p *program) tokensAdd() *cobra.Command {
	var (
		name    string
		expires time.Duration
	)
	cmd := &cobra.Command{
		Use: "add @handle", Short: "Make a token that acts as an address",
		Long: `Make a token that acts as an address: to send as it, and to do its tasks. The token
is printed here and nowhere else. With -q it is all that is printed.`,
		Example: `  export HOLDFAST_TOKEN=$(holdfast tokens add @writer --name laptop -q)
  holdfast tokens add @writer --expires-in 720h -o json`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			r := client.TokenRequest{Name: name}
			if cmd.Flags().Changed("expires-in") {
				if expires < time.Second {
					return usagef("--expires-in has to be at least 1s")
				}
				s := int64(expires / time.Second)
				r.ExpiresIn = &s
			}
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			t, err := c.CreateToken(cmd.Context(), handle, r)
			if err != nil {
				return err
			}
			return p.show(t, t.Token, func() error {
				p.note("A token for @%s, shown only this once:", handle)
				_, err := fmt.Fprintln(p.out, t.Token)
				p.note("To revoke it: holdfast tokens revoke %s", t.ID)
				return err
			})
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "what the token is for")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how long it counts, such as 720h; for ever by default")
	return cmd
}

// tokenOwner finds the address of a token, to ask about no token that is not there.
func tokenOwner(ctx context.Context, c *client.Client, id string) (string, error) {
	all, err := c.AllTokens(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range all {
		if t.ID == id {
			return t.Handle, nil
		}
	}
	return "", &failure{exit: exitNotFound, code: "not_found", message: "there is no token " + id, hint: "holdfast tokens list shows those that there are."}
}

func (p *program) tokensRevoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "End a token; what is open with it is closed within 30 s",
		Example: "  holdfast tokens revoke 0198… --yes",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			if uuid.Validate(args[0]) != nil {
				return usagef("%q is no id of a token; holdfast tokens list shows them", args[0])
			}
			if !yes {
				whose, err := tokenOwner(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				if err := p.confirm(false, "This ends the token %s of @%s for good.", args[0], whose); err != nil {
					return err
				}
			}
			if err := c.RevokeToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			p.note("The token %s is revoked.", args[0])
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it without asking")
	return cmd
}
