// Package delivery brings tasks to agents that do not ask for them: to an address that
// has an endpoint, by the Deliverer for its kind, and to the instances of an agent that
// are connected to the hub, each by the Deliverer that came with it.
//
// The Dispatcher is a worker inside of the hub. It waits in the mailbox of each such
// address as a pulling worker would, claims what comes, and reports what became of it,
// all through the engine; so leases, fencing, order and redelivery are those of every
// task. Each way to an agent, the endpoint or one instance, has one poll open while it has
// a free slot, and some goroutines for each task that is being delivered; a task that
// waits is a row, and costs nothing here.
//
// Every delivery is a hub.Dispatch, written before anything leaves: with what the agent
// calls the task a later one follows it, and an agent is told of a cancel, also by a hub
// that was killed in between. An endpoint is delivered to by the replica that owns it,
// and an instance by the one that it is connected to. What an instance had in hand stays
// its own for a while when its connection breaks.
//
// The claim is durable before anything leaves the hub, is kept for as long as the
// Deliverer is at it, and lapses soon after a hub that was killed; then the task is
// delivered again. What was never sent is given back, and is no failure. Until something
// is sent again the address then rests, for growing times, and one task at a time probes
// it. What was sent in vain counts as a lost delivery.
package delivery
