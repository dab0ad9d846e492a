package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
)

// asUsed checks the number of arguments against the command's line of usage, such as
// "poll [@handle] [ID]", and names the one that is missing.
func asUsed(cmd *cobra.Command, args []string) error {
	required, most := argumentsOf(cmd)
	switch {
	case len(args) < len(required):
		return misused(cmd, "%s is missing: holdfast %s", required[len(args)], usageOf(cmd))
	case len(args) > most && cmd.HasSubCommands():
		return unknownCommand(cmd, args[0])
	case len(args) > most && most == 0:
		return misused(cmd, "%q is too much: %s takes no arguments", args[0], cmd.CommandPath())
	case len(args) > most:
		return misused(cmd, "%q is too much: holdfast %s", args[most], usageOf(cmd))
	}
	return nil
}

// argumentsOf gives the names of the arguments that a command needs, and how many it
// takes at most.
func argumentsOf(cmd *cobra.Command) (required []string, most int) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		most++
		if strings.HasSuffix(word, "…]") {
			most = math.MaxInt
		}
		if !strings.HasPrefix(word, "[") {
			required = append(required, word)
		}
	}
	return required, most
}

// usageOf is a command's line of usage without the program's name.
func usageOf(cmd *cobra.Command) string {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	return strings.TrimSuffix(path, cmd.Name()) + cmd.Use
}

// misused is an error of usage that leads to the command's own help.
func misused(cmd *cobra.Command, format string, args ...any) error {
	return &failure{
		exit: exitUsage, code: "usage", message: fmt.Sprintf(format, args...),
		hint: "How to use it: " + cmd.CommandPath() + " --help",
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	f := &failure{
		exit: exitUsage, code: "usage", message: fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+name),
		hint: "The commands that there are: " + cmd.CommandPath() + " --help",
	}
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		f.hint = "Did you mean " + cmd.CommandPath() + " " + like[0] + "? All commands: " + cmd.CommandPath() + " --help"
	}
	return f
}

// atMostOne refuses flags that contradict each other.
func atMostOne(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			given = append(given, "--"+n)
		}
	}
	if len(given) < 2 {
		return nil
	}
	return misused(cmd, "%s cannot go together: choose one", strings.Join(given, " and "))
}
