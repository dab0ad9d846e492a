package hub

import "context"

// AgentFacts is what an agent that the hub calls says of itself on its own card, as far
// as the card of its address repeats it where the owner has said nothing. It is bounded,
// and names no place of the agent.
type AgentFacts struct {
	Description, Version string
	// Organization provides the agent; empty if it does not say. OrganizationURL is its
	// website, which may be empty.
	Organization, OrganizationURL string
	InputModes, OutputModes       []string // media types
	Skills                        []AgentSkill
}

// AgentSkill is one skill of AgentFacts, as A2A has it (section 4.4.5). What is empty, the
// agent does not say.
type AgentSkill struct {
	ID, Name, Description string
	Tags, Examples        []string
	InputModes            []string
	OutputModes           []string
}

// Agents is who knows what the agents of addresses say of themselves.
type Agents interface {
	// Look reads what the agent of an address says of itself, unless that is known well
	// enough. It takes a moment at the most. What goes wrong is no concern of the caller's.
	Look(ctx context.Context, a *Address)
	// Facts is what is known of the agent of an address; nil if nothing is. It must not be
	// changed.
	Facts(a *Address) *AgentFacts
}
