// Package engine is the life of a task: it accepts, hands out, renews, redelivers
// and ends tasks on a hub.Store, and wakes whoever waits for that. It decides who
// may do what before it touches data. Its clients are the faces; nothing in here
// knows a protocol.
//
// Waiting costs the hub nothing but the waiter's own goroutine: a parked task is a
// row. Wake-ups are hints in memory, given after the commit; the store alone says
// what happened, and a lost hint is made up for by a look once a second.
package engine
