package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

const replyHelp = `Report on a task of your address that was taken with "next", or within the command
of "work --exec".

--state is completed (the default, or failed with --error), failed, rejected,
input_required, auth_required or working. With completed, --text is the result;
with the others it is the message that goes along: the question, the reason, or with
working how far the work has come.

Without --claim the report counts for the newest claim of the task. About the task that
"work --exec" runs the command for, nothing is printed, since stdout is the artifact there;
-o json prints the task all the same.`

type replyFlags struct {
	claim, state, text, data, err string
	artifacts                     []string
}

func (p *program) replyCommand() *cobra.Command {
	var f replyFlags
	cmd := &cobra.Command{
		Use: "reply ID", Short: "Answer a task that you have taken", Long: replyHelp,
		Example: `  holdfast reply 0198… --text "forty-two"
  holdfast reply 0198… --state input_required --text "Which colour?"
  holdfast reply 0198… --error "the printer is on fire"`,
		Args: asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			r, err := p.reply(f)
			if err != nil {
				return err
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			t, err := p.heldTask(cmd.Context(), c, args[0], f.claim)
			if err != nil {
				return err
			}
			now, err := t.Reply(cmd.Context(), r)
			if err != nil {
				return err
			}
			return p.show(now, now.ID, func() error {
				if args[0] == p.env["HOLDFAST_TASK_ID"] {
					return nil // within "work --exec", where stdout is the artifact
				}
				return p.fields(field{"Task", now.ID}, field{"State", now.State}, field{"From", at(now.Caller)})
			})
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.claim, "claim", "", "the claim, as next printed it")
	fl.StringVar(&f.state, "state", "", "how the task stands now")
	fl.StringVar(&f.text, "text", "", "the result, question, reason or progress, - for stdin")
	fl.StringVar(&f.data, "data", "", "JSON to give as the result, or along with the text")
	fl.StringArrayVar(&f.artifacts, "artifact", nil, "file to give as an artifact, - for stdin (repeatable)")
	fl.StringVar(&f.err, "error", "", "why the task has failed")
	return cmd
}

// heldTask is the task by its claim, or else by its newest one.
func (p *program) heldTask(ctx context.Context, c *client.Client, id, claim string) (*client.Task, error) {
	if claim == "" && id == p.env["HOLDFAST_TASK_ID"] {
		claim = p.env["HOLDFAST_CLAIM_ID"]
	}
	if claim != "" {
		return c.Claim(id, claim), nil
	}
	return c.Received(ctx, id)
}

// reply is the report that the flags make.
func (p *program) reply(f replyFlags) (client.Result, error) {
	r := client.Result{State: strings.ReplaceAll(f.state, "-", "_")}
	if r.State == "" {
		r.State = client.StateCompleted
		if f.err != "" {
			r.State = client.StateFailed
		}
	}
	states := []string{client.StateCompleted, client.StateFailed, client.StateRejected, client.StateInputRequired, client.StateAuthRequired, client.StateWorking}
	if !slices.Contains(states, r.State) {
		return r, usagef("--state %q is not known: choose %s", f.state, strings.Join(states, ", "))
	}
	if f.err != "" {
		if r.State != client.StateFailed {
			return r, usagef("--error goes with --state failed; use --text to say why a task is %s", r.State)
		}
		r.Error = &f.err
	}
	parts, err := p.replyParts(f)
	if err != nil {
		return r, err
	}
	if r.Artifacts, err = p.replyArtifacts(f); err != nil {
		return r, err
	}
	switch {
	case len(parts) == 0:
	case r.State == client.StateCompleted:
		r.Artifacts = append(r.Artifacts, client.Artifact{Name: "response", Parts: parts})
	default:
		r.Message = &client.Message{Role: "agent", Parts: parts}
	}
	return r, nil
}

func (p *program) replyParts(f replyFlags) ([]client.Part, error) {
	var parts []client.Part
	if f.text != "" {
		body := f.text
		if body == "-" {
			b, err := p.readInput("-", maxInput)
			if err != nil {
				return nil, err
			}
			body = strings.TrimSuffix(string(b), "\n")
		}
		parts = append(parts, client.Text(body))
	}
	if f.data != "" {
		part, err := parseData(f.data)
		if err != nil {
			return nil, usagef("--data is no JSON: %v", err)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// replyArtifacts makes an artifact of each file, named like it.
func (p *program) replyArtifacts(f replyFlags) ([]client.Artifact, error) {
	var all []client.Artifact
	for _, name := range f.artifacts {
		b, err := p.readInput(name, maxInput)
		if err != nil {
			return nil, err
		}
		part, shown := outputPart(b), "response"
		if name != "-" {
			shown = filepath.Base(name)
			part.Filename = shown
			part.MediaType = mediaType(name, b)
		}
		all = append(all, client.Artifact{Name: shown, Parts: []client.Part{part}})
	}
	return all, nil
}
