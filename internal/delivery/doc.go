// Package delivery brings tasks to agents that do not ask for them: to an address that
// has an endpoint, by the Deliverer for its kind.
//
// The Dispatcher is a worker inside of the hub. It waits in the mailbox of each such
// address as a pulling worker would, claims what comes, and reports what became of it,
// all through the engine; so leases, fencing, order and redelivery are those of every
// task. An address has one poll open while it has a free slot, and a goroutine for each
// task that is being delivered; a task that waits is a row, and costs nothing here.
//
// The claim is durable before anything leaves the hub, is kept for as long as the
// Deliverer is at it, and lapses soon after a hub that was killed; then the task is
// delivered again. What was never sent is given back, and is no failure. Until something
// is sent again the address then rests, for growing times, and one task at a time probes
// it. What was sent in vain counts as a lost delivery.
package delivery
