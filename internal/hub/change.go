package hub

// Change says what may have changed in a store by another replica's doing. It is a hint:
// who waits for such a thing looks again. One that is lost is made up for within about a
// second.
type Change struct {
	// Tasks is the ids of tasks with new events or messages.
	Tasks []string
	// Ready is the ids of addresses with ready tasks, once for each that became ready.
	Ready []string
	// Pushes: push notifications may be due.
	Pushes bool
	// Everything: more has changed than can be told.
	Everything bool
}
