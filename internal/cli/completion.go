package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

// completeTime bounds how long Tab may take.
const completeTime = time.Second

// completeHandle completes the first argument with the handles of the hub.
func (p *program) completeHandle(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := p.access()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	agents, err := client.New(a.url, a.token, client.WithRetry(client.Retry{Tries: 1})).Agents(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []string
	for _, agent := range agents {
		if h := at(agent.Handle); strings.HasPrefix(h, at(strings.TrimPrefix(typed, "@"))) || typed == "" {
			found = append(found, h+"\t"+oneLine(agent.Description))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
